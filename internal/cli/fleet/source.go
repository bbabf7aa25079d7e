package fleet

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/schedule"
)

func (f *Fleet) takeSource(_ remote.Kind, o *unstructured.Unstructured) error {
	s, err := as[v1alpha1.Source](o)
	f.Sources = append(f.Sources, s)
	return err
}

// Source finds a source.
func (f *Fleet) Source(namespace, name string) *v1alpha1.Source {
	for i := range f.Sources {
		if s := &f.Sources[i]; s.Namespace == namespace && s.Name == name {
			return s
		}
	}
	return nil
}

func sourceArgument(s *v1alpha1.Source) string { return "source/" + s.Name + " -n " + s.Namespace }

// SourceTitle is a source on one line.
func SourceTitle(s *v1alpha1.Source) string {
	text := sourceArgument(s) + "  " + s.Spec.URL
	if a := s.Status.Applied; a != nil {
		return text + "  " + commitText(a) + " applied " + a.Since.UTC().Format(time.RFC3339)
	}
	return text + "  nothing is applied yet"
}

func commitText(c *v1alpha1.SourceCommit) string {
	const digits = 8 // as many as people look at
	id := c.ID[:min(len(c.ID), digits)]
	if c.Ref == "" {
		return id
	}
	return c.Ref + "@" + id
}

// OfSource is what is to be said of a source.
func (f *Fleet) OfSource(s *v1alpha1.Source) []Finding {
	subject := sourceArgument(s)
	var list []Finding
	add := func(x Finding) {
		x.Subject = cmp.Or(x.Subject, subject)
		list = append(list, x)
	}
	if u := s.Spec.Suspend; u != nil && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionSuspended) {
		add(Finding{Weight: Note, What: v1alpha1.ConditionSuspended, Text: fmt.Sprintf("by %s until %s: %s", u.Owner, u.Until.UTC().Format(time.RFC3339), u.Reason),
			Next: "tako source resume " + s.Name + " -n " + s.Namespace})
	}
	for _, x := range f.notReady(s) {
		add(x)
	}
	for i := range s.Status.Drifted {
		d := &s.Status.Drifted[i]
		add(Finding{Weight: Broken, What: "Drifted", Text: d.Kind + " " + d.Name + ": " + d.Message, Next: traceOf(d)})
	}
	for i := range s.Status.Left {
		d := &s.Status.Left[i]
		add(Finding{Weight: Broken, What: "Left", Text: leftText(d), Next: traceOf(d)})
	}
	if h := s.Status.Hosts; h != nil && h.Converged < h.Selected {
		add(Finding{Weight: Waiting, What: "Hosts", Text: fmt.Sprintf("%d of %d hosts are as it declares", h.Converged, h.Selected), Next: "tako status -n " + s.Namespace})
	}
	return sorted(list)
}

// notReady is why the newest commit is not applied.
func (f *Fleet) notReady(s *v1alpha1.Source) []Finding {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	stopped := s.Spec.Suspend != nil && meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionSuspended)
	switch {
	case ready == nil && stopped:
		return nil // that says it
	case ready == nil, s.Status.ObservedGeneration < s.Generation && !stopped:
		return []Finding{{Weight: Waiting, What: "Not looked at", Text: fmt.Sprintf("nobody has looked at generation %d yet", s.Generation)}}
	}
	switch {
	case ready.Status == metav1.ConditionTrue:
		return nil
	case len(s.Status.Faults) > 0:
		return faultsOf(s, ready)
	}
	x := Finding{Weight: Broken, What: wordsOf(ready.Reason), Text: ready.Message, Since: ready.LastTransitionTime}
	switch ready.Reason {
	case string(schedule.Waiting):
		x.Weight = Waiting
		if on := f.firstNotReady(s); on != "" {
			x.Next = "tako why " + on
		}
	case v1alpha1.SourceProgressing:
		x.Weight = Waiting
		x.Next = "tako status -n " + s.Namespace
	case v1alpha1.SourceRemoving:
		x.Weight = Waiting
	case v1alpha1.SourceNotWell:
		x.Next = "tako status -n " + s.Namespace
	case v1alpha1.SourceNotAllowed:
		x.Next = grant(s)
	case v1alpha1.SourceDependencyCycle:
		x.Next = "tako edit " + sourceArgument(s)
	default:
		x.Next = "tako source reconcile " + s.Name + " -n " + s.Namespace + " --wait"
	}
	return []Finding{x}
}

// firstNotReady is the first source that one waits for, as it is named on a command line.
func (f *Fleet) firstNotReady(s *v1alpha1.Source) string {
	for _, d := range s.Spec.DependsOn {
		namespace := cmp.Or(d.Namespace, s.Namespace)
		on := f.Source(namespace, d.Name)
		if on == nil || !meta.IsStatusConditionTrue(on.Status.Conditions, v1alpha1.ConditionReady) {
			return "source/" + d.Name + " -n " + namespace
		}
	}
	return ""
}

// faultsOf are the mistakes of the newest commit, each with what mends it.
func faultsOf(s *v1alpha1.Source, ready *metav1.Condition) []Finding {
	var list []Finding
	for i := range s.Status.Faults {
		d := &s.Status.Faults[i]
		x := Finding{Weight: Broken, What: wordsOf(ready.Reason), Text: d.Message, Code: d.Code, Since: ready.LastTransitionTime,
			Next: "tako source diff " + s.Name + " -n " + s.Namespace + " --path . checks a checkout before it is pushed"}
		if d.File != "" {
			x.Text = placeOf(d) + ": " + d.Message
		}
		if i == 0 && s.Status.Applied != nil {
			x.Evidence = "commit " + commitText(s.Status.Applied) + " stays applied"
		}
		if d.Code == reason.NotAllowed.String() {
			x.Next = grant(s)
		}
		list = append(list, x)
	}
	if more := s.Status.MoreFaults; more > 0 {
		list = append(list, Finding{Weight: Broken, What: wordsOf(ready.Reason), Text: fmt.Sprintf("and %d more mistakes", more), Since: ready.LastTransitionTime})
	}
	return list
}

// placeOf is where a mistake stands; a line of 0 is the whole file, a column of 0 the whole line.
func placeOf(d *v1alpha1.SourceFault) string {
	switch {
	case d.Line == 0:
		return d.File
	case d.Column == 0:
		return fmt.Sprintf("%s:%d", d.File, d.Line)
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
}

// grant is a command that gives a source rights in its namespace.
func grant(s *v1alpha1.Source) string {
	user, _ := origin.User(s.Namespace, s.Name)
	return fmt.Sprintf("kubectl create rolebinding %s --clusterrole=admin --user=%s -n %s", s.Name, user, s.Namespace)
}

// wordsOf makes of the reason of a condition what people read: CommitRefused is Commit refused.
func wordsOf(reason string) string {
	var b strings.Builder
	for i, r := range reason {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// leftText names what a source declares no more and does not delete. Without a name it is all that there is of a kind in a namespace.
func leftText(d *v1alpha1.SourceObject) string {
	name := strings.TrimSpace(d.Kind + " " + d.Name)
	if d.Namespace != "" {
		name += " in namespace " + d.Namespace
	}
	return name + " is declared no more, and stays: " + d.Message
}

// traceOf is a command that shows where an object is from and who has changed it.
func traceOf(d *v1alpha1.SourceObject) string {
	kind := strings.ToLower(d.Kind)
	if group, _, found := strings.Cut(d.APIVersion, "/"); found {
		kind += "." + group
	}
	text := "tako trace " + kind + "/" + d.Name
	if d.Name == "" { // nobody may see what it is called
		return ""
	}
	if d.Namespace != "" {
		text += " -n " + d.Namespace
	}
	return text
}
