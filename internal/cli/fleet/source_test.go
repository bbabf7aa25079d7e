package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// TestOfSource: what is wrong with a source is said with what mends it, the worst first.
func TestOfSource(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, why, words string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: why, Message: words}
	}
	refused := condition("Ready", metav1.ConditionFalse, "CommitRefused", "a.yaml:3: no")
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.Source)
		weight Weight
		what   string // of the first finding; empty for none
		words  []string
	}{
		{"well", func(*v1alpha1.Source) {}, Note, "", nil},
		{"new", func(s *v1alpha1.Source) { s.Status = v1alpha1.SourceStatus{} }, Waiting, "Not looked at", []string{"generation 2"}},
		{"changed", func(s *v1alpha1.Source) { s.Status.ObservedGeneration = 1 }, Waiting, "Not looked at", nil},
		{"a mistake in a file", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{refused}
			s.Status.Faults = []v1alpha1.SourceFault{{File: "a.yaml", Line: 3, Column: 5, Code: "TK0412", Message: "no"}}
		}, Broken, "Commit refused", []string{"a.yaml:3:5: no", "TK0412", "commit main@12345678 stays applied", "tako source diff fleet -n prod"}},
		{"without rights", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{refused}
			s.Status.Faults = []v1alpha1.SourceFault{{File: "a.yaml", Line: 3, Code: reason.NotAllowed.String(), Message: "not allowed"}}
		}, Broken, "Commit refused", []string{"kubectl create rolebinding fleet --clusterrole=admin --user=system:source:prod:fleet -n prod"}},
		{"not reached", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "NotReached", "no route")}
		}, Broken, "Not reached", []string{"no route", "tako source reconcile fleet -n prod --wait"}},
		{"without rights at all", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "NotAllowed", "may not")}
		}, Broken, "Not allowed", []string{"may not", "kubectl create rolebinding fleet"}},
		{"becoming well", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "Progressing", "1 of 2")}
		}, Waiting, "Progressing", []string{"tako status -n prod"}},
		{"waiting for another", func(s *v1alpha1.Source) {
			s.Spec.DependsOn = []v1alpha1.SourceReference{{Name: "base"}}
			s.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "DependencyNotReady", "waits")}
		}, Waiting, "Dependency not ready", []string{"tako why source/base -n prod"}},
		{"suspended", func(s *v1alpha1.Source) {
			s.Spec.Suspend = &v1alpha1.SourceSuspension{Reason: "freeze", Owner: "ann", Until: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
			s.Status.Conditions = append(s.Status.Conditions, condition("Suspended", metav1.ConditionTrue, "Suspended", "x"))
			s.Status.ObservedGeneration = 1
		}, Note, "Suspended", []string{"by ann until 2026-01-02T03:04:05Z: freeze", "tako source resume fleet -n prod"}},
		{"drifted", func(s *v1alpha1.Source) {
			s.Status.Drifted = []v1alpha1.SourceObject{{APIVersion: "tako.dev/v1alpha1", Kind: "NodeConfig", Namespace: "prod", Name: "web", Message: "others"}}
		}, Broken, "Drifted", []string{"NodeConfig web: others", "tako trace nodeconfig.tako.dev/web -n prod"}},
		{"a file without a line", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{refused}
			s.Status.Faults = []v1alpha1.SourceFault{{File: "a.yaml", Code: "TK0412", Message: "no"}}
		}, Broken, "Commit refused", []string{" a.yaml: no"}},
		{"left", func(s *v1alpha1.Source) {
			s.Status.Left = []v1alpha1.SourceObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "prod", Name: "web", Message: "not allowed to delete it"}}
		}, Broken, "Left", []string{"ConfigMap web in namespace prod is declared no more, and stays: not allowed to delete it", "tako trace configmap/web -n prod"}},
		{"left where nobody may look", func(s *v1alpha1.Source) {
			s.Status.Left = []v1alpha1.SourceObject{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "prod", Message: "not allowed to list"}}
		}, Broken, "Left", []string{"ConfigMap in namespace prod is declared no more"}},
		{"removed", func(s *v1alpha1.Source) {
			s.Status.Conditions = []metav1.Condition{condition("Ready", metav1.ConditionFalse, "Removing", "it is deleted")}
		}, Waiting, "Removing", []string{"it is deleted"}},
		{"hosts on their way", func(s *v1alpha1.Source) { s.Status.Hosts = &v1alpha1.SourceHosts{Selected: 3, Converged: 1} }, Waiting, "Hosts", []string{"1 of 3 hosts"}},
	} {
		s := v1alpha1.Source{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "fleet", Generation: 2}}
		s.Status = v1alpha1.SourceStatus{ObservedGeneration: 2, Conditions: []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Applied", "is applied")},
			Applied: &v1alpha1.SourceCommit{ID: "1234567890", Ref: "main"}}
		c.change(&s)
		f := &Fleet{Sources: []v1alpha1.Source{s}}
		list := f.OfSource(&f.Sources[0])
		if c.what == "" {
			if len(list) > 0 {
				t.Errorf("%s: %+v", c.name, list)
			}
			continue
		}
		if len(list) == 0 || list[0].What != c.what || list[0].Weight != c.weight || list[0].Subject != "source/fleet -n prod" {
			t.Errorf("%s: %+v, want %q", c.name, list, c.what)
			continue
		}
		text := Explain(SourceTitle(&s), list, time.Now(), present.Style{})
		for _, words := range c.words {
			if !strings.Contains(text, words) {
				t.Errorf("%s: %q is not in\n%s", c.name, words, text)
			}
		}
		if shown := f.Status(nil).Attention; len(shown) != len(list) {
			t.Errorf("%s: the page has %+v", c.name, shown)
		}
	}
}
