package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/reason"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: a, cluster: {server: "https://a:6443"}}
- {name: b, cluster: {server: "https://b:6443"}}
contexts:
- {name: one, context: {cluster: a, user: u, namespace: from-kubeconfig}}
- {name: two, context: {cluster: b, user: u}}
users:
- {name: u, user: {token: hidden}}
`

const contexts = `current: inline
contexts:
  inline:
    server: https://inline:6443
    certificateAuthority: ca.pem
    token: hidden
    namespace: from-context
  reference:
    kubeconfig: kube.yaml
    kubeContext: two
  both: {kubeconfig: kube.yaml, server: "https://x"}
  plain: {server: "http://x", certificateAuthority: ca.pem}
  trusting: {server: "https://x"}
  garbled: {server: "https://x", certificateAuthorityData: "no PEM, but hidden"}
`

// home makes a directory with settings, and returns it with an environment.
func home(t *testing.T, files map[string]string) (string, map[string]string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "tako"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "tako", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "tako"), map[string]string{"XDG_CONFIG_HOME": dir, "HOME": "/nowhere"}
}

func TestResolve(t *testing.T) {
	dir, base := home(t, map[string]string{"contexts.yaml": contexts, "kube.yaml": kubeconfig})
	kube := filepath.Join(dir, "kube.yaml")
	for _, c := range []struct {
		name            string
		flags           Flags
		env             map[string]string
		host, namespace string
	}{
		{"current", Flags{}, nil, "https://inline:6443", "from-context"},
		{"environment over file", Flags{}, map[string]string{"TAKO_CONTEXT": "reference"}, "https://b:6443", "default"},
		{"flag over environment", Flags{Context: "reference"}, map[string]string{"TAKO_CONTEXT": "inline"}, "https://b:6443", "default"},
		{"KUBECONFIG over file", Flags{}, map[string]string{"KUBECONFIG": kube}, "https://a:6443", "from-kubeconfig"},
		{"TAKO_CONTEXT over KUBECONFIG", Flags{}, map[string]string{"KUBECONFIG": kube, "TAKO_CONTEXT": "inline"}, "https://inline:6443", "from-context"},
		{"context of KUBECONFIG", Flags{Context: "two"}, map[string]string{"KUBECONFIG": kube}, "https://b:6443", "default"},
		{"--kubeconfig", Flags{Kubeconfig: kube}, map[string]string{"TAKO_CONTEXT": "inline"}, "https://a:6443", "from-kubeconfig"},
		{"--kubeconfig --context", Flags{Kubeconfig: kube, Context: "two"}, nil, "https://b:6443", "default"},
		{"--namespace", Flags{Namespace: "flag"}, map[string]string{"TAKO_NAMESPACE": "env"}, "https://inline:6443", "flag"},
		{"TAKO_NAMESPACE", Flags{}, map[string]string{"TAKO_NAMESPACE": "env"}, "https://inline:6443", "env"},
	} {
		target, err := Resolve(c.flags, environment(base, c.env))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if target.Config.Host != c.host || target.Namespace != c.namespace {
			t.Errorf("%s: %s in %s, want %s in %s", c.name, target.Config.Host, target.Namespace, c.host, c.namespace)
		}
		if strings.Contains(target.Name, "hidden") {
			t.Errorf("%s: a credential is in the name %q", c.name, target.Name)
		}
	}
	target, err := Resolve(Flags{}, environment(base, nil))
	if err != nil || target.Config.CAFile != filepath.Join(dir, "ca.pem") || target.Config.BearerToken != "hidden" {
		t.Errorf("the credentials of a context did not arrive (%v)", err)
	}
}

func environment(sets ...map[string]string) func(string) string {
	return func(name string) string {
		value := ""
		for _, s := range sets {
			if v, ok := s[name]; ok {
				value = v
			}
		}
		return value
	}
}

func TestResolveRefuses(t *testing.T) {
	_, base := home(t, map[string]string{"contexts.yaml": contexts, "kube.yaml": kubeconfig})
	_, empty := home(t, nil)
	_, broken := home(t, map[string]string{"contexts.yaml": "contexts: {a: {token: hidden, sever: x}}"})
	_, garbage := home(t, map[string]string{"contexts.yaml": "token: hidden\n  x"})
	open, wide := home(t, map[string]string{"contexts.yaml": contexts})
	if err := os.Chmod(filepath.Join(open, "contexts.yaml"), 0o640); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		flags Flags
		env   map[string]string
		words string
		exit  reason.Exit
	}{
		{"nothing configured", Flags{}, empty, "no server is configured", reason.ExitUsage},
		{"no such context", Flags{Context: "nope"}, base, "no such context", reason.ExitNotFound},
		{"no such kubeconfig", Flags{Kubeconfig: "/nope"}, base, "/nope", reason.ExitUsage},
		{"two servers", Flags{Context: "both"}, base, "kubeconfig and a server", reason.ExitUsage},
		{"no TLS", Flags{Context: "plain"}, base, "https://", reason.ExitUsage},
		{"no authority", Flags{Context: "trusting"}, base, "certificate authority", reason.ExitUsage},
		{"no PEM", Flags{Context: "garbled"}, base, "not PEM", reason.ExitUsage},
		{"unknown field", Flags{}, broken, "sever", reason.ExitUsage},
		{"no YAML", Flags{}, garbage, "contexts.yaml", reason.ExitUsage},
		{"others may read it", Flags{}, wide, "0640", reason.ExitNotAllowed},
	} {
		_, err := Resolve(c.flags, environment(c.env))
		f := failure.Of(err, "")
		if f == nil || f.Exit != c.exit || !strings.Contains(f.Error(), c.words) || f.Hint == "" {
			t.Errorf("%s: %+v, want exit %d and %q", c.name, f, c.exit, c.words)
			continue
		}
		if strings.Contains(f.Error()+f.Hint, "hidden") {
			t.Errorf("%s: a credential is shown: %v", c.name, f)
		}
	}
}

func TestPrefs(t *testing.T) {
	dir, _ := home(t, map[string]string{"prefs.yaml": "color: never\neditor: vim -n\n"})
	p, err := ReadPrefs(dir)
	if err != nil || p.Color != "never" || p.Editor != "vim -n" {
		t.Errorf("%+v (%v)", p, err)
	}
	if p, err := ReadPrefs(t.TempDir()); err != nil || *p != (Prefs{}) {
		t.Errorf("no file gave %+v (%v)", p, err)
	}
	wrong, _ := home(t, map[string]string{"prefs.yaml": "colour: never\n"})
	var coded *reason.Error
	if _, err := ReadPrefs(wrong); !errors.As(err, &coded) || !strings.Contains(err.Error(), "colour") {
		t.Errorf("a misspelt preference: %v", err)
	}
}

// TestLargeFile: a file that is too large is refused, and not read in part.
func TestLargeFile(t *testing.T) {
	dir, _ := home(t, map[string]string{"prefs.yaml": "color: never\n" + strings.Repeat("#", fileBytesMax)})
	if _, err := ReadPrefs(dir); !reason.Is(err, reason.DocumentTooLarge) {
		t.Errorf("a file of more than %d bytes: %v", fileBytesMax, err)
	}
}

func FuzzContexts(f *testing.F) {
	for _, text := range []string{contexts, "current: a", "contexts: {a: null}", "contexts: {a: {token: [1]}}", "contexts:\n  a: &a {server: x}\n  b: *a", "\t", "a: \x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c Contexts
		if err := decode(text, &c); err != nil {
			checkWords(t, err)
			return
		}
		for name, context := range c.Contexts {
			if context.Kubeconfig != "" {
				continue // another file, which another program's library reads
			}
			if target, err := context.target(name, "/nowhere"); err == nil && target.Config.Host != context.Server {
				t.Errorf("context %q goes to %q", name, target.Config.Host)
			}
		}
	})
}

func FuzzPrefs(f *testing.F) {
	for _, text := range []string{"color: never\neditor: vim -n\n", "colour: never", "color: [1]", "editor: 'vi", "---\n---\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Prefs
		if err := decode(text, &p); err != nil {
			checkWords(t, err)
		}
	})
}

// checkWords sees that an error about a file can be shown: one line, and no file within it.
func checkWords(t *testing.T, err error) {
	t.Helper()
	const most = 200
	if words := err.Error(); words == "" || strings.ContainsAny(words, "\n\r") || len(words) > most {
		t.Errorf("an error of %d bytes: %q", len(words), words)
	}
}
