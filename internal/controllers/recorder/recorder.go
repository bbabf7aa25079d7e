// Package recorder makes Events about what controllers find. Who tells does not wait: Run writes, one after the other, and what does
// not fit into its queue is counted and left out. Events that are alike become one where they are admitted (fleet/events).
package recorder

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// component is who tells, as for all that the controllers write.
	component = "tako-controllers"
	// queueMax is how many Events wait: ours, as many as the server admits at once (fleet/events).
	queueMax = 1000
	// callMax bounds one write: as long as the server takes at most for one.
	callMax = 60 * time.Second
	// messageMax bounds an Event's message, bytes, as the API does.
	messageMax = 1024
)

// Recorder writes Events. Use New.
type Recorder struct {
	client typedcore.EventsGetter
	log    *slog.Logger
	queue  chan *core.Event
	lost   atomic.Int64
}

// New makes a recorder, and starts nothing.
func New(client typedcore.EventsGetter, log *slog.Logger) *Recorder {
	return &Recorder{client: client, log: log.With("component", "recorder"), queue: make(chan *core.Event, queueMax)}
}

// Tell notes that something has happened to an object: kind is core.EventTypeNormal or core.EventTypeWarning, why one word in
// CamelCase, words a sentence without a secret. It does not wait.
func (r *Recorder) Tell(about core.ObjectReference, kind, why, words string) {
	if len(words) > messageMax {
		words = strings.ToValidUTF8(words[:messageMax-len("…")], "") + "…"
	}
	now := metav1.Now()
	event := &core.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "tako-", Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		InvolvedObject: about, Type: kind, Reason: why, Message: words, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: core.EventSource{Component: component}, ReportingController: component,
	}
	select {
	case r.queue <- event:
	default:
		r.lost.Add(1)
	}
}

// Run writes until ctx is done. What is left then is not told: Events are for people, and decide nothing.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-r.queue:
			r.write(ctx, event)
		}
		if lost := r.lost.Swap(0); lost > 0 {
			r.log.Warn("events are left out: there are more than can be written", "count", lost)
		}
	}
}

func (r *Recorder) write(ctx context.Context, event *core.Event) {
	call, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(call, event, metav1.CreateOptions{FieldManager: component})
	if err != nil && ctx.Err() == nil {
		r.log.Warn("event is not written", "kind", event.InvolvedObject.Kind, "name", event.InvolvedObject.Name, "reason", event.Reason, "err", err)
	}
}
