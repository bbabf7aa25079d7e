package state

import (
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestDirOfALaterVersion(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !reason.Is(err, reason.StateNewer) {
		t.Errorf("opened: %v", err)
	}
}
