package edit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/hosttest"
	"tako.dev/tako/internal/host/hosttest/kill"
)

func TestMain(m *testing.M) { kill.Main(m, openType) }

func openType(state string) (hosttest.TypeOf, io.Closer, error) {
	root, err := disk.OpenRoot("/")
	if err != nil {
		return nil, nil, err
	}
	store, err := content.Open(filepath.Join(state, "content"), content.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	typ := New(Options{Root: root, Content: store})
	return func(declare.Resource) host.Type { return typ }, root, nil
}

// threeEdits are edits of one file.
func threeEdits(p string) []declare.Resource {
	return []declare.Resource{
		{Name: "e0", Edit: &declare.Edit{Path: p, Create: true, Line: &declare.LineEdit{Text: "a=1", Match: "^a="}}},
		{Name: "e1", Edit: &declare.Edit{Path: p, Create: true, Block: &declare.BlockEdit{Content: "x\n"}}},
		{Name: "e2", Edit: &declare.Edit{Path: p, Create: true, Ini: &declare.IniEdit{Section: "s", Key: "k", Value: ptr("v")}}},
	}
}

// TestKilled kills the agent at every system call of an apply: the file is the old or the new one, the old content is kept before it goes,
// and the next apply leaves nothing behind.
func TestKilled(t *testing.T) {
	for name, old := range map[string]string{"change": "# c\na=0\n", "create": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			p, state := g.path("file"), t.TempDir()
			see := func(t testing.TB) []string { return []string{fmt.Sprintf("%+v", look(t, p))} }
			var before []string
			kills := kill.Everywhere(t, kill.Row{
				Open: openType, Resources: threeEdits(p), State: state, See: see, Dirs: []string{g.dir},
				Arrange: func(t testing.TB) {
					g.must(os.RemoveAll(g.dir))
					g.must(os.Mkdir(g.dir, 0o755))
					if old != "" {
						g.write("file", old, 0o640)
					}
					before = see(t)
				},
				Killed: func(t testing.TB, at string) {
					store, err := content.Open(filepath.Join(state, "content"), content.Options{})
					g.must(err)
					if old != "" && !slices.Equal(see(t), before) && !store.Has(content.DigestOf([]byte(old))) {
						t.Errorf("killed at %s: the old content is lost", at)
					}
				},
			})
			t.Logf("killed at %d system calls", kills)
			if kills < 10 {
				t.Error("killed at too few places")
			}
			list, err := os.ReadDir(g.dir)
			g.must(err)
			if len(list) != 1 {
				t.Errorf("left behind: %v", list)
			}
		})
	}
}

// TestCheckOnlyLooks: at no depth does a check write or run anything.
func TestCheckOnlyLooks(t *testing.T) {
	g := newGround(t)
	edits := threeEdits(g.path("file"))
	edits[0].Edit.Check = []string{"true", "{}"}
	looked := kill.LooksOnly(t, kill.Row{
		Open: openType, Resources: edits, Arrange: func(testing.TB) { g.write("file", "a=0\n", 0o640) },
		See: func(t testing.TB) []string { return []string{look(t, g.path("file")).text} },
	})
	if looked == 0 {
		t.Error("no system call at all")
	}
}
