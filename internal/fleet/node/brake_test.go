package node

import "testing"

func TestBrake(t *testing.T) {
	for _, c := range []struct {
		gone, all int
		brakes    bool
	}{
		{0, 0, false}, {1, 1, false}, {2, 2, false}, {2, 3, false}, {3, 3, true}, {3, 5, true}, {3, 6, false}, {54, 100, false}, {55, 100, true}, {100, 100, true},
	} {
		if got := Brake(c.gone, c.all, "of the fleet"); (got != "") != c.brakes {
			t.Errorf("%d of %d: %q", c.gone, c.all, got)
		}
	}
	if got, want := Brake(6, 10, "of prod"), "6 of 10 nodes of prod are gone at once: what was there is not replaced before fewer than 55% are"; got != want {
		t.Errorf("got %q", got)
	}
}
