package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tako.dev/tako/internal/controllers"
	"tako.dev/tako/internal/fleet/events"
)

func TestOldEventsAreEvictedAndThatIsSaid(t *testing.T) {
	bounds, err := events.New(events.Options{ObjectsMax: 50})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.alsoRun(controllers.Options{Events: bounds})
	for i := range 60 {
		at := metav1.Unix(1_900_000_000+int64(i), 0)
		r.must(r.Create(r.Context(), &core.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: r.namespace, Name: fmt.Sprintf("event-%02d", i)},
			InvolvedObject: core.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.namespace, Name: fmt.Sprint("map-", i)},
			Reason:         "Tested", Type: core.EventTypeNormal, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		}))
	}
	r.eventually("old events go", func() string {
		var list core.EventList
		r.must(r.List(r.Context(), &list))
		if len(list.Items) > 50 {
			return fmt.Sprintf("%d are there", len(list.Items))
		}
		return ""
	})
	newest := &core.Event{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "event-59"}}
	r.stays(newest)
	r.eventually("that is said", func() string {
		var got core.Event
		if err := r.Get(r.Context(), client.ObjectKey{Namespace: "default", Name: "tako-events-evicted"}, &got); err != nil {
			return err.Error()
		}
		if got.Reason != "EventsEvicted" || !strings.Contains(got.Message, "were evicted so far, the oldest of") {
			return fmt.Sprintf("%s %q", got.Reason, got.Message)
		}
		return ""
	})
	r.eventually("all are counted", func() string { // after they have gone
		if n := r.total("tako_controller_events_evicted_total"); n < 10 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// What happens again and again is one object, and its count is right in the end.
func TestCountsAreWritten(t *testing.T) {
	r := newRig(t)
	about := core.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.namespace, Name: "map"}
	for i := range 20 {
		at := metav1.Now()
		r.must(r.Create(r.Context(), &core.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: fmt.Sprint("noisy-", i)}, InvolvedObject: about,
			Reason: "Tested", Type: core.EventTypeNormal, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		}))
	}
	r.eventually("the count is written", func() string {
		var list core.EventList
		r.must(r.List(r.Context(), &list, client.InNamespace(r.namespace)))
		if len(list.Items) == 1 && list.Items[0].Name == "noisy-0" && list.Items[0].Count == 20 {
			return ""
		}
		return fmt.Sprintf("%d events, the first counts %d", len(list.Items), list.Items[0].Count)
	})
}
