package workloads

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// Revision is one template that a workload has had.
type Revision struct {
	Name    string      `json:"name"`
	Number  int         `json:"number"`
	Created metav1.Time `json:"created"`
	// Instances counts those that have it.
	Instances int `json:"instances"`
	// Notes say what it is to the workload: declared, what its rollout goes to, stable, failed.
	Notes []string `json:"notes,omitempty"`

	template map[string]any // as the server has it: a later one may know more of it
}

// Revisions lists the revisions of a workload, the newest first.
func (w *Workload) Revisions(ctx context.Context, server *remote.Server) ([]Revision, error) {
	kind, err := server.Find(ctx, v1alpha1.ResourceRevisions+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	list := []Revision{}
	query := remote.Query{Kind: kind, Namespace: w.Namespace, Labels: v1alpha1.LabelWorkload + "=" + w.Name}
	_, err = server.List(ctx, query, func(o *unstructured.Unstructured) error {
		r, err := as[v1alpha1.Revision](o)
		if err != nil || r.Spec.Template == nil || r.Spec.Source == nil || r.Spec.Source.UID != w.UID {
			return err
		}
		is := w.revision(&r)
		is.template, _, err = unstructured.NestedMap(o.Object, "spec", "template")
		list = append(list, is)
		return err
	})
	if err != nil {
		return nil, failure.Of(err, "list "+kind.Resource)
	}
	slices.SortFunc(list, func(a, b Revision) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Name, b.Name)) // as numbers: 10 is newer than 9
	})
	return list, nil
}

func (w *Workload) revision(r *v1alpha1.Revision) Revision {
	out := Revision{Name: r.Name, Number: r.Number(), Created: r.CreationTimestamp}
	for i := range w.Instances {
		if w.Instances[i].Spec.Revision == r.Name {
			out.Instances++
		}
	}
	s := &w.Status
	note := func(is bool, words string) {
		if is {
			out.Notes = append(out.Notes, words)
		}
	}
	note(r.Name == w.declared(), "declared")
	note(s.Rollout != nil && s.Rollout.Goal == r.Name && s.Phase != "", strings.ToLower(s.Phase))
	note(s.Stable == r.Name, "stable")
	if at := slices.IndexFunc(s.Failed, func(f v1alpha1.FailedRevision) bool { return f.Revision == r.Name }); at >= 0 {
		note(true, "failed "+s.Failed[at].Code)
	}
	return out
}

// declared is the name of the revision that the workload declares; empty where nobody has looked at what it declares now.
func (w *Workload) declared() string {
	if r := w.Status.Rollout; r != nil && w.Status.ObservedGeneration == w.Generation {
		return r.Target
	}
	return ""
}

// WriteRevisions writes revisions as a table.
func WriteRevisions(out io.Writer, list []Revision, now time.Time, style present.Style) error {
	table := present.Table{Header: []string{"NUMBER", "REVISION", "INSTANCES", "STATE", "AGE"}}
	for i := range list {
		r := &list[i]
		table.Add(fmt.Sprint(r.Number), r.Name, fmt.Sprint(r.Instances), cmp.Or(strings.Join(r.Notes, ", "), "-"), present.Duration(max(now.Sub(r.Created.Time), 0)))
	}
	return table.Write(out, style)
}

// Undo declares the template of an earlier revision again, and returns the revision's name: of the one that is named, or of the last that was stable,
// or else of the last before the one that is declared.
func (w *Workload) Undo(ctx context.Context, server *remote.Server, name string) (string, error) {
	doing := "undo the rollout of " + w.ref.Long()
	list, err := w.Revisions(ctx, server)
	if err != nil {
		return "", err
	}
	to, err := w.earlier(list, name, doing)
	if err != nil {
		return "", err
	}
	object, err := server.Get(ctx, w.ref)
	if err != nil {
		return "", failure.Of(err, doing)
	}
	declaration := output.Declared(object)
	if err := unstructured.SetNestedMap(declaration.Object, to.template, "spec", "template"); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	if _, err = fleet.Declare(ctx, server, w.ref, object, declaration, false); err != nil {
		return "", failure.Of(err, doing)
	}
	return to.Name, nil
}

// earlier picks the revision to go back to.
func (w *Workload) earlier(list []Revision, name, doing string) (*Revision, error) {
	declared := w.declared()
	find := func(is func(*Revision) bool) *Revision {
		for i := range list {
			if is(&list[i]) {
				return &list[i]
			}
		}
		return nil
	}
	history := "tako rollout history " + w.Argument() + " lists what there is"
	if name != "" {
		to := find(func(r *Revision) bool { return r.Name == name || fmt.Sprint(r.Number) == name })
		switch {
		case to == nil:
			return nil, failure.NotFound(doing, "it has no revision "+name, history)
		case to.Name == declared:
			return nil, failure.Stalled(doing, to.Name+" is what is declared", history)
		}
		return to, nil
	}
	if to := find(func(r *Revision) bool { return r.Name == w.Status.Stable && r.Name != declared }); to != nil {
		return to, nil
	}
	now := find(func(r *Revision) bool { return r.Name == declared })
	to := find(func(r *Revision) bool {
		return now != nil && r.Number < now.Number && !slices.ContainsFunc(w.Status.Failed, func(f v1alpha1.FailedRevision) bool { return f.Revision == r.Name })
	})
	if to == nil {
		return nil, failure.Stalled(doing, "there is no earlier revision that has not failed", history+"; name one with --to-revision")
	}
	return to, nil
}

// awaited reports whether the rollout waits until somebody approves of it.
func (w *Workload) awaited(now time.Time) bool {
	_, manual, held := w.step()
	r := w.Status.Rollout
	return manual && held && !w.approved() && !now.Before(r.Held.Add(w.pause()))
}

// step is of a rollout that is under way the step that an approval is about, whether it needs one, and whether what it wants is available.
func (w *Workload) step() (step int, manual, held bool) {
	r, declared := w.Status.Rollout, &w.Spec.Rollout
	if r == nil || r.Over || w.declared() == "" || r.Goal != r.Target {
		return 0, false, false
	}
	switch declared.Strategy {
	case workload.Canary:
		step = int(r.Step)
		if step < len(declared.Steps) {
			return step, declared.Steps[step].PromotionOrDefault(declared) == workload.ManualPromotion, r.Held != nil
		}
	case workload.BlueGreen:
		return 0, r.Passed == nil && declared.PromotionOrDefault() == workload.ManualPromotion, r.Held != nil
	}
	return 0, false, false
}

// pause is how long the step that is under way is looked at.
func (w *Workload) pause() time.Duration {
	if declared := &w.Spec.Rollout; declared.Strategy == workload.Canary && int(w.Status.Rollout.Step) < len(declared.Steps) {
		return declared.Steps[w.Status.Rollout.Step].PauseOrDefault()
	}
	return 0
}

func (w *Workload) approved() bool {
	step, _, _ := w.step()
	revision, upTo, ok := v1alpha1.Approval(w.Annotations)
	return ok && revision == w.Status.Rollout.Goal && upTo >= step
}

// Promote lets a rollout go on that waits for approval, or will: of a canary past the step that is under way, or all that are left. It returns
// what was approved of, in words.
func (w *Workload) Promote(ctx context.Context, server *remote.Server, all bool) (string, error) {
	approval, said, err := w.approval(all)
	if err != nil {
		return "", err
	}
	changes := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationApproved: approval}, "resourceVersion": w.ResourceVersion}}
	if _, err = server.Patch(ctx, w.ref, changes, remote.EditManager); err != nil {
		return "", failure.Of(err, "promote "+w.ref.Long())
	}
	return said, nil
}

// approval is the annotation that lets the rollout go on.
func (w *Workload) approval(all bool) (text, said string, err error) {
	doing, more := "promote "+w.ref.Long(), "tako rollout status "+w.Argument()+" says how it stands"
	step, manual, _ := w.step()
	r, declared := w.Status.Rollout, &w.Spec.Rollout
	switch {
	case w.declared() == "":
		return "", "", failure.Stalled(doing, "nobody has looked at what is declared now", more)
	case r.Over:
		return "", "", failure.Stalled(doing, "no rollout is under way", more)
	case r.Goal != r.Target:
		return "", "", failure.Stalled(doing, r.Target+" has failed, and is being rolled back", more)
	case declared.Strategy == workload.Canary && all:
		step = len(declared.Steps) - 1
	case !manual:
		return "", "", failure.Stalled(doing, "it goes on by itself", "spec.rollout.promotion: Manual makes a canary, or a green half, wait for approval")
	}
	said = r.Target
	if declared.Strategy == workload.Canary {
		said = fmt.Sprintf("%s, step %d of %d", r.Target, step+1, len(declared.Steps))
	}
	return v1alpha1.ApprovalText(r.Target, step), said, nil
}
