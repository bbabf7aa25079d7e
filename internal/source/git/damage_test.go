package git

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// Whatever a cache has become, the next fetch makes it whole, within the call.
func TestDamagedCache(t *testing.T) {
	each := func(dir, suffix string, do func(name string) error) error {
		return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(p, suffix) {
				_ = os.Chmod(p, 0o600)
				err = do(p)
			}
			return err
		})
	}
	truncate := func(name string) error { return os.Truncate(name, 30) }
	tests := []struct {
		name   string
		damage func(dir string) error
	}{
		{"packs truncated", func(dir string) error { return each(dir, ".pack", truncate) }},
		{"packs empty", func(dir string) error { return each(dir, ".pack", func(n string) error { return os.Truncate(n, 0) }) }},
		{"packs gone", func(dir string) error { return each(dir, ".pack", os.Remove) }},
		{"indexes gone", func(dir string) error { return each(dir, ".idx", os.Remove) }},
		{"indexes truncated", func(dir string) error { return each(dir, ".idx", truncate) }},
		{"bytes flipped", func(dir string) error {
			return each(dir, ".pack", func(n string) error {
				b, err := os.ReadFile(n)
				for i := 20; err == nil && i < len(b)-20; i++ {
					b[i] ^= 0x55
				}
				return os.WriteFile(n, b, 0o600)
			})
		}},
		{"HEAD gone", func(dir string) error { return os.Remove(filepath.Join(dir, "HEAD")) }},
		{"config is garbage", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "config"), []byte("[[["), 0o600)
		}},
		{"shallow is garbage", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "shallow"), []byte("garbage\n"), 0o600)
		}},
		{"locks left behind", func(dir string) error {
			for _, name := range []string{"shallow.lock", "config.lock", "packed-refs.lock", "refs/tako/incoming.lock"} {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}},
		{"refs are garbage", func(dir string) error {
			return each(filepath.Join(dir, "refs"), "", func(n string) error { return os.WriteFile(n, []byte("x"), 0o600) })
		}},
		{"everything empty", func(dir string) error {
			return each(dir, "", func(n string) error { return os.Truncate(n, 0) })
		}},
		{"nothing but the directory", func(dir string) error {
			entries, err := os.ReadDir(dir)
			for _, e := range entries {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
			return err
		}},
		{"half of a first fetch", func(dir string) error {
			return os.Rename(dir, dir+newSuffix)
		}},
		{"killed between two renames", func(dir string) error {
			return os.Rename(dir, dir+goneSuffix)
		}},
	}
	o := newOrigin(t)
	one := o.commit(map[string]string{"a": "1", "dir/b": "content of b"})
	two := o.commit(map[string]string{"a": "2"})
	o.git("update-ref", "refs/heads/one", string(one))
	for _, tt := range tests {
		g := newGit(t, Limits{})
		r := g.Repository("k")
		fetch := func(id ID) error {
			_, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil)
			return err
		}
		must(t, fetch(one))
		if err := tt.damage(r.dir); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		// A reader may find the damage first; then the next fetch knows.
		_ = r.Tree(t.Context(), Commit{ID: one}, nil, func(tree *Tree) error {
			_, err := tree.ReadFile("a")
			return err
		})
		if err := fetch(two); err != nil {
			t.Errorf("%s: %v: %s", tt.name, err, reason.Of(err).Evidence)
			continue
		}
		if got := files(t, r, two); got["a"] != "2" || got["dir/b"] != "content of b" {
			t.Errorf("%s: files are %v", tt.name, got)
		}
	}
}

// A repository that is away does not cost the copy of it.
func TestRemoteAway(t *testing.T) {
	o := newOrigin(t)
	one := o.commit(map[string]string{"a": "1"})
	g := newGit(t, Limits{})
	r := g.Repository("k")
	_, err := r.Fetch(t.Context(), o.remote(), Ref{ID: one}, nil)
	must(t, err)
	away := Remote{URL: "http://127.0.0.1:1/x", PlainHTTP: true}
	two := ID(strings.Repeat("2", 40))
	for range 2 {
		if _, err := r.Fetch(t.Context(), away, Ref{ID: two}, nil); !reason.Is(err, reason.RepositoryUnreachable) {
			t.Errorf("away: %v", err)
		}
	}
	if got := files(t, r, one); got["a"] != "1" {
		t.Errorf("files are %v", got)
	}
}

// Packs do not pile up.
func TestPacks(t *testing.T) {
	o := newOrigin(t)
	g := newGit(t, Limits{Packs: 4})
	r := g.Repository("k")
	most := 0
	for i := range 12 {
		id := o.commit(map[string]string{"a": strings.Repeat("x", i+1), "b": "stays"})
		_, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil)
		must(t, err)
		most = max(most, packs(r.dir))
		if got := files(t, r, id); len(got["a"]) != i+1 || got["b"] != "stays" {
			t.Errorf("commit %d: %v", i, got)
		}
	}
	if most != 4 {
		t.Errorf("at most %d packs, want 4", most)
	}
}

func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	o := newOrigin(t)
	noise := make([]byte, 4<<20)
	for i, x := 0, uint32(7); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	for i := range 8 {
		write(t, filepath.Join(o.dir, "f"+string(rune('a'+i))), string(noise[i<<19:(i+1)<<19]))
	}
	id := o.commit(nil)
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		t.Skipf("needs mount of tmpfs: %v", err)
	}
	defer unmount(dir)
	g, err := New(Options{Dir: dir, LocalDirs: []string{os.TempDir()}})
	must(t, err)
	r := g.Repository("k")
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: id}, nil); !reason.Is(err, reason.DiskFull) {
		t.Errorf("a full disk: %v: %s", err, reason.Of(err).Evidence)
	}
	small := o.commitTree("small", o.tree("100644 "+string(o.object("blob", []byte("x")))+"\ta"))
	if _, err := r.Fetch(t.Context(), o.remote(), Ref{ID: small}, nil); err != nil {
		t.Errorf("after that: %v", err)
	}
}
