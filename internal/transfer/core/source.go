package core

import (
	"time"
)

// blamedFor is how long a source is not asked that has sent what was not asked for, as long as there is another one.
const blamedFor = 10 * time.Minute

// sources says whom to ask.
type sources struct {
	blamed  []time.Time // until when, by number
	current int
}

// next turns to another source: the first one round that is not blamed, or else the one whose blame ends first.
func (s *sources) next(now time.Time) {
	best := -1
	for i := range s.blamed {
		at := (s.current + 1 + i) % len(s.blamed)
		if !s.blamed[at].After(now) {
			s.current = at
			return
		}
		if best < 0 || s.blamed[at].Before(s.blamed[best]) {
			best = at
		}
	}
	s.current = best
}

// blame turns away from the current source.
func (s *sources) blame(now time.Time) {
	s.blamed[s.current] = now.Add(blamedFor)
	s.next(now)
}

// resize has it know of so many.
func (s *sources) resize(count int) {
	for len(s.blamed) < count {
		s.blamed = append(s.blamed, time.Time{})
	}
	if s.blamed = s.blamed[:count]; s.current >= count {
		s.current = 0
	}
}
