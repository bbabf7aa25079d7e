package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// change is what applying one document would do, as the server says.
type change struct {
	document *documents.Document
	ref      remote.Ref
	before   *unstructured.Unstructured // nil: there is no such object
	after    *unstructured.Unstructured // nil: the server could not say yet
	// unchecked says why the server could not be asked: what the document needs comes with it.
	unchecked string
	applied   bool // after is what there is now

	faults []declare.Fault
	exit   reason.Exit
}

// verb is what applying does to the object.
func (c *change) verb() string {
	switch {
	case c.before == nil:
		return "created"
	case c.after != nil && reflect.DeepEqual(c.compared(c.before), c.compared(c.after)):
		return "unchanged"
	}
	return "configured"
}

// compared is of an object what counts as a change of it: not what every write moves, and the status only where the
// document has one.
func (c *change) compared(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	if _, declared := c.document.Object.Object["status"]; !declared {
		delete(object.Object, "status")
	}
	return object.Object
}

// asksAtOnce is how many documents the server is asked about at a time: enough to hide a slow line, and far below what one
// client is allowed.
const asksAtOnce = 8

// plan asks the server what applying every document would do, and changes nothing. The error is a *failure.Refused with
// every mistake of every document, or a failure that is about none of them.
func (p *program) plan(ctx context.Context, server *remote.Server, namespace string, source *documents.Source, force bool) ([]*change, error) {
	documents.Sort(source.Documents)
	b := newBatch(source.Documents)
	changes := make([]*change, len(source.Documents))
	for i := range source.Documents {
		c, err := p.place(ctx, server, namespace, &source.Documents[i], b)
		if err != nil {
			return nil, err
		}
		changes[i] = c
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asksAtOnce)
	for _, c := range changes {
		if len(c.faults) == 0 {
			group.Go(func() error { return c.ask(ctx, server, force, b) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return changes, refusal(changes, source)
}

// refusal is the error that the faults of changes are, nil without any.
func refusal(changes []*change, source *documents.Source) error {
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
}

// newKind is a kind that a CustomResourceDefinition among the documents defines.
type newKind struct {
	resource   string
	namespaced bool
}

func newBatch(list []documents.Document) batch {
	b := batch{namespaces: map[string]bool{}, kinds: map[schema.GroupKind]newKind{}}
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

// place finds the kind and namespace of a document.
func (p *program) place(ctx context.Context, server *remote.Server, namespace string, d *documents.Document, b batch) (*change, error) {
	c := &change{document: d}
	gvk := d.Kind()
	kind, err := server.KindOf(ctx, gvk)
	var unknown *remote.UnknownKind
	if brought, ok := b.kinds[gvk.GroupKind()]; ok && errors.As(err, &unknown) {
		kind = remote.Kind{GroupVersionKind: gvk, Resource: brought.resource, Namespaced: brought.namespaced}
		c.unchecked = "its kind is defined in the same run"
		err = nil
	}
	if errors.As(err, &unknown) {
		c.fault(reason.UnknownKind, "kind", unknown.Error(), hintNear(unknown))
		return c, nil
	}
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	c.settle(kind, namespace, p.flags.Namespace != "")
	return c, nil
}

func hintNear(unknown *remote.UnknownKind) string {
	if unknown.Near == "" {
		return "`tako explain` lists the kinds"
	}
	return "there is " + unknown.Near
}

// settle decides which namespace a document is about.
func (c *change) settle(kind remote.Kind, namespace string, demanded bool) {
	object := c.document.Object
	own := object.GetNamespace()
	switch {
	case !kind.Namespaced && own != "":
		c.fault(reason.FieldNotAllowed, "metadata.namespace", kind.Kind+" stands in no namespace", "remove the field")
	case kind.Namespaced && own != "" && demanded && own != namespace:
		c.fault(reason.InvalidValue, "metadata.namespace", fmt.Sprintf("the document says namespace %q, the command line %q", own, namespace), "leave one of them out")
	case kind.Namespaced && own == "":
		object.SetNamespace(namespace)
	}
	c.ref = remote.RefOf(kind, object)
}

func (c *change) fault(code reason.Code, path, message, hint string) {
	c.exit = reason.ExitUsage
	c.faults = append(c.faults, c.document.Locate([]declare.Fault{{Code: code, Path: path, Message: message, Hint: hint}})...)
}

// ask has the server say what there is and what there would be.
func (c *change) ask(ctx context.Context, server *remote.Server, force bool, b batch) error {
	if c.unchecked != "" {
		return nil
	}
	var err error
	if c.before, err = server.Get(ctx, c.ref); err != nil && !apierrors.IsNotFound(err) {
		return c.refuse(err, "look up "+c.ref.Long())
	}
	if err != nil {
		c.before = nil
	}
	c.after, err = server.Apply(ctx, c.ref, c.document.Object, remote.ApplyOptions{DryRun: true, Force: force})
	if apierrors.IsNotFound(err) && b.namespaces[c.ref.Namespace] {
		c.unchecked = "its namespace is declared in the same run"
		return nil
	}
	if err != nil {
		return c.refuse(err, "check "+c.ref.Long())
	}
	return nil
}

// refuse keeps what the server has against the document; any other error ends the plan.
func (c *change) refuse(err error, doing string) error {
	faults, exit, ok := failure.Faults(err, doing, c.document)
	if !ok {
		return failure.Of(err, doing)
	}
	c.faults, c.exit = faults, exit
	return nil
}
