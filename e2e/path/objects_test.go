package path

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// put stores a file on the server, and returns how a declaration names it.
func (g *ground) put(name string, data []byte) string {
	g.Helper()
	p := filepath.Join(g.TempDir(), name)
	must(g.T, os.WriteFile(p, data, 0o600))
	out := g.Tako("content", "put", p)
	_, reference, found := strings.Cut(out, "object: ")
	if !found || !strings.Contains(out, objectDigest(data)) {
		g.Fatalf("put %s: %s", name, out)
	}
	return strings.TrimSpace(reference)
}

// TestObjects: what was put on the server is on the hosts that a declaration names it for, byte for byte; and drift is repaired without a server.
func TestObjects(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	large := bytes.Repeat([]byte("0123456789abcde\n"), 300_000) // more than two pieces
	tree := t.TempDir()
	must(t, os.MkdirAll(tree+"/app/bin", 0o755))
	must(t, os.WriteFile(tree+"/app/bin/run", []byte("#!/bin/sh\n"), 0o755))
	packed, err := exec.CommandContext(t.Context(), "tar", "-C", tree, "-czf", "-", "app").Output()
	must(t, err)
	declared := func(file, archive string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: app, namespace: prod}
spec:
  resources:
    - name: large
      file: {path: /srv/large, contentFrom: {object: %s}}
    - name: app
      archive: {path: /srv/app, strip: 1, from: {object: %s}}
`, file, archive)
	}
	// Before it is there, the host waits, and says so.
	missing := fmt.Sprintf(`{digest: %q, sizeBytes: %d}`, objectDigest(large), len(large))
	archive := g.put("app.tar.gz", packed)
	g.Apply(declared(missing, archive))
	s := g.join("web-1", "--environment", "prod")
	must(t, os.MkdirAll(s.Path("srv"), 0o755))
	s.Start()
	s.Has("srv/app/bin/run", "#!/bin/sh\n")
	s.Until("it says what is missing", func() (string, bool) {
		n := s.Node()
		return fmt.Sprintf("%+v", n.Status), strings.Contains(fmt.Sprintf("%+v", n.Status), "TK066")
	})
	if got := g.put("large", large); !strings.Contains(got, objectDigest(large)) {
		t.Fatal(got)
	}
	s.Has("srv/large", string(large))
	s.converges()
	if again := g.put("large", large); !strings.Contains(again, "sizeBytes: 4800000") {
		t.Errorf("put again: %s", again)
	}

	g.Server.Kill()
	must(t, os.WriteFile(s.Path("srv/large"), []byte("drift"), 0o644))
	s.Has("srv/large", string(large))
	must(t, os.Rename(s.Path("srv/app"), filepath.Join(g.Dir, "app.gone"))) // at once: what is removed piece by piece comes back meanwhile
	s.Has("srv/app/bin/run", "#!/bin/sh\n")
	g.Server.Start(t)
	s.converges()
}

func objectDigest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }
