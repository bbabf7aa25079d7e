package agent

import (
	"context"
	"os"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// write replaces the declaration by one of resources.
func (s *site) write(resources string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.path("new"), []byte("apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: web\nspec:\n  resources:\n"+resources), 0o600))
	must(s.t, os.Rename(s.path("new"), s.path("site.yaml")))
}

// TestFileGoesAfterItsOwner: whose a file was to be does not matter when it is to go, and nobody may know that name any more.
func TestFileGoesAfterItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	s := grown(t)
	must(t, os.MkdirAll(s.path("etc/etc"), 0o755))
	must(t, os.MkdirAll(s.path("etc/srv"), 0o755))
	must(t, os.WriteFile(s.path("etc/etc/passwd"), []byte("root:x:0:0::/:/bin/sh\napp:x:1001:1001::/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/etc/group"), []byte("root:x:0:\napp:x:1001:\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/srv/before"), []byte("before"), 0o644))
	const srv = "    - {name: srv, directory: {path: /srv}}\n"
	s.write(srv + `    - {name: plain, file: {path: /srv/plain, content: text, owner: app}, onRemove: delete}
    - {name: list, file: {path: /srv/list, content: text, acl: ["u:app:r"]}, onRemove: delete}
    - {name: before, file: {path: /srv/before, content: text, group: app}, onRemove: restore}
    - {name: dir, directory: {path: /srv/dir, owner: app, recurse: {owner: app}}, onRemove: delete}
    - {name: link, symlink: {path: /srv/link, target: plain, owner: app}, onRemove: delete}
`)
	must(t, s.converge())
	must(t, os.WriteFile(s.path("etc/etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(s.path("etc/etc/group"), []byte("root:x:0:\n"), 0o644))
	s.write(srv)
	if err := s.converge(); err != nil {
		r, _, _ := local.StatusOf(t.Context(), s.opts.StateDir, false)
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

// impossible is a type of which a sandbox has nothing.
type impossible struct{ host.Type }

func (impossible) Bind(context.Context, host.Declared) (host.Resource, error) {
	return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: "bind"}
}

// TestWhatCouldNeverBeMadeGoes: in a sandbox nothing is left of what is not possible in one.
func TestWhatCouldNeverBeMadeGoes(t *testing.T) {
	s := newSite(t)
	s.opts.Types = map[declare.ResourceType]host.Type{declare.TypeFile: s.files, declare.TypeSysctl: impossible{s.files}}
	s.write("    - {name: kernel.panic, sysctl: {value: '10'}, onRemove: delete}\n")
	if err := s.converge(); err == nil {
		t.Fatal("a parameter of the kernel was set in a sandbox")
	}
	s.write("    - {name: motd, file: {path: /motd, content: text}}\n")
	must(t, s.converge())
}
