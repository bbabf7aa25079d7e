package fragment_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	boots "tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/host/fragment"
)

// TestNothingToDo: the piece alone is never a difference, and what has left is gone with the file.
func TestNothingToDo(t *testing.T) {
	var typ fragment.Type
	ctx := t.Context()
	r, err := typ.Bind(ctx, host.Declared{Title: "fragment/x", Resource: declare.Resource{Fragment: &declare.Fragment{Path: "/etc/f"}}})
	if err != nil {
		t.Fatal(err)
	}
	if w := r.Watches(); len(w) != 1 || w[0].Name != "/etc/f" {
		t.Errorf("watches %v", w)
	}
	for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
		if p := typ.Check(ctx, []host.Resource{r}, depth)[0]; !p.Empty() || p.Recognised != (depth == host.Shallow) {
			t.Errorf("depth %d: %+v", depth, p)
		}
	}
	if err := typ.Remove(ctx, r, declare.OnRemoveDelete, nil); err != nil {
		t.Error(err)
	}
	if _, err := typ.Bind(ctx, host.Declared{}); err == nil {
		t.Error("something else is bound")
	}
}

// TestFileOfPieces has an agent make a file of pieces of two configs, and follow when pieces come, change and go.
func TestFileOfPieces(t *testing.T) {
	agent := boots.AgentBinary(t)
	declarations, root := t.TempDir(), t.TempDir()
	put := func(config, resources string) {
		t.Helper()
		text := "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: " + config + "}\nspec:\n  resources:\n" + resources
		if err := os.WriteFile(filepath.Join(declarations, config+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	converge := func(want string, flags ...string) {
		t.Helper()
		run := exec.CommandContext(t.Context(), agent, append([]string{"converge", "-f", declarations, "--root", root}, flags...)...)
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("converge: %v\n%s", err, out)
		}
		got, err := os.ReadFile(filepath.Join(root, "etc/app.conf"))
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q\n%s", got, err, want, out)
		}
	}
	const head = "    - name: etc\n      directory: {path: /etc}\n    - name: app.conf\n      file: {path: /etc/app.conf, mode: '0640', content: \"# head\", fragments: true}\n"
	one := "    - name: one\n      fragment: {path: /etc/app.conf, order: 10, content: one}\n"
	put("base", head+one)
	put("team", "    - name: two\n      expand: true\n      fragment: {path: /etc/app.conf, order: -1, content: \"two of $(node.labels['team'])\"}\n")
	converge("# head\ntwo of x\none\n", "--label", "team=x")
	converge("# head\ntwo of x\none\n", "--label", "team=x", "--diff") // exits with 1 where there is a difference
	converge("# head\ntwo of y\none\n", "--label", "team=y")
	put("team", "    - name: two\n      fragment: {path: /etc/app.conf, order: 20, content: \"two\\n\"}\n")
	converge("# head\none\ntwo\n")
	if err := os.WriteFile(filepath.Join(root, "etc/app.conf"), []byte("somebody was here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	converge("# head\none\ntwo\n")
	if err := os.Remove(filepath.Join(declarations, "team.yaml")); err != nil {
		t.Fatal(err)
	}
	converge("# head\none\n")
	put("team", "    - name: stray\n      fragment: {path: /etc/none.conf}\n")
	run := exec.CommandContext(t.Context(), agent, "converge", "-f", declarations, "--root", root)
	if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), "TK0547") {
		t.Errorf("a piece that no file takes: %v\n%s", err, out)
	}
	if err := os.Remove(filepath.Join(declarations, "team.yaml")); err != nil {
		t.Fatal(err)
	}
	t.Run("watched", func(t *testing.T) { watched(t, agent, declarations, root) })
}

// watched has an agent keep the file while others write it and change an attribute of it.
func watched(t *testing.T, agent, declarations, root string) {
	app := filepath.Join(root, "etc/app.conf")
	if err := unix.Setxattr(app, "user.probe", []byte("x"), 0); err != nil {
		t.Skipf("needs extended attributes in %s: %v", root, err)
	}
	text, err := os.ReadFile(filepath.Join(declarations, "base.yaml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(declarations, "base.yaml"), []byte(strings.Replace(string(text), "fragments: true", "fragments: true, xattrs: {user.note: ours}", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), agent, "converge", "-f", declarations, "--root", root, "--watch")
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	as := func() (string, bool) {
		note := make([]byte, 10)
		n, err := unix.Getxattr(app, "user.note", note)
		b, errRead := os.ReadFile(app)
		now := fmt.Sprintf("%q, %q, %v, %v", b, note[:max(n, 0)], err, errRead)
		return now, string(b) == "# head\none\n" && string(note[:max(n, 0)]) == "ours"
	}
	boots.Eventually(t, time.Minute, "the attribute is set", as)
	for what, drift := range map[string]func() error{
		"another attribute": func() error { return unix.Setxattr(app, "user.note", []byte("theirs"), 0) },
		"no attribute":      func() error { return unix.Removexattr(app, "user.note") },
		"another content":   func() error { return os.WriteFile(app, []byte("somebody was here\n"), 0o600) },
		"no file":           func() error { return os.Remove(app) },
	} {
		if err := drift(); err != nil {
			t.Fatal(err)
		}
		boots.Eventually(t, time.Minute, what+" is undone", as)
	}
	if err := run.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = run.Wait() // it says that it was interrupted
}
