package agent

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/file"
	"tako.dev/tako/internal/reason"
)

// grown is a site with real files below its directory etc, where tree is purged.
func grown(t *testing.T) *site {
	s := newSite(t)
	root, err := disk.OpenRoot(s.path("etc"))
	must(t, err)
	t.Cleanup(func() { root.Close() })
	store, err := content.Open(s.path("content"), content.Options{})
	must(t, err)
	trees := file.NewTrees(file.New(file.Options{Root: root, Content: store}))
	s.opts.Root = root
	s.opts.Types = map[declare.ResourceType]host.Type{declare.TypeFile: trees, declare.TypeDirectory: trees, declare.TypeSymlink: trees, declare.TypeService: s.files}
	return s
}

// site writes the declaration: the tree, and what is in it.
func (s *site) plant(directory string, files ...string) {
	s.t.Helper()
	text := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n    - name: tree\n      directory: {path: /srv/tree, " + directory + "}\n" +
		"    - name: srv\n      directory: {path: /srv}\n"
	for i, f := range files {
		text += fmt.Sprintf("    - name: f%d\n      file: {path: /srv/tree/%s, content: text}\n", i, f)
	}
	must(s.t, os.WriteFile(s.path("new"), []byte(text), 0o600))
	must(s.t, os.Rename(s.path("new"), s.path("site.yaml")))
}

// tree lists what is in the tree.
func (s *site) tree() []string {
	s.t.Helper()
	names := []string{}
	var list func(dir string)
	list = func(dir string) {
		entries, err := os.ReadDir(s.path("etc/srv/tree/" + dir))
		if err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, dir+e.Name())
			if e.IsDir() {
				list(dir + e.Name() + "/")
			}
		}
	}
	list("")
	slices.Sort(names)
	return names
}

func (s *site) put(names ...string) {
	s.t.Helper()
	for _, n := range names {
		var err error
		if strings.HasSuffix(n, "/") {
			err = os.MkdirAll(s.path("etc/srv/tree/"+n), 0o755)
		} else {
			err = os.WriteFile(s.path("etc/srv/tree/"+n), []byte("by hand: "+n), 0o644)
		}
		if err != nil && !os.IsNotExist(err) { // its directory may be gone already
			s.t.Fatal(err)
		}
	}
}

// TestAgentCase31_PurgeThroughTheAgent: what others declare stays, what appears goes by event, also in directories that have just come, and what is
// not declared any more goes, too.
func TestAgentCase31_PurgeThroughTheAgent(t *testing.T) {
	c := casetest.Start(t)
	s := grown(t)
	must(t, os.MkdirAll(s.path("etc/srv/tree/old/deep"), 0o755))
	s.put("old/x", "old/deep/y", "kept.bak")
	s.plant(`purge: true, ignore: ["*.bak"], recurse: {fileMode: "0640"}`, "a", "sub/b")
	must(t, os.MkdirAll(s.path("etc/srv/tree/sub"), 0o755))
	planned, _, err := Preview(t.Context(), s.opts)
	c.NoError(err, "preview")
	said := ""
	for _, p := range planned {
		for _, ch := range p.Changes {
			if ch.Field == "purge" {
				said = ch.From + " " + ch.To
			}
		}
	}
	c.Equal(said, "4 entries removed: old/deep/y, old/deep, old/x, old", "the preview")
	c.NoError(s.converge(), "converge")
	c.Equal(s.tree(), []string{"a", "kept.bak", "sub", "sub/b"}, "after one run")
	s.watch()
	is := func(what string, names ...string) {
		t.Helper()
		c.Eventually(time.Minute, what, func() (string, bool) {
			got := s.tree()
			if slices.Equal(got, names) {
				return "", true
			}
			r, _, err := local.StatusOf(t.Context(), s.opts.StateDir, true)
			text := fmt.Sprint(got, err)
			if err != nil {
				return text, false
			}
			for _, res := range r.Resources {
				text += fmt.Sprintf("\n%s %s %+v", res.Title, res.Outcome, res.Problem)
			}
			return text, false
		})
	}
	s.put("new")
	is("a new file", "a", "kept.bak", "sub", "sub/b")
	s.put("sub/c/d/", "sub/c/d/e", "sub/c/f")
	is("new directories", "a", "kept.bak", "sub", "sub/b")
	s.put("sub/g")
	is("a file in a directory that was there", "a", "kept.bak", "sub", "sub/b")
	must(t, os.Chmod(s.path("etc/srv/tree/sub/b"), 0o600))
	must(t, os.MkdirAll(s.path("etc/elsewhere/moved/in"), 0o755))
	must(t, os.Rename(s.path("etc/elsewhere/moved"), s.path("etc/srv/tree/moved")))
	is("a directory that is moved in", "a", "kept.bak", "sub", "sub/b")
	s.plant(`purge: true, ignore: ["*.bak"]`, "a")
	is("what is not declared any more", "a", "kept.bak")
	s.plant(`purge: true, ignore: ["*.bak"]`, "a", "z")
	is("what is declared anew", "a", "kept.bak", "z")
	must(t, local.SetHold(t.Context(), s.opts.StateDir, Hold{Claim: "path:/srv/tree/held", Reason: "test", Owner: "test", Until: time.Now().Add(time.Hour)}))
	s.put("held", "free")
	is("what is held", "a", "held", "kept.bak", "z")
	_, err = local.EndHolds(t.Context(), s.opts.StateDir, "", "path:/srv/tree/held")
	c.NoError(err, "end the hold")
	is("what is not held any more", "a", "kept.bak", "z")
	var r *Report
	c.Eventually(time.Minute, "quiet", func() (string, bool) {
		r, _, err = local.StatusOf(t.Context(), s.opts.StateDir, true)
		return fmt.Sprintf("%+v, %v", r, err), err == nil && r.Settled && r.Converged
	})
	c.Equal(r.Totals.Missed, uint64(0), "missed")
}

// TestTreeOverLimit: the agent says what it will not remove, and goes on when it may.
func TestTreeOverLimit(t *testing.T) {
	s := grown(t)
	must(t, os.MkdirAll(s.path("etc/srv/tree"), 0o755))
	s.put("x", "y")
	s.plant("purge: true, limit: 1", "a")
	s.watch()
	s.until("it refuses", func(r *Report) bool {
		return slices.ContainsFunc(r.Resources, func(res Resource) bool {
			return res.Title == "directory/tree" && res.Problem != nil && res.Problem.Code == reason.PurgeOverLimit
		}) && slices.Equal(s.tree(), []string{"a", "x", "y"})
	})
	s.plant("purge: true, limit: 2", "a")
	s.until("it may", func(r *Report) bool { return r.Converged && r.Settled && slices.Equal(s.tree(), []string{"a"}) })
}
