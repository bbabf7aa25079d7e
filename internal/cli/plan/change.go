package plan

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/mask"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Change is what applying one document would do, as the server says.
type Change struct {
	Ref    remote.Ref
	Before *unstructured.Unstructured // nil: there is no such object
	After  *unstructured.Unstructured // nil: the server could not say yet
	// Unchecked says why the server could not be asked: what the document needs comes with it. Empty where it was asked.
	Unchecked string
	// Applied is whether After is what there is now.
	Applied bool

	document *documents.Document
	faults   []declare.Fault
	exit     reason.Exit
}

// Verb is what applying does to the object: created, configured or unchanged.
func (c *Change) Verb() string {
	switch {
	case c.Before == nil:
		return "created"
	case c.After != nil && reflect.DeepEqual(c.compared(c.Before), c.compared(c.After)):
		return "unchanged"
	}
	return "configured"
}

// compared is of an object what counts as a change of it: not what every write moves, and the status only where the
// document has one.
func (c *Change) compared(object *unstructured.Unstructured) map[string]any {
	fields := settled(object)
	if _, declared := c.document.Object.Object["status"]; !declared {
		delete(fields, "status")
	}
	return fields
}

// settled is an object without what every write moves.
func settled(object *unstructured.Unstructured) map[string]any {
	object = object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	return object.Object
}

// Diff is the difference between what there is and what there would be, as text without secrets; "" for none.
func (c *Change) Diff() (string, error) {
	after := c.After
	if after == nil {
		after = c.document.Object // the server could not say; this is what would be sent
	}
	return diff(c.Ref, c.Before, after, c.compared)
}

// DiffOfDeletion is the same of an object that goes.
func DiffOfDeletion(ref remote.Ref, object *unstructured.Unstructured) (string, error) {
	return DiffOfEdit(ref, object, nil)
}

// DiffOfEdit is the same of an object that is changed and declared nowhere else.
func DiffOfEdit(ref remote.Ref, before, after *unstructured.Unstructured) (string, error) {
	return diff(ref, before, after, func(object *unstructured.Unstructured) map[string]any {
		fields := settled(object)
		delete(fields, "status")
		return fields
	})
}

func diff(ref remote.Ref, before, after *unstructured.Unstructured, compared func(*unstructured.Unstructured) map[string]any) (string, error) {
	before, after = mask.Secrets(before, after)
	var texts [2][]byte
	for i, object := range []*unstructured.Unstructured{before, after} {
		if object == nil {
			continue // one that does not exist is empty
		}
		text, err := yaml.Marshal(compared(object))
		if err != nil {
			return "", fmt.Errorf("compare %s: %w", ref.Long(), err)
		}
		texts[i] = text
	}
	return present.UnifiedDiff(texts[0], texts[1], ref.Long()+" (now)", ref.Long()+" (declared)"), nil
}

// Apply applies the document, and if it defines a kind, waits until the server serves it. The timeout bounds the wait for a
// new kind. The error is a *failure.Refused about the document, whose source the caller gives it, or a *failure.Error.
func (c *Change) Apply(ctx context.Context, server *remote.Server, options Options, timeout time.Duration) error {
	err := c.apply(ctx, server, options, timeout)
	if err == nil {
		return nil
	}
	doing := "apply " + c.Ref.Long()
	faults, exit, ok := failure.Faults(err, doing, c.document)
	if !ok {
		return failure.Of(err, doing)
	}
	return &failure.Refused{Faults: faults, Exit: exit}
}

func (c *Change) apply(ctx context.Context, server *remote.Server, options Options, timeout time.Duration) error {
	if c.Unchecked != "" {
		if err := c.lookAgain(ctx, server, options, timeout); err != nil {
			return err
		}
	}
	after, err := server.Apply(ctx, c.Ref, c.document.Object, remote.ApplyOptions{Force: options.Force, Manager: options.Manager})
	if err != nil {
		return err
	}
	c.After, c.Applied = after, true
	if c.Ref.Kind.Kind != "CustomResourceDefinition" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := follow.Wait(ctx, server, c.Ref, follow.Established()); err != nil {
		return err
	}
	return c.awaitKinds(ctx, server, timeout)
}

// awaitKinds waits until the server tells of what a definition defines: that it is established is true a little earlier, and the next
// command would find no such kind.
func (c *Change) awaitKinds(ctx context.Context, server *remote.Server, timeout time.Duration) error {
	server.Forget()
	group, _, _ := unstructured.NestedString(c.After.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(c.After.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(c.After.Object, "spec", "versions")
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		name, _ := fields["name"].(string)
		if served, _ := fields["served"].(bool); !served || name == "" {
			continue
		}
		if _, err := newKindOf(ctx, server, schema.GroupVersionKind{Group: group, Version: name, Kind: kind}, timeout); err != nil {
			return err
		}
	}
	return nil
}

// lookAgain completes a change that could not be checked before what it needs was applied.
func (c *Change) lookAgain(ctx context.Context, server *remote.Server, options Options, timeout time.Duration) error {
	kind, err := newKindOf(ctx, server, c.document.Kind(), timeout)
	if err != nil {
		return err
	}
	c.Ref.Kind = kind
	if c.Before, err = server.Get(ctx, c.Ref); err != nil {
		c.Before = nil
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if fault := options.Set.Fault(c.Before, c.document.Object); fault != nil && !options.Force {
		return failure.Usage("apply "+c.Ref.Long(), fault.Message, fault.Hint)
	}
	return nil
}

// newKindOf is KindOf for a kind that was defined a moment ago, of which the server tells a little later.
func newKindOf(ctx context.Context, server *remote.Server, gvk schema.GroupVersionKind, timeout time.Duration) (remote.Kind, error) {
	const pause = 100 * time.Millisecond // a person does not notice it, and a server has some ten questions to answer at most
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		kind, err := server.KindOf(ctx, gvk)
		var unknown *remote.UnknownKind
		if !errors.As(err, &unknown) {
			return kind, err
		}
		select {
		case <-ctx.Done():
			return kind, err
		case <-time.After(pause):
			server.Forget()
		}
	}
}
