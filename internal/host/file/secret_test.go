package file_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest/kill"
	"tako.dev/tako/internal/reason"
)

// secret is what no test may find anywhere but in the file itself.
const secret = "correct horse battery staple"

// fromSecret is a file whose content is a secret, opened.
func (g *ground) fromSecret(name, content string, more declare.File) declare.File {
	more.Path, more.Content = g.path(name), content
	more.ContentFrom = &declare.ContentSource{Secret: &declare.KeySelector{Name: "db", Key: "password"}}
	return more
}

// leaks looks for a text in every file below directories, and in what is printed of values.
func leaks(t testing.TB, text string, dirs []string, told ...any) {
	t.Helper()
	for _, dir := range dirs {
		if kept(t, dir, text) {
			t.Errorf("the secret is below %s", dir)
		}
	}
	for _, v := range told {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprintf("%+v", v), text) || bytes.Contains(b, []byte(text)) {
			t.Errorf("the secret is told: %+v", v)
		}
	}
}

// shown is what anybody is told of a plan.
func shown(p host.Plan) any {
	var texts []string
	for _, c := range p.Changes {
		if c.Text != nil {
			texts = append(texts, string(c.Text.From), string(c.Text.To))
		}
	}
	return []any{fmt.Sprintf("%+v", p.Changes), texts, p.Unknown, p.Err}
}

func TestSecretIsNowhereButInItsFile(t *testing.T) {
	g := newGround(t)
	told := []any{}
	for _, step := range []struct{ name, was, mode, content string }{
		{"new", "", "0644", secret},
		{"over something else", "old", "0600", secret},
		{"a new value over it", secret, "0640", "another one"},
	} {
		t.Run(step.name, func(t *testing.T) {
			g := *g
			g.TB = t
			g.clear("key")
			if step.was != "" {
				g.write("key", step.was, 0o644)
			}
			r := g.bindFile(g.fromSecret("key", step.content, declare.File{Mode: declare.Mode(step.mode)}))
			plan := g.check(r, host.Explain)
			if plan.Empty() || plan.Err != nil {
				t.Fatalf("%+v", plan)
			}
			res := g.made(r)
			told = append(told, shown(plan), res)
			if got := g.look("key"); got.content != step.content || got.mode != step.mode {
				t.Errorf("made %+v", got)
			}
			if kept := strings.Contains(res.Note, "not kept"); kept != (step.was != "") {
				t.Errorf("note %q", res.Note)
			}
			if again := g.check(r, host.Deep); !again.Empty() {
				t.Errorf("not settled: %+v", again.Changes)
			}
		})
	}
	leaks(t, secret, []string{g.olds, g.dir}, told...)
}

// A secret leaves nothing behind either: not when it is removed, nor when a plain content, a link or a directory takes its place.
func TestSecretIsNotKeptWhenItGoes(t *testing.T) {
	for name, leave := range map[string]func(g *ground, r host.Resource) error{
		"deleted": func(g *ground, r host.Resource) error { return g.Remove(g.Context(), r, declare.OnRemoveDelete, nil) },
		"deleted, by an agent that cannot open it any more": func(g *ground, _ host.Resource) error {
			return g.Remove(g.Context(), g.bindFile(g.fromSecret("key", "", declare.File{})), declare.OnRemoveDelete, nil)
		},
		"plain content": func(g *ground, _ host.Resource) error {
			r := g.bindFile(declare.File{Path: g.path("key"), Content: "plain"})
			leaks(g, secret, nil, shown(g.check(r, host.Explain)))
			return g.converge(r).Err
		},
		"symlink": func(g *ground, _ host.Resource) error {
			return g.converge(g.bindSymlink(declare.Symlink{Path: g.path("key"), Target: "x", Force: true})).Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			r := g.bindFile(g.fromSecret("key", secret, declare.File{Mode: "0644"}))
			g.made(r)
			if err := leave(g, r); err != nil {
				t.Fatal(err)
			}
			leaks(t, secret, []string{g.olds, g.dir})
		})
	}
}

// What takes the place of a secret is no secret: what people do to it is kept again.
func TestAfterASecretOldContentIsKept(t *testing.T) {
	g := newGround(t)
	g.made(g.bindFile(g.fromSecret("conf", secret, declare.File{})))
	g.made(g.bindFile(declare.File{Path: g.path("conf"), Content: "plain"}))
	g.write("conf", "by hand", 0o644)
	if res := g.made(g.bindFile(declare.File{Path: g.path("conf"), Content: "plain"})); !strings.Contains(res.Note, "old content kept as") {
		t.Errorf("note %q", res.Note)
	}
	leaks(t, secret, []string{g.olds, g.dir}, "")
}

// A check command may print what it is given.
func TestSecretInACheckCommand(t *testing.T) {
	g := newGround(t)
	for _, script := range []string{`cat "$0"; cat "$0" >&2; exit 1`, `cat "$0"; kill -SEGV $$`} {
		res := g.converge(g.bindFile(g.fromSecret("key", secret, declare.File{Mode: "0644", Check: []string{"sh", "-c", script, "{}"}})))
		e := reason.Of(res.Err)
		if e == nil {
			t.Fatal("the check command accepted")
		}
		leaks(t, secret, []string{g.olds, g.dir}, res, e.Error(), e.Evidence, e.Hint)
	}
}

// A temporary that a killed run leaves of a secret goes; one of a neighbour whose name begins like it is kept, as always.
func TestSweepKeepsNoSecret(t *testing.T) {
	g := newGround(t)
	long := strings.Repeat("k", 250)
	for _, name := range []string{"key", long} {
		g.bindFile(g.fromSecret(name, secret, declare.File{}))
		g.write(disk.TempName(name), secret, 0o600)
	}
	g.write(disk.TempName("k"), "of somebody else", 0o600)
	g.must(g.Sweep(t.Context(), []string{g.dir}))
	if left := g.entries(); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	leaks(t, secret, []string{g.olds}, "")
	if !kept(t, g.olds, "of somebody else") {
		t.Error("the old content of another file was not kept")
	}
}

// kept reports whether a file below a directory holds a text.
func kept(t testing.TB, dir, text string) bool {
	t.Helper()
	found := false
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		found = found || bytes.Contains(b, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A secret is for its owner alone, unless a mode says otherwise.
func TestSecretModeDefault(t *testing.T) {
	g := newGround(t)
	g.made(g.bindFile(g.fromSecret("key", secret, declare.File{})))
	if got := g.look("key"); got.mode != "0600" {
		t.Errorf("mode %s", got.mode)
	}
}

// Killed wherever it may be, an agent that puts a new value in the place of another leaves no copy of either behind: the next one
// sweeps, as always when its resources are bound.
func TestSecretKilledAtAnySystemCall(t *testing.T) {
	g := newGround(t)
	before := "the value before"
	r := declare.Resource{File: new(g.fromSecret("key", secret, declare.File{}))}
	left := 0
	row := g.row(r, "key", func() { g.write("key", before, 0o600) })
	row.Killed = func(t testing.TB, at string) {
		left += len(g.entries()) - 1
		next := newGround(t)
		next.bind(r)
		next.must(next.Sweep(t.Context(), []string{g.dir}))
		if len(g.entries()) != 1 {
			t.Errorf("killed at %s: there is %q", at, g.entries())
		}
		for _, text := range []string{before, secret} {
			leaks(t, text, []string{storeOf(row.State), next.olds})
		}
	}
	if kills := kill.Everywhere(t, row); kills < 4 || left == 0 {
		t.Errorf("killed at %d places, %d temporaries seen", kills, left)
	}
}
