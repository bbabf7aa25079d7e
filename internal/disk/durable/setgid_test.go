package durable

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk/disktest"
)

// What is made in a directory that hands its group down has the setgid bit from the start.
func TestMakeInASetgidDirectory(t *testing.T) {
	dir := t.TempDir()
	disktest.Must(t, os.Chmod(dir, 0o755|os.ModeSetgid))
	r := hostRoot(t)
	p := filepath.Join(dir, "d")
	_, err := Mkdir(bg, r, MkdirSpec{Path: p, Mode: 0o750, UID: Keep, GID: Keep})
	disktest.Must(t, err)
	if st, _ := r.Stat(p); st.Perm() != 0o750 {
		t.Errorf("made %+v", st)
	}
	tree, err := BeginTree(bg, r, filepath.Join(dir, "tree"))
	disktest.Must(t, err)
	defer tree.Close()
	_, err = tree.Settle(TreeSpec{Mode: 0o755, UID: Keep, GID: Keep})
	disktest.Must(t, err)
	_, err = Symlink(bg, r, SymlinkSpec{Path: filepath.Join(dir, "link"), Target: "d", UID: Keep, GID: Keep})
	disktest.Must(t, err)
	if st, _ := r.Stat(filepath.Join(dir, "tree")); st.Type() != unix.S_IFDIR {
		t.Errorf("made %+v", st)
	}
}
