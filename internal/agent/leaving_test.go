package agent

import (
	"os"
	"testing"

	"tako.dev/tako/internal/reason"
)

// TestFileGoesAfterItsOwner: whose a file was to be does not matter when it is to go, and nobody may know that name any more.
func TestFileGoesAfterItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s := grown(t)
	const spec = "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n    - name: srv\n      directory: {path: /srv}\n"
	declare := func(more string) {
		t.Helper()
		must(t, os.WriteFile(s.path("new"), []byte(spec+more), 0o600))
		must(t, os.Rename(s.path("new"), s.path("site.yaml")))
	}
	must(t, os.MkdirAll(s.path("etc/etc"), 0o755))
	must(t, os.MkdirAll(s.path("etc/srv"), 0o755))
	must(t, os.WriteFile(s.path("etc/etc/passwd"), []byte("root:x:0:0::/:/bin/sh\napp:x:1001:1001::/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/etc/group"), []byte("root:x:0:\napp:x:1001:\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/srv/before"), []byte("before"), 0o644))
	declare(`
    - {name: plain, file: {path: /srv/plain, content: text, owner: app}, onRemove: delete}
    - {name: list, file: {path: /srv/list, content: text, acl: ["u:app:r"]}, onRemove: delete}
    - {name: before, file: {path: /srv/before, content: text, group: app}, onRemove: restore}
    - {name: dir, directory: {path: /srv/dir, owner: app, recurse: {owner: app}}, onRemove: delete}
    - {name: link, symlink: {path: /srv/link, target: plain, owner: app}, onRemove: delete}
`)
	must(t, s.converge())
	must(t, os.WriteFile(s.path("etc/etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/etc/group"), []byte("root:x:0:\n"), 0o644))
	declare("")
	if err := s.converge(); err != nil {
		r, _, _ := StatusOf(t.Context(), s.opts.StateDir, false)
		for _, res := range r.Resources {
			t.Errorf("%s: %v %+v", res.Title, res.Outcome, res.Problem)
		}
		t.Fatalf("converge: %v, %v", err, reason.Of(err).Code)
	}
	entries, err := os.ReadDir(s.path("etc/srv"))
	must(t, err)
	s.holds("srv/before", "before")
	if len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}
