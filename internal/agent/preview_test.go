package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

func TestPreviewWritesNothingAndSaysWhatARunDoes(t *testing.T) {
	s := newSite(t)
	s.declare("gone|onRemove: delete", "a")
	must(t, s.converge())
	s.declare("a", "b|notify: [c.service]", "c.service", "off|when: node.labels['role'] == 'db'")
	s.edit("a", "theirs")
	s.files.done()
	before := snapshot(t, s.dir)
	planned, _, err := Preview(t.Context(), s.opts)
	must(t, err)
	if after := snapshot(t, s.dir); after != before {
		t.Errorf("a preview changed something:\n%s\nbefore:\n%s", after, before)
	}
	got := map[string]string{}
	for _, p := range planned {
		var lines []string
		for _, c := range p.Changes {
			lines = append(lines, Describe(c))
		}
		got[p.Title] = strings.Join(append(lines, p.When), ";")
	}
	for title, want := range map[string]string{
		"file/a": "content theirs -> text of a;", "file/b": "content text of b;", "service/c.service": "content running;notified by file/b;",
		"file/off": ";node.labels['role'] == 'db'", "file/gone": "deleted, because it is not declared any more;",
	} {
		if strings.TrimPrefix(got[title], ";") != strings.TrimPrefix(want, ";") {
			t.Errorf("%s: planned %q, want %q", title, got[title], want)
		}
	}
	must(t, s.converge())
	if calls := s.files.done(); len(calls) != 5 {
		t.Errorf("the run did %v", calls)
	}
}

// TestPreviewTellsWhatIsBlocked: what requires something that would fail is a difference, and is not made.
func TestPreviewTellsWhatIsBlocked(t *testing.T) {
	s := newSite(t)
	s.declare("bad", "needs|require: [bad]", "far|require: [needs]", "free")
	s.files.fail("check /bad", &reason.Error{Code: reason.DiskFull, Doing: "look at /bad"})
	planned, _, err := Preview(t.Context(), s.opts)
	must(t, err)
	got := map[string]string{}
	for _, p := range planned {
		got[p.Title] = p.Waits
	}
	for title, want := range map[string]string{
		"file/bad": "", "file/needs": "it requires file/bad, which would not be as declared", "file/far": "it requires file/needs, which waits", "file/free": "",
	} {
		if got[title] != want {
			t.Errorf("%s waits for %q, want %q", title, got[title], want)
		}
	}
}

// snapshot is everything below a directory as text.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var b []byte
		if d.Type().IsRegular() {
			b, err = os.ReadFile(p)
		}
		lines = append(lines, fmt.Sprintf("%s %v %x", p, info.Mode(), b))
		return err
	}))
	return strings.Join(lines, "\n")
}
