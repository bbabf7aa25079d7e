package missed

import (
	"maps"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestDiffering(t *testing.T) {
	stored := map[string]uint64{"same": 3, "newer": 9, "missing": 4}
	seen := map[string]uint64{"same": 3, "newer": 5, "gone": 7, "younger": 20}
	if got := slices.Sorted(maps.Keys(Differing(stored, seen, 10))); !slices.Equal(got, []string{"gone", "missing", "newer"}) {
		t.Errorf("differ: %v", got)
	}
}

// TestAdmit: nobody goes on from before what was missed, and nobody begins while it is about to be read.
func TestAdmit(t *testing.T) {
	c := New(Kind{})
	if err := c.admit(1); err != nil {
		t.Errorf("nothing was missed: %v", err)
	}
	c.reread()
	if err := c.admit(9); !apierrors.IsTooManyRequests(err) {
		t.Errorf("while it is broken: %v", err)
	}
	c.broken, c.floor = false, 8
	if err := c.admit(7); !apierrors.IsResourceExpired(err) {
		t.Errorf("from a version before: %v", err)
	}
	if err := c.admit(8); err != nil {
		t.Errorf("from a version after: %v", err)
	}
}

// TestEvery: what a watch has not told is found within ten minutes.
func TestEvery(t *testing.T) {
	if every < 5*time.Minute || every+every/2+compareMax > 10*time.Minute {
		t.Errorf("compared every %s to %s", every, every+every/2)
	}
}
