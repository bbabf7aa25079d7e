package subscribe

import (
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// Follow changes what tells about a member, whose Watches are what they are with these from now on. One of another graph than the present
// one is passed over.
func (s *Subscriptions) Follow(id converge.ID, m Subscriber, drop, add []host.Watch) {
	if !s.present(id, m) {
		return
	}
	slot := s.slots[id]
	for _, w := range drop {
		s.unwatch(w, slot)
	}
	for _, w := range add {
		s.watch(w, slot)
	}
}
