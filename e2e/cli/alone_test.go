//go:build e2e

package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// bothWays are the examples that a directory can have. Each is applied as it is.
var bothWays = []string{"hello", "edit", "identity"}

// TestBothModes: the same files make the same host with a server and without one; and what the host knows of it is told alike on the
// host and from afar.
func TestBothModes(t *testing.T) {
	s := newSandbox(t)
	for _, name := range bothWays[1:] {
		path, err := filepath.Abs("../../examples/" + name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(s.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	one, alone := filepath.Join(s.up, "host"), filepath.Join(s.dir, "alone")
	for _, root := range []string{one, alone} {
		s.ground(t, root)
	}
	s.startUp(t, "-f", "hello")
	for _, name := range bothWays {
		s.must(t, "tako apply -f "+name)
	}
	s.must(t, "tako wait node/one --for=converged")
	files := "-f " + strings.Join(bothWays, " -f ")
	s.must(t, "tako-agent converge "+files+" --root alone")
	s.must(t, "tako-agent converge "+files+" --root alone --diff")

	joined, by := tree(t, one), tree(t, alone)
	if joined != by {
		t.Errorf("with a server there is\n%s\nand without\n%s", joined, by)
	}
	if n := strings.Count(by, "\n"); n < 15 {
		t.Fatalf("both have only %d files:\n%s", n, by)
	}

	s.sameGraph(t, one)
	s.sameHistory(t, one)
	if out := s.must(t, "tako get node/one -o json; tako get node/one -o wide; tako why node/one"); !strings.Contains(out, `"anonymousMemory"`) || !strings.Contains(out, "TAKES") ||
		!strings.Contains(out, "agent takes ") {
		t.Errorf("what the agent takes is not told:\n%s", out)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if out := s.must(t, "tako get node/one -o wide"); err != nil || !strings.Contains(out, "VIRTUALIZATION") || !strings.Contains(out, strings.TrimSpace(string(kernel))) {
		t.Errorf("what the host is, is not told: %v\n%s", err, out)
	}
}

// ground lays what the examples take for granted.
func (s *sandbox) ground(t *testing.T, root string) {
	t.Helper()
	s.must(t, "mkdir -p "+root+"/etc")
}

// tree is all that a host has, but for what the agent has for itself.
func tree(t *testing.T, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if name == "/var/lib/tako" || name == "/run" {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil || name == "" || name == "/var" || name == "/var/lib" {
			return err
		}
		of := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%s %v %d:%d", name, info.Mode(), of.Uid, of.Gid)
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			lines := strings.Split(string(text), "\n")
			if name == "/etc/hosts" { // two of the examples add to it, and nobody says which comes first
				slices.Sort(lines)
			}
			line += fmt.Sprintf(" %q", lines)
		case info.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sameGraph asks for the order of the resources on the host and from afar.
func (s *sandbox) sameGraph(t *testing.T, root string) {
	t.Helper()
	for _, what := range []string{"", "file/greet", "/opt/greeter"} {
		for _, form := range []string{"", "-o json", "-o dot"} {
			afar := s.must(t, "tako why node/one --graph "+what+" "+form)
			near := s.must(t, "tako-agent why --graph "+what+" "+form+" --root "+root)
			if afar != near || !strings.Contains(afar, "parent directory") || !strings.Contains(afar, "file/greet") {
				t.Errorf("the graph of %q %s is\n%s\nand on the host\n%s", what, form, afar, near)
			}
		}
	}
	for script, says := range map[string]string{
		"tako why node/one --graph file/nowhere": "TK", "tako why node/one --graph -o yaml": "text, json or dot", "tako why node/one file/greet": "--graph",
		"tako-agent why --graph file/nowhere --root " + root: "TK", "tako-agent why --graph -o yaml --root " + root: "json or dot",
	} {
		if out, errs, code := s.run(t, script); code == 0 || !strings.Contains(out+errs, says) {
			t.Errorf("%s: exit %d: %s%s", script, code, out, errs)
		}
	}
}

// sameHistory asks for what happened on the host and from afar, page by page.
func (s *sandbox) sameHistory(t *testing.T, root string) {
	t.Helper()
	type happening struct {
		Title, Outcome, Cause string
		At                    string
		Took                  int64 `json:"tookMicroseconds"`
	}
	var near []happening
	if err := json.Unmarshal([]byte(s.must(t, "tako-agent history -n 0 -o json --root "+root)), &near); err != nil {
		t.Fatal(err)
	}
	var afar []happening
	decoder := json.NewDecoder(strings.NewReader(s.must(t, "tako history node/one --lines 1000 -o json")))
	for decoder.More() {
		var h happening
		if err := decoder.Decode(&h); err != nil {
			t.Fatal(err)
		}
		afar = append(afar, h)
	}
	if !slices.Equal(near, afar) || len(near) < 10 {
		t.Errorf("on the host it is\n%+v\nand from afar\n%+v", near, afar)
	}
	for _, h := range near {
		if h.Took == 0 || h.Cause == "" {
			t.Errorf("%s %s took no time, or had no cause", h.Title, h.Outcome)
		}
	}
	out, errs, _ := s.run(t, "tako history node/one --lines 2")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "cause: ") || !strings.Contains(errs, "there may be more: tako history node/one --until ") {
		t.Errorf("a page is\n%s%s", out, errs)
	}
	if out := s.must(t, "tako history node/one --until 2001-01-01T00:00:00Z; tako-agent history --until 2001-01-01T00:00:00Z --root "+root); out != "" {
		t.Errorf("long ago was %s", out)
	}
}
