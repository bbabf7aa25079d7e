// Package placement shows what applying files would change, and where the instances of the workloads among them would go. What it says follows from
// what the server has answered.
package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
)

// Outcome is what applying would change, as programs read it.
type Outcome struct {
	// Changes are the objects that would be others than they are, in the order in which they would be applied, then those that would be deleted.
	Changes []Change `json:"changes"`
	// Plans are the server's answers about workloads: one for each namespace, by its name.
	Plans []v1alpha1.Plan `json:"plans,omitempty"`
}

// Change is one object.
type Change struct {
	// Object is RESOURCE.GROUP/NAME.
	Object    string `json:"object"`
	Namespace string `json:"namespace,omitempty"`
	// Action is created, configured or deleted.
	Action string `json:"action"`
	// Unchecked is why the server could not say more. Left out where it could.
	Unchecked string `json:"unchecked,omitempty"`

	workload bool
	name     string
}

var ofWorkloads = v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindWorkload)

// Ask asks the server where instances would go, and changes nothing there. Errors are *failure.Error.
func Ask(ctx context.Context, server *remote.Server, changes []*plan.Change, leftovers []prune.Leftover) (*Outcome, error) {
	o := &Outcome{Changes: []Change{}}
	questions := map[string]*v1alpha1.PlanSpec{}
	about := func(ref remote.Ref) *v1alpha1.PlanSpec {
		if questions[ref.Namespace] == nil {
			questions[ref.Namespace] = &v1alpha1.PlanSpec{}
		}
		return questions[ref.Namespace]
	}
	for _, c := range changes {
		action := c.Verb()
		if action == "unchanged" {
			continue
		}
		change := newChange(c.Ref, action)
		change.Unchecked = c.Unchecked
		o.Changes = append(o.Changes, change)
		if !change.workload || c.After == nil {
			continue
		}
		planned, err := plannedOf(c.After)
		if err != nil {
			return nil, failure.Of(err, "read what the server makes of "+c.Ref.Long())
		}
		s := about(c.Ref)
		s.Workloads = append(s.Workloads, *planned)
	}
	for _, l := range leftovers {
		change := newChange(l.Ref, "deleted")
		o.Changes = append(o.Changes, change)
		if change.workload {
			s := about(l.Ref)
			s.Delete = append(s.Delete, l.Ref.Name)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(questions)) {
		answer, err := ask(ctx, server, namespace, questions[namespace])
		if err != nil {
			return nil, failure.Of(err, "ask where instances in namespace "+namespace+" would go")
		}
		o.Plans = append(o.Plans, *answer)
	}
	return o, nil
}

func newChange(ref remote.Ref, action string) Change {
	return Change{Object: ref.String(), Namespace: ref.Namespace, Action: action, workload: ref.Kind.GroupVersionKind == ofWorkloads, name: ref.Name}
}

// plannedOf is a workload as the server would have it, with what decides where it goes.
func plannedOf(after *unstructured.Unstructured) (*v1alpha1.PlannedWorkload, error) {
	var w v1alpha1.Workload
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(after.Object, &w); err != nil {
		return nil, err
	}
	p := &v1alpha1.PlannedWorkload{Name: w.Name, Spec: w.Spec}
	if approved, is := w.Annotations[v1alpha1.AnnotationApproved]; is {
		p.Annotations = map[string]string{v1alpha1.AnnotationApproved: approved}
	}
	return p, nil
}

func ask(ctx context.Context, server *remote.Server, namespace string, spec *v1alpha1.PlanSpec) (*v1alpha1.Plan, error) {
	kind, err := server.KindOf(ctx, v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindPlan))
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Plan{Spec: *spec})
	if err != nil {
		return nil, err
	}
	question := &unstructured.Unstructured{Object: fields}
	question.SetGroupVersionKind(kind.GroupVersionKind)
	question.SetNamespace(namespace)
	unstructured.RemoveNestedField(question.Object, "status")
	answer, err := server.Create(ctx, kind, question)
	if err != nil {
		return nil, err
	}
	p := &v1alpha1.Plan{}
	return p, runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, p)
}

// Forms are the forms in which an outcome is written, beside the one for people.
func Forms() []string { return []string{"json", "yaml"} }

// Write writes it in a form: json, yaml, or empty for people.
func (o *Outcome) Write(w io.Writer, form string) error {
	switch form {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(o)
	case "yaml":
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	_, err := io.WriteString(w, o.text())
	return err
}

// Unchecked are what the server could say nothing about, with the reason, for people.
func (o *Outcome) Unchecked() []string {
	var all []string
	for _, c := range o.Changes {
		if c.Unchecked == "" {
			continue
		}
		text := c.Object + " was not checked by the server"
		if c.workload {
			text += ", which cannot say where its instances would go"
		}
		all = append(all, fmt.Sprintf("%s: %s", text, c.Unchecked))
	}
	return all
}
