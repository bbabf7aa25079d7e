package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// setLabel marks what was applied as one set, so that what is not in its files any more can be found and deleted.
const setLabel = "tako.dev/set"

// mark puts every document into a set.
func mark(list []documents.Document, set string) error {
	if faults := validation.IsValidLabelValue(set); len(faults) > 0 {
		return failure.Usage(fmt.Sprintf("read --set %q", set), faults[0], "")
	}
	for i := range list {
		object := list[i].Object
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[setLabel] = set
		object.SetLabels(labels)
	}
	return nil
}

// leftovers are the objects of a set that are in none of its documents any more, in the order in which they go: the
// opposite of that of creation. Kinds that the caller may not list are told and passed over.
func (p *program) leftovers(ctx context.Context, server *remote.Server, set string, changes []*change) ([]remote.Ref, error) {
	kept := map[string]bool{}
	for _, c := range changes {
		kept[c.ref.Long()] = true
	}
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	var gone []remote.Ref
	for _, kind := range kinds {
		if !kind.Can("list") || !kind.Can("delete") {
			continue
		}
		_, err := server.List(ctx, remote.Query{Kind: kind, Labels: setLabel + "=" + set}, func(o *unstructured.Unstructured) error {
			ref := remote.RefOf(kind, o)
			// What belongs to another object goes with that one.
			if !kept[ref.Long()] && metav1.GetControllerOf(o) == nil && o.GetDeletionTimestamp() == nil {
				gone = append(gone, ref)
			}
			return nil
		})
		if apierrors.IsForbidden(err) {
			p.warn(fmt.Sprintf("%s are not looked through: not allowed to list them", kind.Resource))
			continue
		}
		if err != nil {
			return nil, failure.Of(err, "list the "+kind.Resource+" of set "+set)
		}
	}
	slices.SortStableFunc(gone, func(a, b remote.Ref) int {
		return cmp.Compare(documents.Rank(b.Kind.GroupKind()), documents.Rank(a.Kind.GroupKind()))
	})
	return gone, nil
}

// prune deletes what is left of a set.
func (p *program) prune(ctx context.Context, server *remote.Server, f *applyFlags, report *applied, changes []*change) error {
	if !f.prune {
		return nil
	}
	gone, err := p.leftovers(ctx, server, f.set, changes)
	if err != nil {
		return err
	}
	word := "deleted"
	if f.dryRun == "server" {
		word += " (dry run)"
	}
	for _, ref := range gone {
		options := remote.DeleteOptions{DryRun: f.dryRun == "server", Cascade: metav1.DeletePropagationBackground}
		if err := server.Delete(ctx, ref, options); err != nil && !apierrors.IsNotFound(err) {
			return failure.Of(err, "delete "+ref.Long())
		}
		if err := report.deleted(ref, word); err != nil {
			return err
		}
	}
	return nil
}
