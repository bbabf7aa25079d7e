package path

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatLeavingHostsCouldRead: the values that a host could read which was moved, or deleted, are listed until they are changed, also
// when the server is killed while it goes; the list says nothing secret, and nobody forges or loses it.
func TestWhatLeavingHostsCouldRead(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	const values = `apiVersion: v1
kind: Secret
metadata: {name: app, namespace: qa}
stringData: {token: %q, spare: unused}
`
	g.Apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: qa}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n---\n" + fmt.Sprintf(values, "first-value") + `---
apiVersion: tako.dev/v1alpha1
kind: NodeConfig
metadata: {name: token, namespace: qa}
spec:
  rollout: {maxUnavailable: "100%"}
  resources:
    - name: token
      file: {path: /etc/app.token, mode: "0600", contentFrom: {secret: {name: app, key: token}}}
`)
	moved, deleted := g.join("moved", "--environment", "qa"), g.join("deleted", "--environment", "qa")
	moved.Start() // both, because a rollout waits until all are heard
	deleted.Start()
	for _, s := range []*sandbox{moved, deleted} {
		s.Has("etc/app.token", "first-value")
		s.converges()
	}
	says := func(what string, look func() (string, bool)) { t.Helper(); moved.Until(what, look) }
	why := func() string { out, _ := g.Try("why", "secret/app", "-n", "qa"); return out }

	moved.Stop() // who is away counts too
	must(t, os.WriteFile(moved.Path("etc/app.token"), []byte("first-value, changed by hand"), 0o600))
	move := filepath.Join(g.Dir, "move.yaml")
	must(t, os.WriteFile(move, []byte("apiVersion: tako.dev/v1alpha1\nkind: Node\nmetadata: {name: moved}\nspec: {environment: prod}\n"), 0o600))
	g.Tako("apply", "--force-conflicts", "-f", move)
	says("it says who was moved", func() (string, bool) {
		out := why()
		return out, strings.Contains(out, "node/moved was moved from qa to prod") && strings.Contains(out, "the value of token\n")
	})
	// When it is back it loses the file too, and nothing of that is left: it has no key any more.
	moved.Start()
	moved.Until("the file of qa is gone", func() (string, bool) {
		_, err := os.Lstat(moved.Path("etc/app.token"))
		return fmt.Sprint(err), os.IsNotExist(err)
	})
	moved.converges()
	moved.Stop()
	swept(t, moved.Root, "first-value")
	deleted.Stop()
	g.Tako("delete", "node/deleted")
	g.Server.Kill()
	g.Server.Start(t)
	says("it says who was deleted", func() (string, bool) {
		out := why()
		return out, strings.Contains(out, "node/deleted was deleted") && strings.Contains(out, "node/moved was moved from qa to prod")
	})
	for _, args := range [][]string{{"status"}, {"describe", "secret/app", "-n", "qa"}, {"get", "events", "-n", "qa"}, {"get", "secrets", "-n", "qa", "-o", "wide"}} {
		out, _ := g.Try(args...) // its exit code says that something is wrong
		if !strings.Contains(strings.ToLower(out), "exposed") || strings.Contains(out, "first-value") {
			t.Errorf("tako %v:\n%s", args, out)
		}
	}
	if out, err := g.Try("status"); err == nil || !strings.Contains(out, "next: tako why secret/app -n qa") {
		t.Errorf("status: %v\n%s", err, out)
	}
	// Who applies the same once more, or forges the list, changes nothing.
	g.Apply(strings.Replace(fmt.Sprintf(values, "first-value"), "namespace: qa", `namespace: qa, annotations: {tako.dev/exposed: "[]"}`, 1))
	if out := why(); !strings.Contains(out, "node/deleted was deleted") {
		t.Errorf("after another list was applied:\n%s", out)
	}
	g.Apply(fmt.Sprintf(values, "second-value"))
	if out := why(); strings.Contains(out, "Exposed") {
		t.Errorf("the value is another one, and it says:\n%s", out)
	}
	if out, _ := g.Try("status"); strings.Contains(out, "xposed") {
		t.Errorf("the value is another one:\n%s", out)
	}
}
