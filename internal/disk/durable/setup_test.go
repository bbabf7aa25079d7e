package durable

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
)

var bg = context.Background()

func hostRoot(t testing.TB) *disk.Root {
	t.Helper()
	return rootAt(t, "/")
}

func rootAt(t testing.TB, dir string) *disk.Root {
	t.Helper()
	r, err := disk.OpenRoot(dir)
	disktest.Must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func wantNoTemporaries(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	disktest.Must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), disk.TempPrefix) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// textSpec is a spec with the defaults of most tests.
func textSpec(p, text string) WriteSpec {
	return WriteSpec{Path: p, Content: strings.NewReader(text), Size: int64(len(text)), Mode: 0o644, UID: Keep, GID: Keep}
}

func write(t *testing.T, r *disk.Root, spec WriteSpec) WriteResult {
	t.Helper()
	res, err := Write(bg, r, spec)
	if err != nil {
		t.Fatalf("write %q: %v (%v)", spec.Path, err, errors.Unwrap(err))
	}
	st, err := r.Stat(spec.Path)
	if err != nil || st.Signature != res.Signature {
		t.Fatalf("write %q: signature %+v, but there is %+v (%v)", spec.Path, res.Signature, st.Signature, err)
	}
	return res
}

func chmod(p string, mode int, expect *disk.Signature) AttributeSpec {
	return AttributeSpec{Path: p, Mode: mode, UID: Keep, GID: Keep, Expect: expect}
}

func chown(p string, uid, gid int) AttributeSpec {
	return AttributeSpec{Path: p, Mode: Keep, UID: uid, GID: gid}
}
