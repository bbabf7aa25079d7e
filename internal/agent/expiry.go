package agent

import (
	"context"
	"time"

	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/catalog"
)

// proof is when the servers were proven to be alive last; zero for a host that stands alone, where nothing expires.
func (j *joined) proof() catalog.Proof {
	if j == nil {
		return catalog.Proof{}
	}
	return j.held.Proof(j.identity.Trust().Time(time.Now()))
}

// outlive has the enforced state made anew where something of it has expired since, or is back.
func (l *loop) outlive(ctx context.Context) {
	if j := l.joined; j != nil && l.expiry.Due(j.proof(), j.held.Judged()) {
		l.reload(ctx)
	}
	l.setAlarm()
}

// expires notes what is left out of the state that is enforced from now on, and tells it if that is something else than before.
func (l *loop) expires(next load.Expiry) {
	was := l.expiry
	l.expiry = next.After(was)
	changed, err := l.expiry.Note(l.store, &was, time.Now())
	if err != nil {
		l.book.Note("write the history", err)
	}
	if why := l.expiry.Summary(); changed && why != nil {
		l.book.Show(report.ProblemOf(why))
	}
}

// expired is what a report says of it; nil where nothing has.
func (l *loop) expired() *report.Expired {
	first, at := l.expiry.Earliest()
	if first == nil {
		return nil
	}
	return &report.Expired{Count: l.expiry.Count, First: first.Title, Config: first.Config, TTL: first.TTL.String(), Since: at, Heard: l.expiry.Heard()}
}
