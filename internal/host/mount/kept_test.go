package mount

import (
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
)

// TestFstabKept: what fstab was before a change is found under its path.
func TestFstabKept(t *testing.T) {
	dir := t.TempDir()
	const old = "# by hand\n"
	err := os.Mkdir(filepath.Join(dir, "etc"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fstabFile), []byte(old), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	root, err := disk.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	store, err := content.Open(filepath.Join(t.TempDir(), "content"), content.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fstab{root: root, store: store, Sweeper: durable.NewSweeper(root)}
	var done work
	if err := f.editLines(t.Context(), &done, func([]fstabLine) []fstabLine { return parseFstab("tmpfs /srv/data tmpfs defaults 0 0\n") }); err != nil || !done.changed {
		t.Fatalf("%v, %+v", err, done)
	}
	versions, err := store.Versions(fstabFile)
	if err != nil || len(versions) != 1 || versions[0].Digest != content.DigestOf([]byte(old)) || versions[0].Mode != 0o600 {
		t.Errorf("kept: %+v, %v", versions, err)
	}
}
