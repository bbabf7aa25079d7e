package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

// somebodyElse is one random operation below a directory, by paths of its universe.
func somebodyElse(t *rapid.T, base string, universe []string) (what string, do func()) {
	p := filepath.Join(base, rapid.SampledFrom(universe).Draw(t, "path"))
	q := filepath.Join(base, rapid.SampledFrom(universe).Draw(t, "other"))
	switch rapid.IntRange(0, 8).Draw(t, "operation") {
	case 0:
		return "mkdir -p " + p, func() { os.MkdirAll(p, 0o755) }
	case 1:
		return "rm -r " + p, func() { os.RemoveAll(p) }
	case 2:
		return "rename " + p + " " + q, func() { os.Rename(p, q) }
	case 3:
		return "replace " + p + " by " + q, func() { os.RemoveAll(p); os.Rename(q, p) }
	case 4:
		target := rapid.SampledFrom([]string{"a", "b", "../a", "../b", "."}).Draw(t, "target")
		return "symlink " + p + " -> " + target, func() {
			os.Symlink(target, base+"/link")
			if os.Rename(base+"/link", p) != nil {
				os.Remove(base + "/link")
			}
		}
	case 5:
		return "chmod " + p, func() {
			if st, err := os.Lstat(p); err == nil && st.Mode()&os.ModeSymlink == 0 {
				os.Chmod(p, st.Mode().Perm()^0o004)
			}
		}
	case 6:
		return "create " + p, func() {
			os.MkdirAll(filepath.Dir(p), 0o755)
			os.WriteFile(p, nil, 0o644)
		}
	case 7:
		return "rmdir and mkdir " + p, func() {
			if os.Remove(p) == nil {
				os.Mkdir(p, 0o755)
			}
		}
	}
	return "append " + p, func() {
		if f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0); err == nil {
			f.WriteString("x")
			f.Close()
		}
	}
}

// seen is what can be seen at a path.
func seen(r *disk.Root, p string) string {
	st, err := r.Stat(p)
	var e *reason.Error
	if errors.As(err, &e) {
		return e.Code.String()
	}
	if st.Type() == 0o040000 {
		// Its entries have paths of their own, and time and size of the directory are theirs.
		st.Ctime, st.Size = 0, 0
	}
	return fmt.Sprintf("%+v", st.Signature)
}

// listed is what can be seen in a directory.
func listed(r *disk.Root, p string) string {
	d, err := r.Dir(p)
	var e *reason.Error
	if errors.As(err, &e) {
		return e.Code.String()
	}
	defer d.Close()
	names, err := d.Names(100)
	text := fmt.Sprint(err)
	for _, name := range names {
		text += " " + name + " " + seen(r, disk.Join(p, name))
	}
	return text
}

// TestWatcherMissesNothing: somebody else does random things; whoever sees something else than at the last mark must have
// been marked.
func TestWatcherMissesNothing(t *testing.T) {
	r := hostRoot(t)
	var universe []string
	for _, x := range []string{"a", "b"} {
		universe = append(universe, x, x+"/f")
		for _, y := range []string{"a", "b"} {
			universe = append(universe, x+"/"+y, x+"/"+y+"/f")
		}
	}
	outer := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp(outer, "")
		disktest.Must(t, err)
		w, err := New(r)
		disktest.Must(t, err)
		defer w.Close()
		k := &told{marked: map[ID]int{}, blind: map[ID]bool{}}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- w.Run(ctx, k.sink) }()
		defer func() { cancel(); <-done }()

		var looks []func() string
		var names []string
		for _, p := range universe {
			p = filepath.Join(base, p)
			disktest.Must(t, w.Watch(p, ID(len(looks))))
			looks = append(looks, func() string { return seen(r, p) })
			names = append(names, p)
			if !strings.HasSuffix(p, "/f") {
				disktest.Must(t, w.WatchDir(p, ID(len(looks))))
				looks = append(looks, func() string { return listed(r, p) })
				names = append(names, p+"/*")
			}
		}
		last := make([]string, len(looks))
		for i, look := range looks {
			last[i] = look()
		}
		var history []string
		for range rapid.IntRange(1, 6).Draw(rt, "batches") {
			for range rapid.IntRange(1, 8).Draw(rt, "operations") {
				what, do := somebodyElse(rt, base, universe)
				history = append(history, what)
				do()
			}
			history = append(history, "look")
			fenced(t, w, k, outer+"/fence")
			k.mu.Lock()
			for i, look := range looks {
				now := look()
				if now != last[i] && k.marked[ID(i)] == 0 {
					rt.Errorf("%s: nobody told that %s became %s, after\n%s", names[i], last[i], now, strings.Join(history, "\n"))
				}
				last[i] = now
			}
			clear(k.marked)
			k.mu.Unlock()
		}
	})
}
