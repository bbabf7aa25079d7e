package registry

import (
	"context"
	"math"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"

	"tako.dev/tako/internal/fleet/events"
)

// eventStore keeps Events bounded: what happens again is counted in the object that is there, and too much is refused.
type eventStore struct {
	*Store
	bounds *events.Bounds
}

var _ rest.Creater = eventStore{}

// Create stores an event, or counts it.
func (s eventStore) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	e := obj.(*core.Event)
	if options != nil && len(options.DryRun) > 0 {
		return s.Store.Create(ctx, obj, validate, options)
	}
	if e.Namespace == "" {
		e.Namespace = request.NamespaceValue(ctx)
	}
	if e.Name == "" && e.GenerateName != "" {
		e.Name = names.SimpleNameGenerator.GenerateName(e.GenerateName)
	}
	if e.Count == 0 && e.Series == nil {
		e.Count = 1
	}
	if now, seen := metav1.Now(), lastSeen(e); seen.IsZero() {
		e.FirstTimestamp, e.LastTimestamp = now, now
	}
	out, err := s.admit(ctx, e, validate, options)
	if apierrors.IsNotFound(err) {
		// The object that it was to be counted into has just ended; now it is forgotten.
		out, err = s.admit(ctx, e, validate, options)
	}
	return out, err
}

// admit does what the bounds decide.
func (s eventStore) admit(ctx context.Context, e *core.Event, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	d := s.bounds.Admit(time.Now(), stored(e))
	switch d.Do {
	case events.Refuse:
		return nil, apierrors.NewTooManyRequests(d.Why, int(math.Ceil(d.After.Seconds())))
	case events.Defer:
		there, err := s.Get(ctx, d.ID.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return e, nil // its object is being created by another request
		}
		if err != nil {
			return nil, err
		}
		there = there.DeepCopyObject()
		count(there.(*core.Event), d, e)
		return there, nil
	case events.Merge:
		return s.merge(ctx, d, e)
	case events.Create:
	}
	out, err := s.Store.Create(ctx, e, validate, options)
	if err != nil && d.New && !apierrors.IsAlreadyExists(err) {
		s.bounds.Forget(d.ID)
	}
	return out, err
}

// merge counts an event into the object that is there.
func (s eventStore) merge(ctx context.Context, d events.Decision, e *core.Event) (runtime.Object, error) {
	merged, _, err := s.Store.Update(ctx, d.ID.Name, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, existing runtime.Object) (runtime.Object, error) {
		there := existing.DeepCopyObject()
		if there.(*core.Event).UID == "" {
			return nil, apierrors.NewNotFound(s.kind.Resource(), d.ID.Name) // it would be made anew
		}
		count(there.(*core.Event), d, e)
		return there, nil
	}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.bounds.Forget(d.ID)
	case err != nil:
		s.bounds.Defer(d.ID)
	}
	return merged, err
}

// Update takes account of a write that somebody makes himself.
func (s eventStore) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	if ok, after := s.bounds.Spend(time.Now()); !ok {
		return nil, false, apierrors.NewTooManyRequests("too many events are written", int(math.Ceil(after.Seconds())))
	}
	return s.Store.Update(ctx, name, info, create, update, force, options)
}

// count writes into an Event how often it happened by now, and the words of the last time.
func count(there *core.Event, d events.Decision, newest *core.Event) {
	there.Count, there.LastTimestamp, there.Message = int32(min(d.Count, math.MaxInt32)), metav1.NewTime(d.Last), newest.Message
}

// stored is what the bounds see of an Event.
func stored(e *core.Event) events.Stored {
	o := e.InvolvedObject
	return events.Stored{
		ID:    events.ID{Namespace: e.Namespace, Name: e.Name},
		Key:   events.Key{Namespace: e.Namespace, Kind: o.Kind, Name: o.Name, UID: string(o.UID), Reason: e.Reason},
		Count: int(e.Count), First: e.FirstTimestamp.Time, Last: lastSeen(e).Time,
	}
}
