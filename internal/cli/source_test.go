package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/cli/sources"
	"tako.dev/tako/internal/reason"
)

// checkout is a repository that the server of these tests reads, with its files.
type checkout struct {
	*console
	t   *testing.T
	dir string
}

func newCheckout(t *testing.T, name string) *checkout {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	dir, err := os.MkdirTemp(repositories, name+"-")
	if err != nil {
		t.Fatal(err)
	}
	c := &checkout{console: newConsole(t), t: t, dir: dir}
	c.git("init", "-q", "-b", "main")
	return c
}

func (c *checkout) git(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", append([]string{"-C", c.dir, "-c", "user.name=Ann", "-c", "user.email=ann@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c *checkout) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// commit commits all files, and returns the commit.
func (c *checkout) commit(subject string) string {
	c.t.Helper()
	c.git("add", "--all")
	c.git("commit", "-qm", subject)
	return c.git("rev-parse", "HEAD")
}

// says runs a command that ends with an exit code and says all words, on either output. It returns what it wrote as its data.
func (c *checkout) says(exit reason.Exit, command string, words ...string) string {
	c.t.Helper()
	out, errs, code := c.run(c.t.Context(), strings.NewReader(""), wordsOf(command)...)
	if code != exit {
		c.t.Fatalf("tako %s: exit %d, want %d:\n%s%s", command, code, exit, out, errs)
	}
	for _, w := range words {
		if !strings.Contains(out+errs, w) {
			c.t.Errorf("tako %s: %q is not in\n%s%s", command, w, out, errs)
		}
	}
	return out
}

// declare applies text.
func (c *checkout) declare(text string) {
	c.t.Helper()
	if out, errs, code := c.run(c.t.Context(), strings.NewReader(text), "apply", "-f", "-"); code != reason.ExitOK {
		c.t.Fatalf("exit %d: %s%s", code, out, errs)
	}
}

// sourceText is a namespace with a source that may do all in it.
func (c *checkout) sourceText(namespace string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:source:%[1]s:fleet"}]
---
apiVersion: tako.dev/v1alpha1
kind: Source
metadata: {name: fleet, namespace: %[1]s}
spec: {url: "file://%[2]s", interval: 1h}
`, namespace, c.dir)
}

const settingsText = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: %s}\n"

// TestSource: from the first commit to a mistake and its mending, as a person at the command line sees it.
func TestSource(t *testing.T) {
	c := newCheckout(t, "fleet")
	c.write("a.yaml", fmt.Sprintf(settingsText, "red"))
	c.write("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n")
	first := c.commit("settings and a key")
	c.declare(c.sourceText("gitops"))
	c.says(reason.ExitOK, "source reconcile fleet -n gitops --wait", "main@"+first[:8], "2 objects")
	c.says(reason.ExitOK, "wait source/fleet -n gitops --for=converged", "reached")
	c.says(reason.ExitOK, "source get fleet -n gitops", "APPLIED", "CHANGED", "main@"+first[:8], "True")
	c.says(reason.ExitOK, "source get -A", "NAMESPACE", "gitops")
	c.says(reason.ExitOK, "why source/fleet -n gitops", "everything is as declared", first[:8])
	c.says(reason.ExitOK, "source diff fleet -n gitops", "would change nothing", "settings and a key")
	c.says(reason.ExitOK, "source diff fleet -n gitops --as-source --path "+c.dir)

	// Who trace asks about.
	c.says(reason.ExitOK, "trace cm/settings -n gitops", "source/fleet -n gitops", first, "settings and a key", "Ann <ann@example.com>", "a.yaml:1", "tako-source applied")
	var traced sources.Trace
	if err := json.Unmarshal([]byte(c.says(reason.ExitOK, "trace cm/settings -n gitops -o json")), &traced); err != nil || traced.Commit != first || traced.File != "a.yaml" {
		t.Errorf("%+v, %v", traced, err)
	}
	c.declare(strings.Replace(fmt.Sprintf(settingsText, "green"), "settings", "by-hand", 1))
	c.says(reason.ExitOK, "trace cm/by-hand", "none: it was applied by hand", "tako:admin applied data.color")

	// A pull request, from a checkout and from the repository.
	c.git("checkout", "-qb", "work")
	c.write("a.yaml", fmt.Sprintf(settingsText, "blue"))
	c.git("rm", "-q", "b.yaml")
	c.says(reason.ExitFailed, "source diff fleet -n gitops --path "+c.dir, "-  color: red", "+  color: blue", "secret/key", "(secret)")
	second := c.commit("blue")
	text := c.says(reason.ExitFailed, "source diff fleet -n gitops --ref work -o markdown", "2 objects: 1 configured, 1 deleted", "commit "+second[:8])
	if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVy") || strings.Contains(text, "tako.dev/origin") {
		t.Errorf("%s", text)
	}
	c.says(reason.ExitNotFound, "source diff fleet -n gitops --ref none", "couldn't find remote ref")
	c.says(reason.ExitNotFound, "source diff nobody -n gitops", "not found")

	// What is merged is applied; what is broken is not.
	c.git("checkout", "-q", "main")
	c.git("merge", "-q", "--ff-only", "work")
	c.says(reason.ExitOK, "source reconcile source/fleet -n gitops --wait", second[:8], "1 object")
	c.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndato: {}\n")
	broken := c.says(reason.ExitUsage, "source diff fleet -n gitops --path "+c.dir+" -o markdown", "1 mistake", "error[", "a.yaml:4")
	if !strings.Contains(broken, "`a.yaml:4:") {
		t.Errorf("%s", broken)
	}
	c.commit("a slip")
	c.says(reason.ExitStalled, "source reconcile fleet -n gitops --wait", "a.yaml:4", second[:8])
	c.says(reason.ExitOK, "why source/fleet -n gitops", "Commit refused", "a.yaml:4", "commit main@"+second[:8]+" stays applied", "tako source diff")
	c.says(reason.ExitStalled, "wait source/fleet -n gitops --for=converged", "tako why source.tako.dev/fleet")
	c.says(reason.ExitFailed, "status", "Commit refused", "source/fleet -n gitops")

	// Stopped for a while.
	c.says(reason.ExitOK, "source suspend fleet -n gitops --reason freeze --for 1h", "suspended until")
	c.says(reason.ExitStalled, "source reconcile fleet -n gitops --wait", "freeze", "tako source resume fleet -n gitops")
	c.says(reason.ExitOK, "wait source/fleet -n gitops --for=condition=Suspended")
	c.says(reason.ExitOK, "why source/fleet -n gitops", "Suspended", "by tako:admin until", "freeze")
	c.says(reason.ExitOK, "source resume fleet -n gitops", "resumed")
	c.says(reason.ExitOK, "source resume fleet -n gitops", "not suspended")
	c.write("a.yaml", fmt.Sprintf(settingsText, "blue"))
	c.commit("mended")
	c.says(reason.ExitOK, "source reconcile fleet -n gitops --wait")
	c.says(reason.ExitOK, "delete source/fleet -n gitops")
	c.says(reason.ExitOK, "trace cm/settings -n gitops", "there is no such source any more")
	c.says(reason.ExitOK, "delete ns/gitops cm/by-hand")
}

// TestSourceDiffReadOnly: who may read, and nothing else, sees what a pull request would change, and no secret; without the words for it he is
// told whose fault it is.
func TestSourceDiffReadOnly(t *testing.T) {
	c := newCheckout(t, "checked")
	c.write("a.yaml", fmt.Sprintf(settingsText, "red"))
	c.write("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: hunter2}\n")
	c.write("c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: goes}\ndata: {a: b}\n")
	c.commit("first")
	c.declare(c.sourceText("checks") + `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: checks, namespace: checks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: checkers}]
`)
	c.says(reason.ExitOK, "source reconcile fleet -n checks --wait", "3 objects")
	checker := &checkout{console: c.person(t, "check", "checkers", "checker"), t: t, dir: c.dir}
	waitUntil(t, func() (string, bool) {
		_, errs, exit := checker.run(t.Context(), strings.NewReader(""), "get", "sources", "-n", "checks")
		return errs, exit == reason.ExitOK
	})

	same := checker.says(reason.ExitOK, "source diff fleet -n checks --read-only -o markdown", "would change nothing")
	if strings.Count(same, "\n- ") > 2 || !strings.Contains(same, "secrets") || !strings.Contains(same, "secret/key in namespace checks is not compared") {
		t.Errorf("%s", same)
	}
	c.write("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {shade: dark}\n")
	c.write("d.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: comes}\ndata: {a: b}\n")
	c.git("rm", "-q", "c.yaml")
	text := checker.says(reason.ExitFailed, "source diff fleet -n checks --read-only --path "+c.dir+" -o markdown", "3 objects: 1 created, 1 configured, 1 deleted",
		"-  color: red", "+  shade: dark", "- deleted `configmap/goes in namespace checks`", "has checked nothing")
	if strings.Contains(text, "hunter2") || strings.Contains(text, "aHVudGVy") {
		t.Errorf("%s", text)
	}
	admin := c.says(reason.ExitFailed, "source diff fleet -n checks --path "+c.dir)
	reader := c.says(reason.ExitFailed, "source diff fleet -n checks --read-only --path "+c.dir)
	if admin != reader {
		t.Errorf("the server says\n%s\nand the reader\n%s", admin, reader)
	}

	checker.says(reason.ExitNotAllowed, "source diff fleet -n checks --path "+c.dir, "--read-only compares without")
	if text := checker.says(reason.ExitNotAllowed, "source diff fleet -n checks -o markdown --path "+c.dir); !strings.Contains(text, "the check may not ask") || strings.Contains(text, "mistake") {
		t.Errorf("%s", text)
	}
	checker.says(reason.ExitNotAllowed, "source diff fleet -n checks --as-source --path "+c.dir, "you may not impersonate it", "--read-only")
	c.write("a.yaml", "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata: {name: c}\nspec: {resources: [{name: m, file: {path: /etc/motd, contents: x}}]}\n")
	checker.says(reason.ExitUsage, "source diff fleet -n checks --read-only -o markdown --path "+c.dir, "1 mistake", "`a.yaml:4:")
	c.says(reason.ExitUsage, "source diff fleet -n checks --read-only --as-source")
	c.says(reason.ExitOK, "delete source/fleet -n checks")
	c.says(reason.ExitOK, "delete ns/checks")
}
