package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Revision is one state of a config that can be gone back to.
type Revision struct {
	Name      string      `json:"name"`
	Created   metav1.Time `json:"created"`
	Resources int         `json:"resources"`
	// Nodes are the nodes that are to have it now.
	Nodes []string `json:"nodes,omitempty"`
	// Notes say what it is to the config: declared, what its rollout goes to, what was proven last.
	Notes []string `json:"notes,omitempty"`
}

// revisionKind is the kind of the revisions of a config.
func revisionKind(ctx context.Context, server *remote.Server, c *Config) (remote.Kind, error) {
	resource := v1alpha1.ResourceRevisions
	if c.Meta.Namespace == "" {
		resource = v1alpha1.ResourceClusterRevisions
	}
	return server.Find(ctx, resource+"."+v1alpha1.GroupName)
}

// Revisions asks for the revisions of a config, the newest first.
func (f *Fleet) Revisions(ctx context.Context, server *remote.Server, c *Config) ([]Revision, error) {
	kind, err := revisionKind(ctx, server, c)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	list := []Revision{}
	_, err = server.List(ctx, remote.Query{Kind: kind, Namespace: c.Meta.Namespace}, func(o *unstructured.Unstructured) error {
		r, err := as[v1alpha1.Revision](o) // a ClusterRevision has the same form
		if err == nil && r.Spec.Source != nil && r.Spec.Source.UID == c.Meta.UID {
			list = append(list, Revision{Name: r.Name, Created: r.CreationTimestamp, Resources: len(r.Spec.Resources), Nodes: f.havingRevision(c.ID, r.Name), Notes: c.notes(r.Name)})
		}
		return err
	})
	if err != nil {
		return nil, failure.Of(err, "list "+kind.Resource)
	}
	slices.SortStableFunc(list, func(a, b Revision) int {
		return cmp.Or(b.Created.Compare(a.Created.Time), b.newest()-a.newest(), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

const declaredNote = "declared"

// newest tells revisions of the same second apart: the one that is declared is the last.
func (r *Revision) newest() int {
	if slices.Contains(r.Notes, declaredNote) {
		return 1
	}
	return 0
}

func (f *Fleet) havingRevision(id, name string) []string {
	var names []string
	for i := range f.Nodes {
		a := f.Assignments[f.Nodes[i].Name]
		if a == nil {
			continue
		}
		if layer := layerOf(a, id); layer != nil && layer.Revision == name {
			names = append(names, f.Nodes[i].Name)
		}
	}
	return names
}

func (c *Config) notes(revision string) []string {
	var notes []string
	note := func(of, words string) {
		if of == revision {
			notes = append(notes, words)
		}
	}
	note(c.Status.Revision, declaredNote)
	if r := c.Status.Rollout; r != nil {
		if failedTarget(r) {
			note(r.Target, "failed "+reason.RolloutFailed.String())
		} else {
			note(r.Target, strings.ToLower(r.Phase))
		}
		note(r.Proven, "proven")
	}
	return notes
}

// WriteRevisions writes revisions as a table.
func WriteRevisions(w io.Writer, list []Revision, now time.Time, style present.Style) error {
	table := present.Table{Header: []string{"REVISION", "RESOURCES", "NODES", "STATE", "AGE"}}
	for i := range list {
		r := &list[i]
		nodes := fmt.Sprint(len(r.Nodes))
		if len(r.Nodes) > 0 {
			nodes += ": " + few(r.Nodes)
		}
		table.Add(r.Name, fmt.Sprint(r.Resources), nodes, cmp.Or(strings.Join(r.Notes, ", "), "-"), present.Duration(max(now.Sub(r.Created.Time), 0)))
	}
	return table.Write(w, style)
}

// Undo declares the resources of an earlier revision of a config again: of to, or where that is empty, of the one that was proven last. It
// returns which one. Everything else that is declared stays.
func Undo(ctx context.Context, server *remote.Server, c *Config, to string) (string, error) {
	if s := c.Status.Rollout; to == "" && s != nil {
		to = s.Proven
	}
	doing := "undo the rollout of " + c.ref.Long()
	if s := c.Status.Rollout; s != nil && to == c.Status.Revision && ofOtherValue(s) {
		return "", failure.Stalled(doing, "all hosts had converged on this revision; a value that it takes is another, and no revision brings that back",
			"tako why "+c.Argument()+" names the value: put the old one back, and the hosts that have the new one get it")
	}
	if to == "" || to == c.Status.Revision {
		return "", failure.Stalled(doing, "there is no earlier state that all hosts had converged on", "tako rollout history "+c.Argument()+" lists what there is; name one with --to-revision")
	}
	resources, err := resourcesOf(ctx, server, c, to)
	if err != nil {
		return "", failure.Of(err, doing)
	}
	object, err := server.Get(ctx, c.ref)
	if err != nil {
		return "", failure.Of(err, doing)
	}
	declared := output.Declared(object)
	if err := unstructured.SetNestedSlice(declared.Object, resources, "spec", "resources"); err != nil {
		return "", fmt.Errorf("%s: %w", doing, err)
	}
	unstructured.RemoveNestedField(declared.Object, "spec", "rollout", "try") // what is gone back to was proven
	_, err = Declare(ctx, server, c.ref, object, declared, false)
	if err != nil {
		return "", failure.Of(err, doing)
	}
	return to, nil
}

// Declare applies what was made of an object that was read before, under the name of whoever applied that last, so that the next apply of
// a file that has the change too is no conflict. What somebody has declared since it was read is not lost: then it is a conflict. That its status is another
// one is none.
func Declare(ctx context.Context, server *remote.Server, ref remote.Ref, read, declared *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	options := remote.ApplyOptions{Force: true, Manager: applier(read), DryRun: dryRun}
	for range attemptsMax {
		declared.SetResourceVersion(read.GetResourceVersion())
		applied, err := server.Apply(ctx, ref, declared, options)
		if !apierrors.IsConflict(err) {
			return applied, err
		}
		now, unread := server.Get(ctx, ref)
		if unread != nil {
			return nil, unread
		}
		if !declareTheSame(read, now) {
			return nil, err
		}
		read = now
	}
	return nil, cmp.Or(ctx.Err(), errBusy)
}

// declareTheSame says whether all that people say is the same in two versions of an object.
func declareTheSame(one, other *unstructured.Unstructured) bool {
	return one.GetUID() == other.GetUID() && one.GetGeneration() == other.GetGeneration() &&
		maps.Equal(one.GetLabels(), other.GetLabels()) && maps.Equal(one.GetAnnotations(), other.GetAnnotations())
}

// applier is who applied an object last; empty where nobody did.
func applier(object *unstructured.Unstructured) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		newer := last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && newer {
			last = entry
		}
	}
	return last.Manager
}

// resourcesOf are the resources of a revision of a config.
func resourcesOf(ctx context.Context, server *remote.Server, c *Config, name string) ([]any, error) {
	kind, err := revisionKind(ctx, server, c)
	if err != nil {
		return nil, err
	}
	revision, err := server.Get(ctx, remote.Ref{Kind: kind, Namespace: c.Meta.Namespace, Name: name})
	if err != nil {
		return nil, err
	}
	list, _, err := unstructured.NestedSlice(revision.Object, "spec", "resources")
	uid, _, _ := unstructured.NestedString(revision.Object, "spec", "source", "uid")
	switch {
	case err != nil:
		return nil, err
	case cmp.Or(uid, string(c.Meta.UID)) != string(c.Meta.UID):
		return nil, errors.New("revision " + name + " is of another config")
	case list == nil:
		list = []any{}
	}
	return list, nil
}
