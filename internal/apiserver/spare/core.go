package spare

import "time"

const (
	// lookEvery is how often it is looked: often against the two minutes after which Go collects by itself, and a look takes some microseconds.
	lookEvery = 5 * time.Second
	// idleShare is one over the part of a core below which a process counts as idle: ours, several times what ten thousand hosts may cost that
	// are connected and have nothing to do. A collection then is in nobody's way.
	idleShare = 4
	// worthShare is one over the part of its memory that has to come back.
	worthShare = 16
	// costShare is one over the part of a core that collections may take here: a heap of a gigabyte takes a second, and so is collected every
	// three minutes.
	costShare = 200
	// pauseMin is between two collections, however little they take.
	pauseMin = 20 * time.Second
)

// sample is what the process has taken at one moment.
type sample struct {
	cpu   time.Duration // since the process began
	held  uint64        // bytes that it has of the kernel
	spare uint64        // of those, what a collection would give back, as far as that is known
}

// state is what step remembers. The zero state has seen nothing.
type state struct {
	seen bool
	at   time.Time     // of the last look
	cpu  time.Duration // until then
	may  time.Time     // no collection before
}

// step takes a look, and says whether to collect now.
func (s *state) step(now time.Time, is sample) (collect bool) {
	idle := s.seen && (is.cpu-s.cpu)*idleShare <= now.Sub(s.at)
	s.seen, s.at, s.cpu = true, now, is.cpu
	return idle && !now.Before(s.may) && is.spare*worthShare >= is.held
}

// collected notes that a collection has ended, and what the process has taken by then: the next look is not to take it for work.
func (s *state) collected(now time.Time, is sample) {
	cost := max(is.cpu-s.cpu, 0)
	s.at, s.cpu, s.may = now, is.cpu, now.Add(max(cost*costShare, pauseMin))
}
