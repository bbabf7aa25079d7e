package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/reason"
)

// TestEveryCommandHasExamples: help begins with them.
func TestEveryCommandHasExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			walk(below)
		}
		if c.Name() == "completion" || c.HasParent() && c.Parent().Name() == "completion" {
			return // made by the library
		}
		if c.Example == "" || c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: no example, or a sentence that is none", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			if !strings.Contains(line, "tako ") || !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example %q", c.CommandPath(), line)
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s says nothing", c.CommandPath(), f.Name)
			}
		})
	}
	walk(New(Streams{Getenv: os.Getenv}))
}

// TestFurtherCommands: what is wrong with the command line of a command that stands beside those here is said as theirs is.
func TestFurtherCommands(t *testing.T) {
	for _, c := range []struct {
		args  string
		exit  reason.Exit
		words string
	}{
		{"other", reason.ExitUsage, `required flag(s) "key" not set`},
		{"other --key x y", reason.ExitUsage, "tako other: "},
		{"other --key x --nope", reason.ExitUsage, "unknown flag"},
		{"other --key x", reason.ExitFailed, "open /nothing"},
	} {
		var errs strings.Builder
		streams := Streams{In: strings.NewReader(""), Out: &errs, Err: &errs, Getenv: func(string) string { return "" }}
		other := &cobra.Command{Use: "other", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return &os.PathError{Op: "open", Path: "/nothing", Err: os.ErrNotExist}
		}}
		other.Flags().String("key", "", "a key")
		if err := other.MarkFlagRequired("key"); err != nil {
			t.Fatal(err)
		}
		root := New(streams, other)
		root.SetArgs(strings.Fields(c.args))
		if exit := Run(t.Context(), root, streams); exit != c.exit || !strings.Contains(errs.String(), c.words) {
			t.Errorf("%s: exit %d, want %d and %q: %s", c.args, exit, c.exit, c.words, errs.String())
		}
	}
}

// TestWaitSeesChanges: a wait ends when somebody makes it true, and at once when it cannot become true.
func TestWaitSeesChanges(t *testing.T) {
	c := newConsole(t)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	object := func(color string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: waited}\ndata: {color: " + color + "}\n"
	}
	must := func(args ...string) string {
		t.Helper()
		out, errs, exit := c.run(t.Context(), strings.NewReader(""), args...)
		if exit != reason.ExitOK {
			t.Fatalf("%v: exit %d: %s%s", args, exit, out, errs)
		}
		return out
	}
	ended := make(chan reason.Exit, 1)
	begin := func(args ...string) {
		go func() {
			_, _, exit := newConsoleAt(c.dir).run(t.Context(), strings.NewReader(""), append([]string{"wait", "configmap/waited", "--timeout=30s"}, args...)...)
			ended <- exit
		}()
	}
	end := func(want reason.Exit) {
		t.Helper()
		select {
		case exit := <-ended:
			if exit != want {
				t.Errorf("the wait ended with %d, want %d", exit, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("the wait has not ended")
		}
	}
	begin("--for=create")
	must("apply", "-f", write("a.yaml", object("red")))
	end(reason.ExitOK)
	begin("--for=jsonpath={.data.color}=blue")
	must("apply", "-f", write("b.yaml", object("blue")))
	end(reason.ExitOK)
	begin("--for=delete")
	must("delete", "configmap/waited")
	end(reason.ExitOK)
	begin("--for=condition=Ready")
	end(reason.ExitNotFound)
}

func newConsoleAt(dir string) *console {
	return &console{dir: dir, env: map[string]string{"KUBECONFIG": admin, "HOME": dir}}
}

// TestPeople: a token of a person works through contexts.yaml, may do what roles say, and ends when it is revoked.
func TestPeople(t *testing.T) {
	c := newConsole(t)
	in := func(text string) *strings.Reader { return strings.NewReader(text) }
	const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-namespaces}
rules: [{apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-namespaces}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: readers}]
`
	if out, errs, exit := c.run(t.Context(), in(roles), "apply", "-f", "-"); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s%s", exit, out, errs)
	}
	person := c.person(t, "Ann@example.org", "readers", "reader")
	waitUntil(t, func() (string, bool) {
		out, errs, exit := person.run(t.Context(), in(""), "get", "ns", "-o", "name")
		return fmt.Sprintf("exit %d: %s%s", exit, out, errs), exit == reason.ExitOK && strings.Contains(out, "namespace/default")
	})
	_, errs, exit := person.run(t.Context(), in("apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n"), "apply", "-f", "-")
	if exit != reason.ExitNotAllowed || !strings.Contains(errs, "Ann@example.org") || !strings.Contains(errs, "<stdin>:3:18") {
		t.Errorf("what is not allowed: exit %d: %s", exit, errs)
	}
	if _, errs, exit = c.run(t.Context(), in(""), "token", "revoke", "reader"); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	waitUntil(t, func() (string, bool) {
		_, errs, exit := person.run(t.Context(), in(""), "get", "ns")
		return fmt.Sprintf("exit %d: %s", exit, errs), exit == reason.ExitNotAllowed
	})
}

// person makes a token for somebody in a group, and returns the console of whoever works with it through contexts.yaml.
func (c *console) person(t *testing.T, name, group, id string) *console {
	t.Helper()
	token, errs, exit := c.run(t.Context(), strings.NewReader(""), "token", "create", "user", name, "--group", group, "--id", id)
	if exit != reason.ExitOK || strings.Contains(errs, strings.TrimSpace(token)) {
		t.Fatalf("exit %d; the token is in what is no data: %s", exit, errs)
	}
	t.Cleanup(func() {
		// The tests share the server; a test may have revoked it.
		c.run(context.Background(), strings.NewReader(""), "token", "revoke", id)
	})
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	contexts := fmt.Sprintf("current: a\ncontexts: {a: {server: %q, certificateAuthorityData: %q, token: %s}}\n", config.Host, config.CAData, strings.TrimSpace(token))
	if err := errors.Join(os.MkdirAll(filepath.Join(c.dir, "config/tako"), 0o700),
		os.WriteFile(filepath.Join(c.dir, "config/tako/contexts.yaml"), []byte(contexts), 0o600)); err != nil {
		t.Fatal(err)
	}
	return &console{dir: c.dir, env: map[string]string{"XDG_CONFIG_HOME": c.env["XDG_CONFIG_HOME"], "HOME": c.dir}}
}

// TestPruneThatIsNotAllowed: where a deletion would be refused, nothing is applied before it.
func TestPruneThatIsNotAllowed(t *testing.T) {
	c := newConsole(t)
	const roles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writes-configmaps}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: writes-configmaps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writes-configmaps}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: writers}]
`
	if out, errs, exit := c.run(t.Context(), strings.NewReader(roles), "apply", "-f", "-"); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s%s", exit, out, errs)
	}
	writer := c.person(t, "bob", "writers", "writer")
	t.Cleanup(func() {
		c.run(context.Background(), strings.NewReader(""), "delete", "configmaps", "-l", prune.Label+"=default.denied") // the tests share the server
	})
	object := func(names ...string) *strings.Reader {
		var text string
		for _, name := range names {
			text += "---\n" + objectText("configmap/"+name)
		}
		return strings.NewReader(text)
	}
	waitUntil(t, func() (string, bool) {
		_, errs, exit := writer.run(t.Context(), object("denied-stays", "denied-goes"), "apply", "-f", "-", "--set", "denied")
		return errs, exit == reason.ExitOK
	})
	_, errs, exit := writer.run(t.Context(), object("denied-stays", "denied-new"), "apply", "-f", "-", "--set", "denied", "--prune")
	if exit != reason.ExitNotAllowed || !strings.Contains(errs, "delete configmap/denied-goes") || !strings.Contains(errs, "secrets are not looked through") {
		t.Errorf("exit %d: %s", exit, errs)
	}
	if out, _, exit := c.run(t.Context(), strings.NewReader(""), "get", "configmap", "denied-new"); exit != reason.ExitNotFound {
		t.Errorf("exit %d: something was applied: %s", exit, out)
	}
}

// waitUntil asks until the answer is as it should be, and fails with the last one.
func waitUntil(t *testing.T, ask func() (string, bool)) {
	t.Helper()
	const most, pause = time.Minute, 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		said, ok := ask()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("last seen: %s", said)
		case <-tick.C:
		}
	}
}

// TestOtherAuthority: a server that is not the one of the kubeconfig is refused in words.
func TestOtherAuthority(t *testing.T) {
	c := newConsole(t)
	kubeconfig, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = other.URL
	}
	path := filepath.Join(c.dir, "other.kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	_, errs, exit := c.run(t.Context(), strings.NewReader(""), "get", "nodes", "--kubeconfig", path)
	if exit != reason.ExitNotAllowed || !strings.Contains(errs, "TK1003") {
		t.Errorf("exit %d: %s", exit, errs)
	}
}

func TestCompletion(t *testing.T) {
	c := newConsole(t)
	offered := func(args ...string) []string {
		t.Helper()
		out, _, exit := c.run(t.Context(), strings.NewReader(""), append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
		if exit != reason.ExitOK {
			t.Fatalf("%v: exit %d", args, exit)
		}
		return strings.Fields(out)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "nodec"}, "nodeconfigs"},
		{[]string{"get", "namespaces", "def"}, "default"},
		{[]string{"describe", "ns/def"}, "ns/default"},
		{[]string{"get", "cm", "-n", "de"}, "default"},
		{[]string{"get", "nodes", "-o", ""}, "ndjson"},
		{[]string{"delete", "cm", "x", "--cascade", ""}, "foreground"},
		{[]string{"explain", "clusternode"}, "clusternodeconfigs"},
		{[]string{"app"}, "apply"},
	} {
		if got := offered(x.args...); !slices.Contains(got, x.want) {
			t.Errorf("%v offers %v, want %s among them", x.args, got, x.want)
		}
	}
	c.env["KUBECONFIG"] = "/nothing"
	if got := offered("get", "nod"); slices.Contains(got, "nodes") {
		t.Errorf("without a server there is %v", got)
	}
}

// TestCompletionScripts: every shell gets a script that it can read.
func TestCompletionScripts(t *testing.T) {
	c := newConsole(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, errs, exit := c.run(t.Context(), strings.NewReader(""), "completion", shell)
		if exit != reason.ExitOK || !strings.Contains(script, "tako") {
			t.Errorf("%s: exit %d: %s", shell, exit, errs)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("needs %s: its script is not read", shell)
			continue
		}
		check := exec.CommandContext(t.Context(), path, "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v\n%s", shell, err, out)
		}
	}
}

func TestManualPages(t *testing.T) {
	c := newConsole(t)
	dir := filepath.Join(c.dir, "man")
	if _, errs, exit := c.run(t.Context(), strings.NewReader(""), "man", dir); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	for _, name := range []string{"tako", "tako-apply", "tako-token-create-join", "tako-edit"} {
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{".TH \"" + strings.ToUpper(name) + "\" \"1\" \"\"", ".SH EXAMPLE", ".SH EXIT STATUS\n.EX\n0  done", ".SH ENVIRONMENT", ".SH FILES"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s.1 has no %q", name, want)
			}
		}
		for _, not := range []string{"[=", "=[]", `=""`} {
			if strings.Contains(string(text), not) {
				t.Errorf("%s.1 has %q", name, not)
			}
		}
		groff, err := exec.LookPath("groff")
		if err != nil {
			t.Log("needs groff: the pages are not formatted")
			continue
		}
		if out, err := exec.CommandContext(t.Context(), groff, "-ww", "-man", "-Tutf8", "-z", filepath.Join(dir, name+".1")).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s.1: %v: %s", name, err, out)
		}
	}
	if _, errs, exit := c.run(t.Context(), strings.NewReader(""), "man", filepath.Join(c.dir, "no", "such")); exit != reason.ExitFailed || !strings.Contains(errs, "no such") {
		t.Errorf("exit %d: %s", exit, errs)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "no")); err == nil {
		t.Error("a mistyped path was made")
	}
}

// TestEditMeanwhile: what somebody else changes while the editor is open is not overwritten, and how to carry on is said.
func TestEditMeanwhile(t *testing.T) {
	c := newConsole(t)
	must := func(text string, args ...string) {
		t.Helper()
		if out, errs, exit := c.run(t.Context(), strings.NewReader(text), args...); exit != reason.ExitOK {
			t.Fatalf("%v: exit %d: %s%s", args, exit, out, errs)
		}
	}
	t.Setenv("TMPDIR", c.dir) // what is refused stays there
	object := func(color string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: meanwhile}\ndata: {color: " + color + "}\n"
	}
	must(object("red"), "apply", "-f", "-")
	t.Cleanup(func() { c.run(context.Background(), strings.NewReader(""), "delete", "configmap/meanwhile") })
	open, done := filepath.Join(c.dir, "open"), filepath.Join(c.dir, "done")
	script := fmt.Sprintf("#!/bin/sh\ntouch %s\nuntil [ -e %s ]; do sleep 0.01; done\nsed -i s/red/blue/ \"$1\"\n", open, done)
	editor := filepath.Join(c.dir, "editor")
	if err := os.WriteFile(editor, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	c.env["EDITOR"] = editor
	type answer struct {
		errs string
		exit reason.Exit
	}
	ended := make(chan answer, 1)
	go func() {
		_, errs, exit := c.run(t.Context(), strings.NewReader(""), "edit", "configmap/meanwhile")
		ended <- answer{errs, exit}
	}()
	waitUntil(t, func() (string, bool) {
		_, err := os.Stat(open)
		return fmt.Sprint(err), err == nil
	})
	must(object("green"), "apply", "-f", "-")
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case a := <-ended:
		if a.exit != reason.ExitConflict || !strings.Contains(a.errs, "TK1104") || !strings.Contains(a.errs, "tako apply --force-conflicts -f "+c.dir) {
			t.Errorf("exit %d: %s", a.exit, a.errs)
		}
	case <-time.After(time.Minute):
		t.Fatal("the edit has not ended")
	}
	if out, _, _ := c.run(t.Context(), strings.NewReader(""), "get", "configmap", "meanwhile", "-o", "jsonpath={.data.color}"); out != "green\n" {
		t.Errorf("it is %q now", out)
	}
}

// TestInterrupted: Ctrl-C ends a command at once and is no success; a watch ends so as it should.
func TestInterrupted(t *testing.T) {
	c := newConsole(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, errs, exit := c.run(ctx, strings.NewReader(""), "get", "nodes"); exit != reason.ExitFailed || !strings.Contains(errs, "interrupted") {
		t.Errorf("exit %d: %s", exit, errs)
	}
}
