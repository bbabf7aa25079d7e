package state

import (
	"os"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestServerID: a data directory has one ID, which no other one has, and what is none is refused.
func TestServerID(t *testing.T) {
	path := t.TempDir()
	id := func(path string) (string, error) {
		d, err := Open(path)
		must(t, err)
		defer d.Close()
		return d.ServerID()
	}
	first, err := id(path)
	must(t, err)
	if again, err := id(path); err != nil || again != first || len(first) != 2*serverIDSize {
		t.Errorf("%q, then %q, %v", first, again, err)
	}
	if other, err := id(t.TempDir()); err != nil || other == first {
		t.Errorf("another directory has %q, %v", other, err)
	}
	must(t, os.WriteFile(path+"/"+serverIDName, []byte("web-1\n"), 0o600))
	if _, err := id(path); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("what is no ID: %v", err)
	}
}
