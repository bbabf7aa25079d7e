package subscribe

import "tako.dev/tako/internal/host"

// Follow changes what tells about a member of the present graph, whose Watches are what they are with these from now on.
func (s *Subscriptions) Follow(m Subscriber, drop, add []host.Watch) {
	slot, known := s.slots[m.Key()]
	if !known {
		return
	}
	for _, w := range drop {
		s.unwatch(w, slot)
	}
	for _, w := range add {
		s.watch(w, slot)
	}
}
