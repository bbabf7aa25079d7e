package agent

import (
	"context"
	"testing"
	"time"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// queue is plain, one after the other: nothing is written before everything was looked at, and the first write waits for a word.
type queue struct {
	*plain
	began, goOn chan struct{}
}

func (q *queue) Lane() converge.Lane {
	return converge.Lane{Name: "queue", Parallel: 1, Batch: 1, Gather: true}
}

func (q *queue) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	if plans[0].Resource.(*sheet).path == "/a" {
		close(q.began)
		<-q.goOn
	}
	return q.plain.Apply(ctx, plans)
}

// TestHoldOfWhatIsDue: a hold counts from when it is set, also for what was found to differ before that and has not had its turn.
func TestHoldOfWhatIsDue(t *testing.T) {
	s := newSite(t)
	s.declare("gone|onRemove: delete")
	must(t, s.converge())
	q := &queue{plain: s.files, began: make(chan struct{}), goOn: make(chan struct{})}
	for kind := range s.opts.Types {
		s.opts.Types[kind] = q
	}
	s.declare("a", "b")
	s.watch()
	<-q.began
	for _, claim := range []string{"path:/b", "path:/gone"} {
		must(t, local.SetHold(t.Context(), s.opts.StateDir, Hold{Claim: claim, Reason: "mine for now", Owner: "ann", Until: time.Now().Add(time.Hour)}))
	}
	close(q.goOn)
	s.until("the others are held", func(r *Report) bool {
		return r.Settled && resource(r, "file/b").Detail == reason.Held && resource(r, "file/gone").Detail == reason.Held
	})
	s.holds("a", "text of a")
	s.holds("b", "")
	s.holds("gone", "text of gone")
	if _, err := local.EndHolds(t.Context(), s.opts.StateDir, "", ""); err != nil {
		t.Error(err)
	}
	s.until("they are let go", func(r *Report) bool { return r.Converged && r.Settled })
	s.holds("b", "text of b")
	s.holds("gone", "")
}
