package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"tako.dev/tako/internal/fleet/events"
)

const (
	// boundEvery is how often counts are written and old Events deleted.
	boundEvery = time.Second
	// eventMessageMax bounds an Event's message, bytes, as the API does.
	eventMessageMax = 1024
	// evictedEvent is the name of the Event that says what was evicted, in the namespace default.
	evictedEvent = "tako-events-evicted"
)

// evictor is the shell of fleet/events.
type evictor struct {
	bounds  *events.Bounds
	client  typedcore.EventsGetter
	log     *slog.Logger
	metrics *metrics
	evict   []events.Stored // still to be deleted; owned by run's goroutine
}

func (e *evictor) run(ctx context.Context) error {
	source := e.client.Events(metav1.NamespaceAll)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return source.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return source.Watch(ctx, o)
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &core.Event{}, eventFeed{e.bounds}, cache.ReflectorOptions{Name: "event bounds"})
	inner, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(inner)
	}()
	defer func() {
		cancel()
		<-done
	}()
	every := time.NewTicker(boundEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			e.writeDue(ctx)
			e.makeRoom(ctx)
			e.metrics.stored.Set(float64(e.bounds.Len()))
		}
	}
}

// writeDue writes the counts of what happened more often than it was written.
func (e *evictor) writeDue(ctx context.Context) {
	for _, d := range e.bounds.Due(time.Now()) {
		patch, err := json.Marshal(map[string]any{"count": d.Count, "lastTimestamp": metav1.NewTime(d.Last)})
		if err == nil {
			err = e.patch(ctx, d.ID, patch)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			e.bounds.Defer(d.ID)
			e.failed(ctx, "count of an event is not written", d.ID, err)
		}
	}
}

func (e *evictor) patch(ctx context.Context, id events.ID, patch []byte) error {
	ctx, cancel := deadlined(ctx)
	defer cancel()
	_, err := e.client.Events(id.Namespace).Patch(ctx, id.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldOwner})
	return err
}

// makeRoom deletes the oldest Events, and says so.
func (e *evictor) makeRoom(ctx context.Context) {
	e.evict = append(e.evict, e.bounds.Evict()...)
	gone := 0
	for len(e.evict) > 0 && ctx.Err() == nil {
		id := e.evict[0].ID
		if err := e.remove(ctx, id); err != nil && !apierrors.IsNotFound(err) {
			e.failed(ctx, "old event is not deleted", id, err)
			break // the next round goes on here
		}
		e.bounds.Forget(id)
		e.evict = e.evict[1:]
		gone++
	}
	if gone == 0 {
		return
	}
	e.evict = append([]events.Stored(nil), e.evict...) // lets the long list go
	e.metrics.evicted.Add(float64(gone))
	total := e.bounds.Evicted()
	words := fmt.Sprintf("%d events were evicted so far, the oldest of %s, the newest of %s: there are more than fit",
		total.Count, total.From.UTC().Format(time.RFC3339), total.To.UTC().Format(time.RFC3339))
	e.log.Info("events evicted", "count", gone, "total", total.Count, "from", total.From, "to", total.To)
	if err := e.say(ctx, words, int(total.Count)); err != nil {
		e.failed(ctx, "eviction of events is not told", events.ID{Namespace: metav1.NamespaceDefault, Name: evictedEvent}, err)
	}
}

func (e *evictor) remove(ctx context.Context, id events.ID) error {
	ctx, cancel := deadlined(ctx)
	defer cancel()
	return e.client.Events(id.Namespace).Delete(ctx, id.Name, metav1.DeleteOptions{})
}

// say keeps one Event that tells what was evicted.
func (e *evictor) say(ctx context.Context, words string, total int) error {
	patch, err := json.Marshal(map[string]any{"message": words, "count": total, "lastTimestamp": metav1.Now()})
	if err != nil {
		return err
	}
	if err := e.patch(ctx, events.ID{Namespace: metav1.NamespaceDefault, Name: evictedEvent}, patch); !apierrors.IsNotFound(err) {
		return err
	}
	ctx, cancel := deadlined(ctx)
	defer cancel()
	event := newEvent(core.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceDefault}, core.EventTypeWarning, "EventsEvicted", words)
	event.GenerateName, event.Name = "", evictedEvent
	_, err = e.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: fieldOwner})
	return err
}

func (e *evictor) failed(ctx context.Context, what string, id events.ID, err error) {
	if ctx.Err() == nil {
		e.metrics.failures.WithLabelValues("events").Inc()
		e.log.Warn(what, "namespace", id.Namespace, "name", id.Name, "err", err)
	}
}

// writeEvent makes an Event about an object.
func writeEvent(ctx context.Context, client typedcore.EventsGetter, about core.ObjectReference, kind, why, words string) error {
	event := newEvent(about, kind, why, words)
	_, err := client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: fieldOwner})
	return err
}

// newEvent is an Event that has happened now, in the namespace of what it is about; of objects of the cluster, in default.
func newEvent(about core.ObjectReference, kind, why, words string) *core.Event {
	now := metav1.Now()
	if len(words) > eventMessageMax {
		words = words[:eventMessageMax-len("…")] + "…"
	}
	return &core.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "tako-", Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		InvolvedObject: about, Type: kind, Reason: why, Message: words, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: core.EventSource{Component: fieldOwner}, ReportingController: fieldOwner,
	}
}

// eventFeed tells the bounds what Events are stored. It is the store of a reflector, and stores nothing else.
type eventFeed struct{ bounds *events.Bounds }

var _ cache.ReflectorStore = eventFeed{}

// Add observes a new Event.
func (f eventFeed) Add(obj any) error { return f.Update(obj) }

// Update observes a changed Event.
func (f eventFeed) Update(obj any) error {
	f.bounds.Observe(time.Now(), storedEvent(obj.(*core.Event)))
	return nil
}

// Delete forgets an Event.
func (f eventFeed) Delete(obj any) error {
	e := obj.(*core.Event)
	f.bounds.Forget(events.ID{Namespace: e.Namespace, Name: e.Name})
	return nil
}

// Replace observes all Events that there are.
func (f eventFeed) Replace(list []any, _ string) error {
	all := make([]events.Stored, 0, len(list))
	for _, obj := range list {
		all = append(all, storedEvent(obj.(*core.Event)))
	}
	f.bounds.Sync(time.Now(), all)
	return nil
}

// Resync has nothing to do.
func (f eventFeed) Resync() error { return nil }

// storedEvent is what bounds know of an Event. Its key is that of the registry, which admits Events.
func storedEvent(e *core.Event) events.Stored {
	first, last := e.FirstTimestamp.Time, e.LastTimestamp.Time
	count := int(e.Count)
	if e.Series != nil {
		count, last = int(e.Series.Count), e.Series.LastObservedTime.Time
	}
	if first.IsZero() {
		first = e.EventTime.Time
	}
	if first.IsZero() {
		first = e.CreationTimestamp.Time
	}
	if last.Before(first) {
		last = first
	}
	return events.Stored{
		ID:    events.ID{Namespace: e.Namespace, Name: e.Name},
		Key:   events.Key{Namespace: e.Namespace, Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, UID: string(e.InvolvedObject.UID), Reason: e.Reason},
		Count: count, First: first, Last: last,
	}
}
