package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/disk/disktest"
	"tako.dev/tako/internal/reason"
)

// TestDamagedStateIsRebuilt: whatever has become of a state file, the agent converges from its declarations, says what it found,
// sets it aside, and a second run finds nothing more to say.
func TestDamagedStateIsRebuilt(t *testing.T) {
	for _, name := range []string{"active", "journal", "converged", "report"} {
		for what, damage := range map[string]func([]byte) []byte{
			"empty":     func([]byte) []byte { return nil },
			"truncated": func(b []byte) []byte { return b[:len(b)/2] },
			"flipped":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			"garbage":   func(b []byte) []byte { return bytes.Repeat([]byte("\x00\xff tako "), len(b)) },
			"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				s := newSite(t)
				s.declare("a|onRemove: restore", "b.service")
				must(t, s.converge())
				p := filepath.Join(s.opts.StateDir, name)
				b, err := os.ReadFile(p)
				must(t, err)
				must(t, os.WriteFile(p, damage(b), 0o600))
				s.edit("a", "theirs")
				must(t, s.converge())
				s.holds("a", "text of a")
				r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false)
				must(t, err)
				if !r.Converged || !slices.ContainsFunc(r.Degraded, func(p Problem) bool { return p.Code == reason.StateCorrupt }) {
					t.Errorf("after the damage: %+v", r)
				}
				if aside, err := os.ReadDir(filepath.Join(s.opts.StateDir, "corrupt")); err != nil || len(aside) != 1 {
					t.Errorf("set aside: %v, %v", aside, err)
				}
				must(t, s.converge())
				if r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, false); err != nil || !r.Converged || len(r.Degraded) != 0 {
					t.Errorf("a run later: %+v, %v", r, err)
				}
			})
		}
	}
}

// TestStateOfANewerVersionIsLeftAlone: an older program changes nothing of it, and nothing on the host.
func TestStateOfANewerVersionIsLeftAlone(t *testing.T) {
	for _, name := range []string{"active", "journal", "converged", "report"} {
		s := newSite(t)
		s.declare("a")
		must(t, s.converge())
		p := filepath.Join(s.opts.StateDir, name)
		b, err := os.ReadFile(p)
		must(t, err)
		newer := bytes.Replace(b, fmt.Appendf(nil, "tako %s 1\n", name), fmt.Appendf(nil, "tako %s 2\n", name), 1)
		if bytes.Equal(b, newer) {
			t.Fatalf("%s has no header of version 1", name)
		}
		must(t, os.WriteFile(p, newer, 0o600))
		s.edit("a", "theirs")
		before := snapshot(t, s.dir)
		if _, err := New(s.opts); !reason.Is(err, reason.StateNewer) {
			t.Errorf("%s of a newer version: %v", name, err)
		}
		if after := snapshot(t, s.dir); after != before {
			t.Errorf("%s of a newer version: something was changed:\n%s\nbefore:\n%s", name, after, before)
		}
	}
}

// TestNoRoomForPromises: without room for the journal nothing is changed that somebody would have to be notified of, and with room
// again everything is made up for.
func TestNoRoomForPromises(t *testing.T) {
	const files = 100 // notes of so many do not fit in what is left of the journal's last page
	s := newSite(t)
	s.opts.StateDir = filepath.Join(disktest.Mounted(t, "size=1m"), "state")
	resources := []string{"b.service"}
	for i := range files {
		resources = append(resources, fmt.Sprintf("f%d|notify: [b.service]", i))
	}
	s.declare(resources...)
	must(t, s.converge())
	ballast := filepath.Join(s.opts.StateDir, "..", "ballast")
	fill(t, ballast)
	for i := range files {
		s.edit(fmt.Sprint("f", i), "theirs")
	}
	s.files.done()
	err := s.converge()
	early := applied(s.files.done())
	if err == nil || early == files {
		t.Errorf("without room %d of %d files were changed: %v", early, files, err)
	}
	must(t, os.Remove(ballast))
	must(t, s.converge())
	calls := s.files.done()
	if n := applied(calls); n != files-early || calls[len(calls)-1] != "refresh /b.service" {
		t.Errorf("with room again %d files were changed after %d, and last came %s", n, early, calls[len(calls)-1])
	}
}

// applied counts the files that were written.
func applied(calls []string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, "apply /f") {
			n++
		}
	}
	return n
}

// fill writes a file until the file system is full.
func fill(t *testing.T, p string) {
	t.Helper()
	f, err := os.Create(p)
	must(t, err)
	for {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			break
		}
	}
	must(t, f.Close())
}
