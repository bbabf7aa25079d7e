package content

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

func open(t fataler, dir string, quota int64) *Store {
	t.Helper()
	s, err := Open(dir, Options{QuotaBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, text string) Digest {
	t.Helper()
	d, n, err := s.Put(context.Background(), strings.NewReader(text))
	if err != nil || n != int64(len(text)) || d != DigestOf([]byte(text)) {
		t.Fatalf("put: %v, %d, %v", d, n, err)
	}
	return d
}

func TestPutGet(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := open(t, dir, 0)
	d := put(t, s, "old text")
	if got := put(t, s, "old text"); got != d || s.Size() != 8 {
		t.Errorf("stored twice: size %d", s.Size())
	}
	for _, s := range []*Store{s, open(t, dir, 0)} {
		b, err := s.ReadAll(d, 8)
		if err != nil || string(b) != "old text" {
			t.Errorf("read: %q, %v", b, err)
		}
		if _, err := s.ReadAll(d, 7); !reason.Is(err, reason.BodyTooLarge) {
			t.Errorf("limit: %v", err)
		}
		if _, err := s.Get(DigestOf(nil)); !reason.Is(err, reason.ResourceUnknown) {
			t.Errorf("missing: %v", err)
		}
		if !s.Has(d) || s.Has(DigestOf(nil)) || s.Size() != 8 {
			t.Errorf("has or size is wrong: %d", s.Size())
		}
	}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		st, _ := e.Info()
		if st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", p, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCorruptObject(t *testing.T) {
	s := open(t, t.TempDir(), 0)
	d := put(t, s, "good")
	spoil := func() {
		if err := os.WriteFile(s.path(d), []byte("evil"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	if _, err := s.ReadAll(d, 100); !reason.Is(err, reason.StateCorrupt) {
		t.Fatalf("corrupt object: %v", err)
	}
	if s.Has(d) {
		t.Error("a corrupt object is still offered")
	}
	if b, err := os.ReadFile(filepath.Join(s.dir, corruptDir, d.hex())); err != nil || string(b) != "evil" {
		t.Errorf("set aside: %q, %v", b, err)
	}
	put(t, s, "good")
	spoil()
	put(t, s, "good")
	if b, err := s.ReadAll(d, 100); err != nil || string(b) != "good" {
		t.Errorf("put over a corrupt object: %q, %v", b, err)
	}
	if again := open(t, s.dir, 0); again.Size() != s.Size() {
		t.Errorf("size %d, counted again %d", s.Size(), again.Size())
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	s := open(t, t.TempDir(), 10)
	put(t, s, "12345678")
	broken := errors.New("cable pulled")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want error
	}{
		"quota":     {context.Background(), strings.NewReader("abc"), nil},
		"reader":    {context.Background(), io.MultiReader(strings.NewReader("a"), iotest.ErrReader(broken)), broken},
		"cancelled": {ctx, strings.NewReader("a"), context.Canceled},
	} {
		_, _, err := s.Put(c.ctx, c.r)
		if !reason.Is(err, reason.BackupFailed) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		left, _ := os.ReadDir(filepath.Join(s.dir, tmpDir))
		if s.Size() != 8 || len(left) != 0 {
			t.Errorf("%s: size %d, %d temporaries", name, s.Size(), len(left))
		}
	}
	if put(t, s, "ab"); s.Size() != 10 {
		t.Errorf("quota to the last byte: %d", s.Size())
	}
	// Without the journal of sizes, a killed run is as if it had not been.
	if err := os.WriteFile(filepath.Join(s.dir, tmpDir, "put-1"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, s.dir, 10)
	if left, _ := os.ReadDir(filepath.Join(s.dir, tmpDir)); len(left) != 0 || s.Size() != 10 {
		t.Errorf("after a kill: size %d, %d temporaries", s.Size(), len(left))
	}
}

func TestPutConcurrently(t *testing.T) {
	s := open(t, t.TempDir(), 0)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 20 {
				b := bytes.Repeat([]byte{byte((i + g) % 10)}, 100)
				if _, _, err := s.Put(context.Background(), bytes.NewReader(b)); err != nil {
					t.Error(err)
				}
				if got, err := s.ReadAll(DigestOf(b), 100); err != nil || !bytes.Equal(got, b) {
					t.Errorf("read: %d bytes, %v", len(got), err)
				}
			}
		})
	}
	all.Wait()
	if s.Size() != 1000 {
		t.Errorf("size %d, want 1000", s.Size())
	}
}

// TestModel runs random operations on a store and on a map.
func TestModel(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		const quota = 400
		s := open(t, dir, quota)
		model := map[Digest][]byte{}
		size := func() (n int64) {
			for _, b := range model {
				n += int64(len(b))
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				b := make([]byte, rapid.IntRange(0, 60).Draw(t, "size"))
				for i := range b {
					b[i] = byte(rapid.IntRange(0, 1).Draw(t, "byte"))
				}
				fits := size()+int64(len(b)) <= quota
				d, n, err := s.Put(context.Background(), bytes.NewReader(b))
				if (err == nil) != fits || err == nil && (d != DigestOf(b) || n != int64(len(b))) {
					t.Fatalf("put of %d with %d in use: %v", len(b), size(), err)
				}
				if err == nil {
					model[d] = b
				}
			},
			"trim": func(t *rapid.T) {
				bit := byte(rapid.IntRange(1, 255).Draw(t, "bits"))
				want, bytes := 0, int64(0)
				for d, b := range model {
					if d[0]&bit == 0 {
						want, bytes = want+1, bytes+int64(len(b))
						delete(model, d)
					}
				}
				n, freed, err := s.Trim(time.Now().Add(2*ageMax), func(d Digest) bool { return d[0]&bit != 0 })
				if n != want || freed != bytes || err != nil {
					t.Fatalf("trim: %d objects, %d bytes, %v; want %d, %d", n, freed, err, want, bytes)
				}
			},
			"reopen": func(*rapid.T) { s = open(t, dir, quota) },
			"": func(t *rapid.T) {
				if s.Size() != size() {
					t.Fatalf("size %d, want %d", s.Size(), size())
				}
				for d, want := range model {
					if got, err := s.ReadAll(d, 100); err != nil || !bytes.Equal(got, want) {
						t.Fatalf("read: %q, %v; want %q", got, err, want)
					}
				}
			},
		})
	})
}

// fataler is what *testing.T and *rapid.T share.
type fataler interface {
	Helper()
	Fatal(...any)
}
