package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"tako.dev/tako/internal/fleet/gc"
)

// pageMax is how many objects one answer holds: the page that informers and kubectl ask for.
const pageMax = 500

// errBlind: what waits for its dependents may have some of a kind that is not known or not listed yet.
var errBlind = errors.New("not all kinds are listed yet")

// errChanged: the object is not the one, or not in the version, that the decision is about.
var errChanged = errors.New("the object has changed")

func (c *collector) work(ctx context.Context) {
	for {
		uid, down := c.queue.Get()
		if down {
			return
		}
		c.handle(ctx, uid)
		c.queue.Done(uid)
	}
}

func (c *collector) handle(ctx context.Context, uid gc.UID) {
	c.mu.Lock()
	decisions := c.graph.Decide(uid)
	c.mu.Unlock()
	again := false
	for _, d := range decisions {
		call, cancel := deadlined(ctx)
		err := c.carryOut(call, d)
		cancel()
		again = again || err != nil && !apierrors.IsNotFound(err)
		c.note(ctx, d, err)
	}
	if again && ctx.Err() == nil {
		c.queue.AddRateLimited(uid)
	} else {
		c.queue.Forget(uid)
	}
}

// note counts and logs what became of a decision. What was stale is nothing to tell: the watch is late, or somebody was faster.
func (c *collector) note(ctx context.Context, d gc.Decision, err error) {
	result := "done"
	switch {
	case err == nil:
		if d.Do == gc.Delete {
			c.log.Debug("deleted", "kind", d.Object.Kind.String(), "namespace", d.Object.Namespace, "name", d.Object.Name, "why", d.Why)
		}
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err) || errors.Is(err, errChanged) || errors.Is(err, errBlind):
		result = "stale"
	case ctx.Err() == nil:
		result = "failed"
		c.metrics.failures.WithLabelValues("gc").Inc()
		c.log.Warn("not collected", "action", d.Do.String(), "kind", d.Object.Kind.String(), "namespace", d.Object.Namespace, "name", d.Object.Name, "err", err)
	}
	c.metrics.decisions.WithLabelValues(d.Do.String(), result).Inc()
}

// carryOut does what was decided. A refused precondition is NotFound, Conflict or errChanged.
func (c *collector) carryOut(ctx context.Context, d gc.Decision) error {
	switch d.Do {
	case gc.Verify:
		v := c.verify(ctx, d.Lookup)
		c.enqueue(func() []gc.UID { return c.graph.Answer(d.Lookup, v) })
		return nil
	case gc.Report:
		return c.report(ctx, d)
	}
	kind, ok := c.kinds.get(d.Object.Kind)
	if !ok {
		return fmt.Errorf("kind %s is not served", d.Object.Kind)
	}
	if d.Do == gc.Delete {
		how := metav1.DeletionPropagation(d.Propagation)
		return c.objects.Resource(kind.resource).Namespace(d.Object.Namespace).Delete(ctx, d.Object.Name, metav1.DeleteOptions{Preconditions: exactly(string(d.Object.UID), d.Version), PropagationPolicy: &how})
	}
	if d.Do == gc.RemoveFinalizer && c.blind() {
		return errBlind
	}
	return change(ctx, c.metadata.Resource(kind.resource).Namespace(d.Object.Namespace), d)
}

// change writes metadata of an object that is still what the decision is about.
func change(ctx context.Context, objects metadata.ResourceInterface, d gc.Decision) error {
	o, err := objects.Get(ctx, d.Object.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if string(o.UID) != string(d.Object.UID) || o.ResourceVersion != d.Version {
		return errChanged
	}
	// With uid and resourceVersion the patch is refused where the object has changed since.
	fields := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	switch d.Do {
	case gc.RemoveFinalizer:
		fields["finalizers"] = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == d.Finalizer })
	case gc.DropOwners:
		fields["ownerReferences"] = slices.DeleteFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return slices.Contains(d.Owners, gc.UID(r.UID)) })
	case gc.Unblock:
		no := false
		for i := range o.OwnerReferences {
			o.OwnerReferences[i].BlockOwnerDeletion = &no
		}
		fields["ownerReferences"] = o.OwnerReferences
	}
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, d.Object.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldOwner})
	return err
}

// verify is a live read of an owner.
func (c *collector) verify(ctx context.Context, l gc.Lookup) gc.Verdict {
	kind, ok := c.kinds.get(l.Kind)
	if !ok {
		return gc.Unreadable
	}
	if kind.namespaced && l.Namespace == "" {
		return gc.Elsewhere
	}
	objects, namespace := c.metadata.Resource(kind.resource), ""
	if kind.namespaced {
		namespace = l.Namespace
	}
	o, err := objects.Namespace(namespace).Get(ctx, l.Name, metav1.GetOptions{})
	switch {
	case err == nil && string(o.UID) == string(l.UID):
		return gc.Lives
	case err == nil || apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
	default:
		return gc.Unreadable // an answer that is about no object says nothing about one
	}
	if !kind.namespaced {
		return gc.Absent
	}
	return c.search(ctx, objects, l)
}

// search looks for an owner of that name in all namespaces: a reference to another namespace is a mistake, and no reason to
// delete anything.
func (c *collector) search(ctx context.Context, objects metadata.ResourceInterface, l gc.Lookup) gc.Verdict {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", l.Name).String(), Limit: pageMax}
	for {
		list, err := objects.List(ctx, options)
		if err != nil {
			return gc.Unreadable
		}
		for i := range list.Items {
			if string(list.Items[i].UID) == string(l.UID) {
				return gc.Elsewhere
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return gc.Absent
		}
	}
}

// report makes an Event about a mistake in an owner reference.
func (c *collector) report(ctx context.Context, d gc.Decision) error {
	kind, ok := c.kinds.get(d.Object.Kind)
	if !ok {
		return fmt.Errorf("kind %s is not served", d.Object.Kind)
	}
	return writeEvent(ctx, c.events, core.ObjectReference{
		APIVersion: kind.resource.GroupVersion().String(), Kind: d.Object.Kind.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name,
		UID: types.UID(d.Object.UID), ResourceVersion: d.Version,
	}, core.EventTypeWarning, "OwnerRefInvalid", d.Why)
}
