package subscribe

import (
	"slices"
	"sync"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk/watch"
	"tako.dev/tako/internal/systemd"
)

// News is what has been told since it was last taken. It is a set: the same told twice is told once, so it never holds more
// than what is watched.
type News struct {
	Everything   bool // the kernel lost events
	Declarations bool
	Limits       bool // the kernel has stopped telling about something
	slots        map[watch.ID]struct{}
	units        map[string]struct{}
	allUnits     bool // the bus was away
	replaced     bool // a watched directory came, went or was replaced
}

// mailbox is where the sources leave news.
type mailbox struct {
	mu   sync.Mutex // guards news
	news News
}

// filesChanged is the sink of the watchers of files and of the kernel's lists.
func (s *Subscriptions) filesChanged(events []watch.Event) {
	s.tell(func(n *News) {
		for _, ev := range events {
			n.Everything = n.Everything || ev.Overflow
			n.Limits = n.Limits || ev.Unwatched
			n.replaced = n.replaced || ev.Name == ""
			for _, id := range ev.IDs {
				if id == declarationSlot {
					n.Declarations = true
					continue
				}
				if n.slots == nil {
					n.slots = map[watch.ID]struct{}{}
				}
				n.slots[id] = struct{}{}
			}
		}
		n.Declarations = n.Declarations || n.Everything
	})
}

// unitChanged is the sink of the bus.
func (s *Subscriptions) unitChanged(ev systemd.Event) {
	s.tell(func(n *News) {
		if ev.Kind != systemd.UnitChanged {
			n.allUnits = true
			return
		}
		if n.units == nil {
			n.units = map[string]struct{}{}
		}
		n.units[ev.Unit] = struct{}{}
	})
}

// tell adds to the news and wakes the loop. It never waits for it.
func (s *Subscriptions) tell(add func(*News)) {
	s.mu.Lock()
	add(&s.news)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Take returns the news and begins anew.
func (s *Subscriptions) Take() News {
	s.mu.Lock()
	n := s.news
	s.news = News{}
	s.mu.Unlock()
	if n.replaced {
		s.rememberAgain()
	}
	return n
}

// Touched translates news into vertices, sorted.
func (s *Subscriptions) Touched(n News) []converge.ID {
	if n.Everything {
		return s.all()
	}
	var ids []converge.ID
	for slot := range n.slots {
		if int(slot) < len(s.bySlot) && s.bySlot[slot] != converge.None {
			ids = append(ids, s.bySlot[slot])
		}
	}
	if n.allUnits {
		for _, of := range s.units {
			ids = append(ids, of...)
		}
	}
	for unit := range n.units {
		ids = append(ids, s.units[unit]...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *Subscriptions) all() []converge.ID {
	ids := make([]converge.ID, len(s.members))
	for i := range ids {
		ids[i] = converge.ID(i)
	}
	return ids
}
