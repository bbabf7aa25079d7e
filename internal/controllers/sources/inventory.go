package sources

import (
	"context"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
)

// begin is a run with the Source's own rights.
func (l *look) begin() (*run, error) {
	server, err := remote.New(impersonated(l.of.options.Config, l.source), remote.Options{UserAgent: origin.Manager})
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "reach the API as a source", Cause: err}
	}
	set, err := prune.ParseSet(l.source.Namespace, l.source.Name)
	if err != nil {
		return nil, err
	}
	return &run{look: l, server: server, next: map[string]object{},
		options: plan.Options{Namespace: l.source.Namespace, Set: set.By(origin.Manager, ""), Manager: origin.Manager}}, nil
}

// pruning is how a run looks for what it has applied. left gets what stays.
func (r *run) pruning(left func(prune.Leftover, prune.Held)) prune.Options {
	return prune.Options{Warn: r.warn, Left: left, Places: r.places}
}

// places are the namespaces with objects of a kind that the Source has applied. It is asked with the server's rights: a Source that may not
// list a kind everywhere cannot know where its last process has been. What is there it reads, and deletes, with its own.
func (r *run) places(ctx context.Context, kind remote.Kind) ([]string, error) {
	server, err := remote.New(r.of.options.Config, remote.Options{UserAgent: origin.Manager})
	if err != nil {
		return nil, err
	}
	var places []string
	query := remote.Query{Kind: kind, Labels: prune.Label + "=" + r.options.Set.String()}
	_, err = server.List(ctx, query, func(o *unstructured.Unstructured) error {
		if r.options.Set.Holds(o) && !slices.Contains(places, o.GetNamespace()) {
			places = append(places, o.GetNamespace())
		}
		return nil
	})
	return places, err
}

// isItself tells whether an object is the Source.
func (l *look) isItself(ref remote.Ref) bool {
	return ref.Kind.Group == v1alpha1.GroupName && ref.Kind.Kind == v1alpha1.KindSource && ref.Namespace == l.key.Namespace && ref.Name == l.key.Name
}

// placed are references as the server tells of their kinds: those of kinds that the commit itself defines are complete when it is applied.
func (r *run) placed(refs []remote.Ref) []remote.Ref {
	type place struct {
		kind            schema.GroupVersionKind
		namespace, name string
	}
	of := func(ref remote.Ref) place { return place{ref.Kind.GroupVersionKind, ref.Namespace, ref.Name} }
	late := map[place]remote.Ref{}
	for _, t := range r.touched {
		if t.Unchecked != "" {
			late[of(t.Ref)] = t.Ref
		}
	}
	for i, ref := range refs {
		now, is := late[of(ref)]
		if !is {
			continue
		}
		o := r.next[ref.Long()]
		delete(r.next, ref.Long())
		refs[i] = now
		r.next[now.Long()] = o
	}
	return refs
}

// stopped is an error when the Source was suspended or deleted since the look began: nothing more is written then.
func (l *look) stopped() error {
	src := l.current()
	words := ""
	switch s := src.Spec.Suspend; {
	case src.DeletionTimestamp != nil:
		words = "the source is deleted"
	case s != nil && time.Now().Before(s.Until.Time):
		words = "the source is suspended"
	default:
		return nil
	}
	return &failure.Error{Code: reason.Interrupted, Exit: reason.ExitFailed, Doing: "apply a commit", Words: words}
}

// rightsLast is the order in which a Source deletes.
func (r *run) rightsLast(leftovers []prune.Leftover) []prune.Leftover {
	user, groups := origin.User(r.key.Namespace, r.key.Name)
	return prune.RightsLast(leftovers, user, groups)
}

// tellLeft makes an Event of something that stays though it is declared no more.
func (l *look) tellLeft(ref remote.Ref, why string) {
	l.of.options.Recorder.Tell(l.reference(), core.EventTypeWarning, "Left", nameOfLeft(ref)+" is declared no more, and stays: "+why)
}

// nameOfLeft names it. Without a name it is what there is of a kind in a namespace.
func nameOfLeft(ref remote.Ref) string {
	if ref.Name != "" {
		return ref.Long()
	}
	if ref.Namespace == "" {
		return ref.Kind.Resource
	}
	return ref.Kind.Resource + " in namespace " + ref.Namespace
}

// left notes an object that stays.
func (r *run) left(left prune.Leftover, held prune.Held) {
	ref := left.Ref
	if !slices.ContainsFunc(r.current().Status.Left, func(o v1alpha1.SourceObject) bool {
		return o.Kind == ref.Kind.Kind && o.Namespace == ref.Namespace && o.Name == ref.Name
	}) {
		r.tellLeft(ref, held.Words)
	}
	if len(r.source.Status.Left) < shownMax {
		r.source.Status.Left = append(r.source.Status.Left, v1alpha1.SourceObject{
			APIVersion: ref.Kind.GroupVersion().String(), Kind: ref.Kind.Kind, Namespace: ref.Namespace, Name: ref.Name, Message: held.Words,
		})
	}
}
