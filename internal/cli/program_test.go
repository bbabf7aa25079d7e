package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

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
		case <-time.After(20 * time.Second):
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
	token, errs, exit := c.run(t.Context(), in(""), "token", "create", "user", "Ann@example.org", "--group", "readers", "--id", "reader")
	if exit != reason.ExitOK || strings.Contains(errs, strings.TrimSpace(token)) {
		t.Fatalf("exit %d; the token is in what is no data: %s", exit, errs)
	}
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	contexts := fmt.Sprintf("current: a\ncontexts: {a: {server: %q, certificateAuthorityData: %q, token: %s}}\n", config.Host, config.CAData, strings.TrimSpace(token))
	if err := errors.Join(os.MkdirAll(filepath.Join(c.dir, "config/tako"), 0o700),
		os.WriteFile(filepath.Join(c.dir, "config/tako/contexts.yaml"), []byte(contexts), 0o600)); err != nil {
		t.Fatal(err)
	}
	person := &console{dir: c.dir, env: map[string]string{"XDG_CONFIG_HOME": c.env["XDG_CONFIG_HOME"], "HOME": c.dir}}
	waitUntil(t, func() (string, bool) {
		out, errs, exit := person.run(t.Context(), in(""), "get", "ns", "-o", "name")
		return fmt.Sprintf("exit %d: %s%s", exit, out, errs), exit == reason.ExitOK && strings.Contains(out, "namespace/default")
	})
	_, errs, exit = person.run(t.Context(), in("apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n"), "apply", "-f", "-")
	if exit != reason.ExitNotAllowed || !strings.Contains(errs, "Ann@example.org") || !strings.Contains(errs, "<stdin>:1:1") {
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

// waitUntil asks until the answer is as it should be, and fails with the last one.
func waitUntil(t *testing.T, ask func() (string, bool)) {
	t.Helper()
	const most, pause = 20 * time.Second, 20 * time.Millisecond
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

func TestManualPages(t *testing.T) {
	c := newConsole(t)
	dir := filepath.Join(c.dir, "man")
	if _, errs, exit := c.run(t.Context(), strings.NewReader(""), "man", dir); exit != reason.ExitOK {
		t.Fatalf("exit %d: %s", exit, errs)
	}
	for _, name := range []string{"tako.1", "tako-apply.1", "tako-token-create-join.1"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), ".SH EXAMPLE") {
			t.Errorf("%s has no examples (%v)", name, err)
		}
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
