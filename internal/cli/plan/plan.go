package plan

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// Options say how documents are meant.
type Options struct {
	// Namespace is that of documents which say none. It must be set for kinds that stand in one.
	Namespace string
	// Only refuses documents that say another namespace: a person has named this one. Default false.
	Only bool
	// Set is what the documents are put into. Default none.
	Set prune.Set
	// Manager is under whose name the documents are applied. It must be set.
	Manager string
	// Force takes over fields and objects that others own. Default false: they are a conflict.
	Force bool
	// Asked gets each change when the server was asked about it, several at once. It may set Before and After to nil, so that not all of
	// them are kept until the last one was asked about. Default none.
	Asked func(*Change)
}

// asksAtOnce is how many documents the server is asked about at a time: enough to hide a slow line, and far below what one
// client is allowed.
const asksAtOnce = 8

// Make asks the server what applying every document would do, and changes nothing there. The documents are put into their
// order, and into the set. The error is a *failure.Refused with every mistake of every document, or a failure that is about
// none of them.
func Make(ctx context.Context, server *remote.Server, source *documents.Source, options Options) ([]*Change, error) {
	options.Set.Mark(source.Documents)
	changes, b, err := place(ctx, server, source, options)
	if err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asksAtOnce)
	for _, c := range changes {
		if len(c.faults) == 0 {
			group.Go(func() error {
				if err := c.ask(ctx, server, options, b); err != nil {
					return err
				}
				if options.Asked != nil {
					options.Asked(c)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return changes, refusal(changes, source)
}

// Refs names the objects that documents are about, in the order of their creation. The error is that of Make.
func Refs(ctx context.Context, server *remote.Server, source *documents.Source, options Options) ([]remote.Ref, error) {
	changes, _, err := place(ctx, server, source, options)
	if err != nil {
		return nil, err
	}
	return RefsOf(changes), refusal(changes, source)
}

// RefsOf names the objects of changes.
func RefsOf(changes []*Change) []remote.Ref {
	refs := make([]remote.Ref, len(changes))
	for i, c := range changes {
		refs[i] = c.Ref
	}
	return refs
}

// refusal is the error that the faults of changes are, nil without any.
func refusal(changes []*Change, source *documents.Source) error {
	refused := &failure.Refused{Source: source.Bytes}
	for _, c := range changes {
		if len(c.faults) == 0 {
			continue
		}
		if len(refused.Faults) > 0 && refused.Exit != c.exit {
			c.exit = reason.ExitUsage // of several kinds of refusal, as package present does
		}
		refused.Exit = c.exit
		refused.Faults = append(refused.Faults, c.faults...)
	}
	if len(refused.Faults) == 0 {
		return nil
	}
	refused.Faults = declare.SortFaults(refused.Faults)
	return refused
}

// batch is what the documents of one run bring with them for one another.
type batch struct {
	namespaces map[string]bool
	kinds      map[schema.GroupKind]newKind
	roles      map[string]bool // and whatever else there is about rights, as Ref.Long says
}

// newKind is a kind that a CustomResourceDefinition among the documents defines.
type newKind struct {
	resource   string
	namespaced bool
}

func newBatch(list []documents.Document) batch {
	b := batch{namespaces: map[string]bool{}, kinds: map[schema.GroupKind]newKind{}, roles: map[string]bool{}}
	for i := range list {
		object := list[i].Object
		switch list[i].Kind().GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
			b.namespaces[object.GetName()] = true
		case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
			group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
			plural, _, _ := unstructured.NestedString(object.Object, "spec", "names", "plural")
			scope, _, _ := unstructured.NestedString(object.Object, "spec", "scope")
			b.kinds[schema.GroupKind{Group: group, Kind: kind}] = newKind{plural, scope == "Namespaced"}
		}
	}
	return b
}

// place finds the kind and namespace of every document.
func place(ctx context.Context, server *remote.Server, source *documents.Source, options Options) ([]*Change, batch, error) {
	documents.Sort(source.Documents)
	b := newBatch(source.Documents)
	changes := make([]*Change, len(source.Documents))
	for i := range source.Documents {
		c := &Change{document: &source.Documents[i]}
		if err := c.place(ctx, server, options, b); err != nil {
			return nil, b, err
		}
		changes[i] = c
		if c.Ref.Kind.Group == rbacGroup {
			b.roles[c.Ref.Long()] = true
		}
	}
	return changes, b, nil
}

func (c *Change) place(ctx context.Context, server *remote.Server, options Options, b batch) error {
	gvk := c.document.Kind()
	kind, err := server.KindOf(ctx, gvk)
	var unknown *remote.UnknownKind
	if brought, ok := b.kinds[gvk.GroupKind()]; ok && errors.As(err, &unknown) {
		kind = remote.Kind{GroupVersionKind: gvk, Resource: brought.resource, Namespaced: brought.namespaced}
		c.Unchecked = "its kind is defined in the same run"
		err = nil
	}
	if errors.As(err, &unknown) {
		c.fault(reason.UnknownKind, "kind", unknown.Error(), hintNear(unknown))
		return nil
	}
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	c.settle(kind, options)
	return nil
}

func hintNear(unknown *remote.UnknownKind) string {
	if unknown.Near == "" {
		return "`tako explain` lists the kinds"
	}
	return "there is " + unknown.Near
}

// settle decides which namespace a document is about.
func (c *Change) settle(kind remote.Kind, options Options) {
	object := c.document.Object
	own := object.GetNamespace()
	switch {
	case !kind.Namespaced && own != "":
		c.fault(reason.FieldNotAllowed, "metadata.namespace", kind.Kind+" stands in no namespace", "remove the field")
	case kind.Namespaced && own != "" && options.Only && own != options.Namespace:
		c.fault(reason.InvalidValue, "metadata.namespace", fmt.Sprintf("the document says namespace %q, the command line %q", own, options.Namespace), "leave one of them out")
	case kind.Namespaced && own == "":
		object.SetNamespace(options.Namespace)
	}
	c.Ref = remote.RefOf(kind, object)
}

func (c *Change) fault(code reason.Code, path, message, hint string) {
	c.exit = reason.ExitUsage
	c.faults = append(c.faults, c.document.Locate([]declare.Fault{{Code: code, Path: path, Message: message, Hint: hint}})...)
}

// ask has the server say what there is and what there would be.
func (c *Change) ask(ctx context.Context, server *remote.Server, options Options, b batch) error {
	if c.Unchecked != "" {
		return nil
	}
	role, warning, err := c.roleIn(ctx, server, b)
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	asking := ctx
	if warning != "" {
		asking = remote.WithoutWarning(ctx, warning)
	}
	after, tried, err := c.compare(asking, server, options)
	if err != nil {
		return c.refuse(ctx, server, err, "look up "+c.Ref.Long())
	}
	if fault := options.Set.Fault(c.Before, c.document.Object); fault != nil && !options.Force {
		row, _ := reason.Lookup(fault.Code)
		c.faults, c.exit = c.document.Locate([]declare.Fault{*fault}), row.Exit
		return nil
	}
	if apierrors.IsNotFound(tried) && b.namespaces[c.Ref.Namespace] {
		c.Unchecked = "its namespace is declared in the same run"
		return nil
	}
	if apierrors.IsForbidden(tried) && warning != "" {
		if _, missing := server.Get(ctx, role); apierrors.IsNotFound(missing) { // nobody may give what is not there
			c.Unchecked = "its role is declared in the same run"
			return nil
		}
	}
	if tried != nil {
		return c.refuse(ctx, server, tried, "check "+c.Ref.Long())
	}
	c.After = after
	return nil
}

// compareTries is how often an object is asked for anew that somebody writes at the same moment.
const compareTries = 3

// compare asks for what there would be, and for what there is: both of one moment, or the difference would show what somebody else has just
// written as if applying took it away. tried is what the server has against the object.
func (c *Change) compare(ctx context.Context, server *remote.Server, options Options) (after *unstructured.Unstructured, tried, err error) {
	for range compareTries {
		after, tried = server.Apply(ctx, c.Ref, c.document.Object, remote.ApplyOptions{DryRun: true, Force: options.Force, Manager: options.Manager})
		// One that would be new has no version yet: then the dry run has said all, and ten thousand new objects are not looked up.
		if tried == nil && after.GetResourceVersion() == "" {
			return after, nil, nil
		}
		if c.Before, err = server.Get(ctx, c.Ref); err != nil {
			c.Before = nil
			if !apierrors.IsNotFound(err) {
				return nil, nil, err
			}
		}
		if tried != nil || c.Before != nil && c.Before.GetResourceVersion() == after.GetResourceVersion() {
			break
		}
	}
	return after, tried, nil
}

// refuse keeps what the server has against the document; any other error ends the plan.
func (c *Change) refuse(ctx context.Context, server *remote.Server, err error, doing string) error {
	faults, exit, ok := failure.Faults(err, doing, c.document)
	if !ok {
		return failure.Of(err, doing)
	}
	suggest(ctx, server, c.Ref.Kind, faults)
	c.faults, c.exit = faults, exit
	return nil
}
