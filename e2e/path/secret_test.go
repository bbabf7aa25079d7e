package path

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretIsNowhereElse: a secret is in the file that it is declared for, and nowhere else on either side, whatever happens to it.
func TestSecretIsNowhereElse(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	values := []string{"correct-horse-battery-staple", "another-horse-another-staple"}
	declared := func(value string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: v1
kind: Secret
metadata: {name: app, namespace: prod}
stringData: {token: %q}
---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: token, namespace: prod}
spec:
  resources:
    - name: token
      file: {path: /etc/app.token, mode: "0600", contentFrom: {secret: {name: app, key: token}}}
`, value)
	}
	g.Apply(declared(values[0]))
	s := g.join("web-1", "--environment", "prod")
	s.Start()
	s.Has("etc/app.token", values[0])
	s.converges()
	s.Keeps("etc/app.token", values[0])
	g.Apply(declared(values[1])) // what was there before is kept nowhere
	s.Has("etc/app.token", values[1])
	s.Kill()
	// What cannot be written is told of, with evidence, and without the content.
	must(t, os.Remove(s.Path("etc/app.token")))
	must(t, os.Mkdir(s.Path("etc/app.token"), 0o755))
	must(t, os.WriteFile(s.Path("etc/app.token/in-the-way"), nil, 0o600))
	s.Start()
	s.Until("it fails", func() (string, bool) {
		n := s.Node()
		return fmt.Sprintf("%+v", n.Status.Promises), n.Status.Promises.Failed == 1
	})
	told := g.everything(s)
	must(t, os.RemoveAll(s.Path("etc/app.token")))
	s.Has("etc/app.token", values[1])
	s.converges()
	told = append(told, g.everything(s)...)
	g.Server.Kill()
	g.Server.Start(t)
	s.converges()

	for _, value := range values {
		for _, form := range []string{value, base64.StdEncoding.EncodeToString([]byte(value))} {
			for _, text := range told {
				if strings.Contains(text.said, form) {
					t.Errorf("%s shows it:\n%s", text.by, text.said)
				}
			}
			for _, dir := range []string{g.Server.Dir, s.State(), s.Log} {
				swept(t, dir, form)
			}
		}
	}
	// The sweep finds what is there: the file itself.
	if got := s.Read("etc/app.token"); got != values[1] {
		t.Errorf("the file has %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spoken is what somebody said.
type spoken struct{ by, said string }

// everything asks both sides for all that they tell about a host; the Secret itself is not asked for.
func (g *ground) everything(s *sandbox) []spoken {
	g.Helper()
	all := []spoken{{"the log of the server", g.Server.Run.Log.Tail()}, {"the metrics", g.Metrics()}}
	for _, args := range [][]string{
		{"status"}, {"why", "node/web-1"}, {"why", "file/token", "--node", "web-1"}, {"history", "node/web-1"}, {"history", "node/web-1", "-o", "json"}, {"logs", "node/web-1"},
		{"get", "nodes,assignments,clusternodeconfigs", "-o", "yaml"}, {"get", "nodeconfigs,revisions", "-A", "-o", "yaml"}, {"get", "events", "-A", "-o", "yaml"},
	} {
		out, _ := g.Try(args...) // its exit code says that something is wrong
		all = append(all, spoken{"tako " + strings.Join(args, " "), out})
	}
	for _, args := range [][]string{{"status", "--all"}, {"status", "--all", "--json"}, {"why", "file/token"}} {
		ctx, cancel := context.WithTimeout(g.Context(), inTime)
		out, _ := exec.CommandContext(ctx, filepath.Join(g.Bin, "tako-agent"), append(args, "--root", s.Root)...).CombinedOutput()
		cancel()
		all = append(all, spoken{"tako-agent " + strings.Join(args, " "), string(out)})
	}
	for _, pid := range []int{s.Agent.Process.Pid, g.Server.Run.Cmd.Process.Pid} {
		for _, name := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			must(g.T, err)
			all = append(all, spoken{fmt.Sprintf("/proc/%d/%s", pid, name), string(text)})
		}
	}
	for _, text := range all {
		if text.said == "" {
			g.Errorf("%s says nothing", text.by)
		}
	}
	return all
}

// swept looks for a text in all files of a directory.
func swept(t *testing.T, dir, text string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if os.IsNotExist(err) {
				return nil // it was replaced while we looked
			}
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			t.Errorf("%s has %q", path, text)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	must(t, err)
	if files == 0 {
		t.Errorf("%s has no files", dir)
	}
}
