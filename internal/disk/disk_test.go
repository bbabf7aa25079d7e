package disk

import (
	"crypto/sha256"
	"os"
	"strings"
	"testing"
	"unsafe"

	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

func hostRoot(t testing.TB) *Root {
	t.Helper()
	return rootAt(t, "/")
}

func rootAt(t testing.TB, dir string) *Root {
	t.Helper()
	r, err := OpenRoot(dir)
	disktest.Must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func TestSignatureIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Signature{}); n > 64 {
		t.Errorf("a signature has %d bytes", n)
	}
}

func TestHasher(t *testing.T) {
	dir := t.TempDir()
	r := hostRoot(t)
	big := strings.Repeat("0123456789", 20_000)
	disktest.Must(t, os.WriteFile(dir+"/big", []byte(big), 0o600))
	disktest.Must(t, os.WriteFile(dir+"/empty", nil, 0o600))
	d, err := r.Dir(dir)
	disktest.Must(t, err)
	defer d.Close()
	h := NewHasher()
	for name, text := range map[string]string{"big": big, "empty": ""} {
		sum, st, err := h.File(d, name, 1<<20)
		if err != nil || sum != sha256.Sum256([]byte(text)) || st.Size != int64(len(text)) {
			t.Errorf("%s: %x, %+v, %v", name, sum, st, err)
		}
	}
	if _, _, err := h.File(d, "none", 1<<20); err == nil {
		t.Error("a missing file has a hash")
	}
	if _, _, err := h.File(d, "big", 199_999); !reason.Is(err, reason.ConcurrentEdit) {
		t.Errorf("one that is larger than expected: %v", err)
	}
	if _, _, err := d.ReadFile("big", 199_999); !reason.Is(err, reason.BodyTooLarge) {
		t.Errorf("limit: %v", err)
	}
}

func FuzzTempName(f *testing.F) {
	for _, s := range []string{"motd", "", "\xff", strings.Repeat("ü", 127), strings.Repeat("x", 255), strings.Repeat("\x80", 255)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > nameMax {
			return
		}
		temp := TempName(name)
		if len(temp) > nameMax || !IsTemporary(temp) || temp == TempName(name) {
			t.Errorf("%q becomes %q", name, temp)
		}
	})
}
