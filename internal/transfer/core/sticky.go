package core

import "time"

// stickFor is how long a server or relay that has failed is not gone back to, as long as there is another one. One that comes and goes
// every few seconds would otherwise drag along all that believe it to be back.
const stickFor = 2 * time.Minute

// Sticky says which of several servers or relays to be with: with one, for as long as it goes well, and after a failure with another one,
// for a while at least.
type Sticky struct {
	current int
	failed  []time.Time // when each has failed last; zero: never
}

// NewSticky begins with the first of so many, at least one.
func NewSticky(count int) *Sticky { return &Sticky{failed: make([]time.Time, count)} }

// Resize has it know of so many, at least one, of which the first are those that it knows.
func (s *Sticky) Resize(count int) {
	for len(s.failed) < count {
		s.failed = append(s.failed, time.Time{})
	}
	if s.failed = s.failed[:count]; s.current >= count {
		s.current = 0
	}
}

// Current is which one to be with.
func (s *Sticky) Current() int { return s.current }

// Failed turns away from the current one: to the next one round that has not failed for a while, or else to the one whose failure is the
// longest ago, which may be the same one where there is no other.
func (s *Sticky) Failed(now time.Time) {
	s.failed[s.current] = now
	best := s.current
	for i := 1; i < len(s.failed); i++ {
		at := (s.current + i) % len(s.failed)
		if s.failed[at].IsZero() || now.Sub(s.failed[at]) >= stickFor {
			best = at
			break
		}
		if s.failed[at].Before(s.failed[best]) {
			best = at
		}
	}
	s.current = best
}
