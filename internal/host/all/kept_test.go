package all

import (
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/host/hosttest"
)

const keptKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f someone"

// TestOldContentKept: whatever type replaces a file, what was there is found under its path, with its mode, so that
// `tako-agent restore PATH` puts it back.
func TestOldContentKept(t *testing.T) {
	for _, c := range []struct {
		path     string
		old      string
		mode     os.FileMode
		resource declare.Resource
	}{
		{"/etc/hosts", "192.0.2.1 one\n", 0o644, declare.Resource{Name: "db", HostEntry: &declare.HostEntry{Address: "192.0.2.9"}}},
		{"/etc/locale.conf", "LANG=POSIX\n", 0o640, declare.Resource{Locale: &declare.Locale{Lang: "C"}}},
		{"/etc/apt/sources.list.d/lab.sources", "# by hand\n", 0o640, declare.Resource{Name: "lab", Repository: &declare.Repository{
			Apt: &declare.AptRepository{Uris: []string{"http://example.com/debian"}, Suites: []string{"stable"}, Components: []string{"main"}}}}},
		{"/root/.ssh/authorized_keys", "# by hand\n", 0o600, declare.Resource{Name: "root", AuthorizedKeys: &declare.AuthorizedKeys{User: "root", Keys: []string{keptKey}}}},
	} {
		t.Run(string(c.resource.Type()), func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Root: dir, StateDir: filepath.Join(dir, "var/lib/tako")}
			put(t, dir, "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644)
			put(t, dir, "/etc/group", "root:x:0:\n", 0o644)
			put(t, dir, c.path, c.old, c.mode)
			if err := os.MkdirAll(filepath.Dir(o.StateDir), 0o755); err != nil {
				t.Fatal(err)
			}
			h, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			g := &hosttest.Ground{TB: t, Of: hosttest.Among(h.Types)}
			if res := g.Made(c.resource); !res.Changed {
				t.Fatal("nothing was changed")
			}
			r, err := OpenRestorer(o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if claim := c.resource.Claim(); !claim.Writes(c.path, func(string) string { return "/root" }) || claim.Writes(c.path+"x", func(string) string { return "/root" }) {
				t.Errorf("it is not known that %s writes %s alone", claim, c.path)
			}
			versions, err := r.Versions(c.path)
			if err != nil || len(versions) != 1 {
				t.Fatalf("%v, %+v", err, versions)
			}
			if v := versions[0]; v.Digest != content.DigestOf([]byte(c.old)) || v.Mode != uint32(c.mode) {
				t.Errorf("kept: %+v", v)
			}
			if _, err := r.Restore(t.Context(), c.path, versions[0], false); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, c.path)); err != nil || string(b) != c.old {
				t.Errorf("restored: %q, %v", b, err)
			}
		})
	}
}

func put(t *testing.T, root, p, body string, mode os.FileMode) {
	t.Helper()
	p = filepath.Join(root, p)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(body), mode); err != nil {
		t.Fatal(err)
	}
}
