package prune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// Options say how to look for what is left.
type Options struct {
	// All allows that nothing of the set is left. Default false: that is refused.
	All bool
	// Warn gets what a person should know and what stops nothing. It must be set.
	Warn func(text string)
	// Members are those of the set, where somebody has them already; the Object of one that is declared may be nil. Default they are listed.
	Members []Leftover
	// Left gets what goes no more, and why: others hold it, or the caller has not the right. Its reference has no name for all of a kind in
	// a namespace. Default Warn is told who holds it, and a right that is missing is an error.
	Left func(left Leftover, why Held)
	// Places names the namespaces in which a caller who may not list all objects of a kind looks for them. Default the set's own.
	Places func(ctx context.Context, kind remote.Kind) ([]string, error)
}

// Held is why an object stays.
type Held struct {
	Words   string
	Allowed bool // a right is not what is missing
}

// Leftover is an object of a set that is declared no more.
type Leftover struct {
	Ref    remote.Ref
	Object *unstructured.Unstructured
	set    Set
}

// Leftovers returns what is of the set and not declared, in the order in which it goes: the opposite of that of creation.
// Nothing is changed, and the server has agreed to every deletion. Kinds that the caller may not list, and namespaces and
// kinds that hold what others made, are told and passed over. Errors are *failure.Error.
func (s Set) Leftovers(ctx context.Context, server *remote.Server, declared []remote.Ref, options Options) ([]Leftover, error) {
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	members := options.Members
	if members == nil {
		if members, err = s.members(ctx, server, kinds, options); err != nil {
			return nil, err
		}
	}
	gone := undeclared(members, declared)
	going, err := s.going(ctx, server, kinds, gone, options)
	if err != nil {
		return nil, err
	}
	if !options.All && len(going) > 0 && isAll(gone, members) && !anyReplaced(going, declared) {
		return nil, &failure.Error{Code: reason.Conflict, Exit: reason.ExitConflict, Doing: "prune set " + s.value,
			Words: fmt.Sprintf("nothing that it has is declared, and all of it would be deleted, such as %s", going[0].Ref.Long()),
			Hint:  "are these the files of this set? --prune-all says that they are"}
	}
	return going, nil
}

// going is what of the undeclared is deleted: what nobody holds, and the server agrees to.
func (s Set) going(ctx context.Context, server *remote.Server, kinds []remote.Kind, gone []Leftover, options Options) ([]Leftover, error) {
	h := &holders{server: server, kinds: kinds, going: map[types.UID]bool{}}
	for _, l := range gone {
		h.going[l.Object.GetUID()] = true
	}
	var going []Leftover
	for _, l := range gone {
		held, err := h.holds(ctx, l)
		if err != nil {
			return nil, err
		}
		if held != "" {
			options.left(l, Held{Words: held, Allowed: true})
			continue
		}
		_, err = l.Delete(ctx, server, true)
		if apierrors.IsForbidden(err) && options.Left != nil {
			options.Left(l, Held{Words: "not allowed to delete it"})
			continue
		}
		if err != nil {
			return nil, failure.Of(err, "delete "+l.Ref.Long())
		}
		going = append(going, l)
	}
	return going, nil
}

// left tells of an object that stays.
func (o *Options) left(l Leftover, why Held) {
	if o.Left != nil {
		o.Left(l, why)
		return
	}
	o.Warn(fmt.Sprintf("%s is not declared any more and stays: %s", l.Ref.Long(), why.Words))
}

// Members are all objects of the set. Kinds that the caller may not list are told and passed over. Errors are *failure.Error.
func (s Set) Members(ctx context.Context, server *remote.Server, options Options) ([]Leftover, error) {
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	return s.members(ctx, server, kinds, options)
}

// members are all objects of the set, in the order in which they go.
func (s Set) members(ctx context.Context, server *remote.Server, kinds []remote.Kind, options Options) ([]Leftover, error) {
	var members []Leftover
	for _, kind := range kinds {
		if !kind.Can("list") || !kind.Can("delete") {
			continue
		}
		err := s.eachOf(ctx, server, kind, options, func(o *unstructured.Unstructured) {
			// What another object controls goes with that one; what is on its way goes by itself.
			if metav1.GetControllerOf(o) == nil && o.GetDeletionTimestamp() == nil {
				members = append(members, Leftover{Ref: remote.RefOf(kind, o), Object: o, set: s})
			}
		})
		if apierrors.IsNotFound(err) {
			continue // the definition of the kind has gone since the server was asked which there are, and all objects with it
		}
		if err != nil {
			return nil, failure.Of(err, "list the "+kind.Resource+" of set "+s.value)
		}
	}
	slices.SortStableFunc(members, func(a, b Leftover) int {
		return cmp.Compare(documents.Rank(b.Ref.Kind.GroupKind()), documents.Rank(a.Ref.Kind.GroupKind()))
	})
	return members, nil
}

// eachOf hands on the objects of a kind that are of the set: all that there are, or, to a caller who may not list all, those of the places.
func (s Set) eachOf(ctx context.Context, server *remote.Server, kind remote.Kind, options Options, each func(*unstructured.Unstructured)) error {
	list := func(namespace string) error {
		_, err := server.List(ctx, remote.Query{Kind: kind, Namespace: namespace, Labels: Label + "=" + s.value}, func(o *unstructured.Unstructured) error {
			if s.Holds(o) {
				each(o)
			}
			return nil
		})
		return err
	}
	err := list("")
	if !apierrors.IsForbidden(err) {
		return err
	}
	own, _, _ := strings.Cut(s.value, ".") // a namespace has no dot
	places := []string{own}
	if !kind.Namespaced {
		places = nil
	}
	if options.Places != nil {
		if places, err = options.Places(ctx, kind); err != nil {
			return err
		}
	}
	if !kind.Namespaced && options.Places == nil {
		options.Warn(fmt.Sprintf("%s are not looked through: not allowed to list them", kind.Resource))
	}
	for _, place := range places {
		err := list(place)
		switch {
		case apierrors.IsForbidden(err) && options.Left != nil && options.Places != nil:
			options.Left(Leftover{Ref: remote.Ref{Kind: kind, Namespace: place}, set: s}, Held{Words: "not allowed to list what the set has there"})
		case apierrors.IsForbidden(err):
			options.Warn(fmt.Sprintf("%s are not looked through: not allowed to list them", kind.Resource))
		case err != nil:
			return err
		}
	}
	return nil
}

func undeclared(members []Leftover, declared []remote.Ref) []Leftover {
	kept := map[string]bool{}
	for _, ref := range declared {
		kept[ref.Long()] = true
	}
	var gone []Leftover
	for _, m := range members {
		if !kept[m.Ref.Long()] {
			gone = append(gone, m)
		}
	}
	return gone
}

// isAll reports whether all that goes is all that there is. Namespaces do not count: files of two sets often have the same.
func isAll(gone, members []Leftover) bool {
	count := func(list []Leftover) (n int) {
		for _, l := range list {
			if l.Ref.Kind.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
				n++
			}
		}
		return n
	}
	return len(gone) > 0 && count(gone) == count(members)
}

// generated is a name that kustomize makes of another one and of the content: a hash in ten of these letters.
var generated = regexp.MustCompile(`^(.+)-[2456789bcdfghkmt]{10}$`)

// anyReplaced reports whether one of the objects that go is there again under a generated name.
func anyReplaced(gone []Leftover, declared []remote.Ref) bool {
	stem := func(ref remote.Ref) (remote.Ref, bool) {
		m := generated.FindStringSubmatch(ref.Name)
		if m == nil {
			return ref, false
		}
		ref.Name = m[1]
		return ref, true
	}
	fresh := map[string]bool{}
	for _, ref := range declared {
		if named, ok := stem(ref); ok {
			fresh[named.Long()] = true
		}
	}
	return slices.ContainsFunc(gone, func(l Leftover) bool {
		named, ok := stem(l.Ref)
		return ok && fresh[named.Long()]
	})
}

// Delete deletes the leftover, and with it what it controls, unless it has left the set meanwhile or is another object by
// now: deleted is false then. A dry run deletes nothing and returns the same. Errors are those of the server.
func (l Leftover) Delete(ctx context.Context, server *remote.Server, dryRun bool) (deleted bool, err error) {
	now, err := server.Get(ctx, l.Ref)
	if apierrors.IsNotFound(err) || err == nil && (now.GetUID() != l.Object.GetUID() || !l.set.Holds(now)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = server.Delete(ctx, l.Ref, remote.DeleteOptions{DryRun: dryRun, Cascade: metav1.DeletePropagationBackground,
		UID: now.GetUID(), ResourceVersion: now.GetResourceVersion()})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// holders finds what others made in what is about to go.
type holders struct {
	server *remote.Server
	kinds  []remote.Kind
	going  map[types.UID]bool
}

// errHeld ends a list at the first object that counts.
var errHeld = errors.New("held")

// holds says what stands in a namespace, or is of a kind, and does not go with it; "" where nothing is lost.
func (h *holders) holds(ctx context.Context, l Leftover) (string, error) {
	switch l.Ref.Kind.GroupKind().String() {
	case "Namespace":
		for _, kind := range h.kinds {
			// Events are about what goes, and there are as many as of everything else together.
			if !kind.Namespaced || !kind.Can("list") || kind.Kind == "Event" {
				continue
			}
			if held, err := h.first(ctx, remote.Query{Kind: kind, Namespace: l.Ref.Name}); held != "" || err != nil {
				return held, err
			}
		}
	case "CustomResourceDefinition.apiextensions.k8s.io":
		group, _, _ := unstructured.NestedString(l.Object.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(l.Object.Object, "spec", "names", "plural")
		for _, kind := range h.kinds {
			if kind.Group == group && kind.Resource == plural {
				return h.first(ctx, remote.Query{Kind: kind})
			}
		}
	}
	return "", nil
}

// first says in words what is the first object of a query that stays.
func (h *holders) first(ctx context.Context, query remote.Query) (string, error) {
	held := ""
	_, err := h.server.List(ctx, query, func(o *unstructured.Unstructured) error {
		owner := metav1.GetControllerOf(o)
		if h.going[o.GetUID()] || owner != nil && h.going[owner.UID] || o.GetDeletionTimestamp() != nil {
			return nil
		}
		held = remote.RefOf(query.Kind, o).Long() + " would go with it"
		return errHeld
	})
	switch {
	case apierrors.IsForbidden(err):
		return "not allowed to see whether there are " + query.Kind.Resource + " that would go with it", nil
	case err != nil && !errors.Is(err, errHeld):
		return "", failure.Of(err, "list the "+query.Kind.Resource+" that would go")
	}
	return held, nil
}
