package report

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
)

// Bounds of what is kept to tell people of an agent.
const (
	troublesMax = 20        // the newest of each kind
	troubleTime = time.Hour // a trouble that has not come again is over
	// standingMax is how many are told one by one of what goes on: enough for a person to begin with.
	standingMax = 10
)

// Troubles are what went wrong with an agent itself. Some happen, and are over when they have not come again for an hour; others stand,
// and are over when somebody has mended their cause.
type Troubles struct {
	happened []trouble
	standing []*reason.Error
}

type trouble struct {
	err *reason.Error
	at  time.Time
}

// Happened takes in a trouble that came of what was done. A newer one of the same kind replaces the older. It returns the error as it is
// told.
func (t *Troubles) Happened(what string, err error, now time.Time) *reason.Error {
	e := reason.Of(err)
	if e.Doing == "" || e.Doing == "run" {
		e = &reason.Error{Code: e.Code, Doing: what, Cause: e.Cause, Hint: e.Hint}
	}
	t.happened = slices.DeleteFunc(t.happened, func(was trouble) bool {
		return was.err.Code == e.Code && was.err.Doing == e.Doing || was.over(now)
	})
	t.happened = append(t.happened, trouble{e, now})
	if over := len(t.happened) - troublesMax; over > 0 {
		t.happened = t.happened[over:]
	}
	return e
}

func (t *trouble) over(now time.Time) bool { return now.Sub(t.at) > troubleTime }

// Stand says what stands from now on, in the place of what stood. Of many, the first are told and the rest is counted in the last. It
// returns those that did not stand before, and whether anything is otherwise than it was.
func (t *Troubles) Stand(errs []error) (news []*reason.Error, changed bool) {
	var now []*reason.Error
	for i, err := range errs {
		e := reason.Of(err)
		if i == standingMax-1 && len(errs) > standingMax {
			now = append(now, &reason.Error{Code: e.Code, Doing: fmt.Sprintf("%s, and %d more", e.Doing, len(errs)-i-1), Cause: e.Cause, Hint: e.Hint})
			break
		}
		now = append(now, e)
	}
	for _, e := range now {
		if !slices.ContainsFunc(t.standing, func(was *reason.Error) bool { return was.Code == e.Code && was.Error() == e.Error() }) {
			news = append(news, e)
		}
	}
	changed = len(news) > 0 || len(now) != len(t.standing)
	t.standing = now
	return news, changed
}

// Forget ends the troubles that happened and are of a kind.
func (t *Troubles) Forget(of func(*reason.Error) bool) {
	t.happened = slices.DeleteFunc(t.happened, func(was trouble) bool { return of(was.err) })
}

// List lists the troubles that there are: what happened, the oldest first, and what stands.
func (t *Troubles) List(now time.Time) []*reason.Error {
	var list []*reason.Error
	for _, was := range t.happened {
		if !was.over(now) {
			list = append(list, was.err)
		}
	}
	return append(list, t.standing...)
}
