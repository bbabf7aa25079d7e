package store

import (
	"slices"
	"testing"
)

// TestHolds: there is one hold of each thing, and it is there after a restart, until it was ended.
func TestHolds(t *testing.T) {
	s := open(t, t.TempDir())
	first := Hold{Claim: "path:/etc/motd", Reason: "mine", Owner: "ann", Until: 10}
	longer := first
	longer.Until = 20
	all := Hold{Reason: "freeze", Owner: "bob", Until: 30}
	for _, h := range []Hold{first, all, longer} {
		must(t, s.SetHold(h))
	}
	s = reopen(t, s)
	if got := s.Holds(); !slices.Equal(got, []Hold{all, longer}) {
		t.Fatalf("held: %+v", got)
	}
	looking, err := Inspect(s.dir)
	must(t, err)
	if got := looking.Holds(); len(got) != 2 {
		t.Errorf("who looks sees %+v", got)
	}
	must(t, looking.Close())
	ended, err := s.EndHolds(func(h Hold) bool { return h.Until <= 20 })
	must(t, err)
	if !slices.Equal(ended, []Hold{longer}) {
		t.Errorf("ended: %+v", ended)
	}
	if got := reopen(t, s).Holds(); !slices.Equal(got, []Hold{all}) {
		t.Errorf("left: %+v", got)
	}
}
