package calendar

import "time"

// Window is a time that opens whenever an expression elapses, and stays open for a while.
type Window struct {
	Opens    Expression
	Duration time.Duration // more than 0
}

// Contains reports whether the window is open at a moment. zone is as in Expression.Next.
func (w Window) Contains(now time.Time, zone *time.Location) bool {
	opened, ok := w.Opens.Next(now.Add(-w.Duration), zone)
	return ok && !opened.After(now)
}

// Next returns when the window opens next after a moment, whether or not it is open then; false if it never does.
func (w Window) Next(now time.Time, zone *time.Location) (time.Time, bool) {
	return w.Opens.Next(now, zone)
}
