package source

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/e2e/host"
	"tako.dev/tako/e2e/rig"
)

// TestMain: what tests write into hosts has the modes that they say, whoever runs them.
func TestMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// fleet is a server that may read repositories of one directory, with the environments prod and qa.
type fleet struct {
	*rig.Rig
	repositories string
	asked        int // requests to look, so far
}

const environments = `apiVersion: v1
kind: Namespace
metadata: {name: ops}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: v1
kind: Namespace
metadata: {name: qa}
`

func newFleet(t *testing.T) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the built programs, which -short leaves out")
	}
	f := &fleet{repositories: t.TempDir()}
	f.Rig = rig.New(t, "--source-dir", f.repositories)
	f.Apply(environments)
	return f
}

// hosts makes three, two of prod and one of qa, and starts their agents.
func (f *fleet) hosts() []*rig.Host {
	f.Helper()
	all := []*rig.Host{f.Join("web-1", "--environment", "prod", "--label", "role=web"), f.Join("web-2", "--environment", "prod", "--label", "role=web"), f.Join("lab-1", "--environment", "qa")}
	for _, h := range all {
		h.Start()
	}
	return all
}

// allow gives a Source's user a role in all namespaces.
func (f *fleet) allow(name, role string) {
	f.Helper()
	f.Apply(fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: source-%s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:source:ops:%s"}]
`, name, role, name))
}

// declare declares a Source of namespace ops. The spec is a mapping of YAML in one line.
func (f *fleet) declare(name, spec string) {
	f.Helper()
	f.Apply(f.document(name, spec))
}

func (f *fleet) document(name, spec string) string {
	return fmt.Sprintf("apiVersion: tako.dev/v1alpha1\nkind: Source\nmetadata: {name: %s, namespace: ops, annotations: {tako.dev/reconcile: %q}}\nspec: %s\n", name, fmt.Sprint(f.asked), spec)
}

// look has a Source look at its repository now, as a person asks for it.
func (f *fleet) look(name, spec string) {
	f.Helper()
	f.asked++
	f.declare(name, spec)
}

// source reads one.
func (f *fleet) source(name string) v1alpha1.Source {
	f.Helper()
	var s v1alpha1.Source
	f.Get(&s, "source/"+name, "-n", "ops")
	return s
}

// until waits until a Source says something.
func (f *fleet) until(name, what string, is func(*v1alpha1.Source) bool) v1alpha1.Source {
	f.Helper()
	var s v1alpha1.Source
	host.Eventually(f.T, rig.InTime, "source "+name+": "+what, func() (string, bool) {
		s = f.source(name)
		text, err := json.Marshal(s.Status)
		return fmt.Sprintf("%s %v", text, err), is(&s)
	})
	return s
}

// applies waits until a Source has applied a commit, and says that all is well.
func (f *fleet) applies(name, commit string) v1alpha1.Source {
	f.Helper()
	return f.until(name, "commit "+commit+" is applied", func(s *v1alpha1.Source) bool {
		return s.Status.Applied != nil && s.Status.Applied.ID == commit && ready(s) && s.Status.HandledRequest == s.Annotations[v1alpha1.AnnotationReconcile]
	})
}

// refuses waits until a Source says that it does not apply what it sees, in words that have all of these.
func (f *fleet) refuses(name string, words ...string) v1alpha1.Source {
	f.Helper()
	return f.until(name, fmt.Sprintf("it is not ready, and says %q", words), func(s *v1alpha1.Source) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || s.Status.HandledRequest != s.Annotations[v1alpha1.AnnotationReconcile] {
			return false
		}
		text := c.Message
		for _, fault := range s.Status.Faults {
			text += fmt.Sprintf(" %s:%d: %s", fault.File, fault.Line, fault.Message)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

func ready(s *v1alpha1.Source) bool {
	return s.Status.ObservedGeneration == s.Generation && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
}

// object reads one of any kind; nil where it is not there.
func (f *fleet) object(name, namespace string) *unstructured.Unstructured {
	f.Helper()
	var o unstructured.Unstructured
	out, err := f.Try("get", name, "-n", namespace, "-o", "json")
	if err != nil {
		return nil
	}
	if err := json.Unmarshal([]byte(out), &o.Object); err != nil {
		f.Fatal(err)
	}
	return &o
}

// is checks that an object has a value under data.text.
func (f *fleet) is(name, want string) {
	f.Helper()
	o := f.object("configmap/"+name, "prod")
	if o == nil {
		f.Errorf("there is no configmap %s", name)
		return
	}
	if got, _, _ := unstructured.NestedString(o.Object, "data", "text"); got != want {
		f.Errorf("configmap %s has %q, want %q", name, got, want)
	}
}

// text is a config map of prod with one text.
func text(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: prod}\ndata:\n  text: %q\n", name, value)
}

// motd is a config for all hosts.
func motd(content string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: motd}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: motd
      file: {path: /etc/motd, content: %q}
`, content)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }

func writeProgram(path, content string) error { return os.WriteFile(path, []byte(content), 0o755) }
