package describe

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/present"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestHappeningOf(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		name, fields string
		last         time.Time
		count        int64
	}{
		{"by client-go", `"lastTimestamp": "2026-01-02T05:00:00Z", "count": 7`, at(5), 7},
		{"by the newer API", `"eventTime": "2026-01-02T04:00:00.000000Z", "lastTimestamp": null`, at(4), 1},
		{"a series", `"eventTime": "2026-01-02T04:00:00.000000Z", "series": {"count": 9, "lastObservedTime": "2026-01-02T06:00:00.000000Z"}`, at(6), 9},
		{"without a time", `"count": 0`, at(3), 1},
	} {
		h := HappeningOf(object(t, `{"apiVersion": "v1", "kind": "Event", "metadata": {"creationTimestamp": "2026-01-02T03:00:00Z"},
			"type": "Normal", "involvedObject": {"kind": "NodeConfig", "name": "web"}, `+c.fields+`}`))
		if !h.Last.Equal(c.last) || h.Count != c.count || h.Subject != "nodeconfig/web" || h.Kind != "Normal" {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

func TestIsAbout(t *testing.T) {
	h := HappeningOf(object(t, `{"kind": "Event", "involvedObject": {"kind": "A", "name": "a", "uid": "1"}}`))
	if !h.IsAbout("1") || !h.IsAbout("") || h.IsAbout("2") || !(Happening{}).IsAbout("1") {
		t.Errorf("an event about the object of uid %q", h.UID)
	}
}

func TestWaitsFor(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind": "A", "metadata": {"finalizers": ["x/hold", "y"]}}`:    "waits for x/hold, y",
		`{"kind": "Namespace", "spec": {"finalizers": ["kubernetes"]}}`: "waits for kubernetes",
		`{"kind": "Namespace", "metadata": {"name": "a"}}`:              "waits until what is in it is gone",
		`{"kind": "A", "metadata": {"name": "a"}}`:                      "it goes any moment",
	} {
		if got := waitsFor(object(t, text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestObject(t *testing.T) {
	now := time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)
	o := object(t, `{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig",
		"metadata": {"name": "web", "namespace": "prod", "generation": 3, "creationTimestamp": "2026-01-02T03:00:00Z",
			"deletionTimestamp": "2026-01-02T04:59:00Z", "finalizers": ["x/hold"], "labels": {"b": "2", "a": "\u001b[2J"},
			"ownerReferences": [{"kind": "Source", "name": "main", "apiVersion": "v1", "uid": "1"}]},
		"spec": {"resources": [{"name": "k", "file": {"path": "/k", "mode": "0600", "content": "hidden"}}]},
		"status": {"observedGeneration": 2, "conditions": [
			{"type": "Ready", "status": "False", "reason": "Broken", "message": "a\u001b[2Jb", "lastTransitionTime": "2026-01-02T04:00:00Z"}, 3]}}`)
	happened := []Happening{{Last: now.Add(-time.Minute), Kind: "Warning", Reason: "Broken", Message: "it broke", Count: 2}}
	text, err := Object(o, happened, now, present.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Name:         web\n", "Namespace:    prod\n", "Kind:         NodeConfig (tako.dev/v1alpha1)\n", "Created:      2026-01-02T03:00:00Z (2h ago)\n",
		"waits for x/hold\n", "Generation:   3\n", "Labels:       a=\\x1b[2J\n              b=2\n", "Owner:        Source/main\n",
		"content: (secret)\n", "observedGeneration: 2\n", "  Ready      False   1h     Broken  a\\x1b[2Jb\n", "  1m         Warning  Broken  2      it broke\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") || strings.Contains(text, "\x1b") {
		t.Errorf("a secret or a control character is shown:\n%s", text)
	}
	if text, err = Object(object(t, `{"apiVersion": "v1", "kind": "A", "metadata": {"name": "x"}}`), nil, now, present.Style{}); err != nil || !strings.HasSuffix(text, "Events:       none\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestExposed: who has had values of a Secret is written in words, and not once more as an annotation.
func TestExposed(t *testing.T) {
	now := time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)
	text, err := Object(object(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "annotations": {"mine": "1",
		"tako.dev/exposed": "[{\"node\":\"web-1\",\"uid\":\"u\",\"why\":\"was deleted\",\"at\":\"2026-01-02T04:00:00Z\",\"keys\":[\"a\",\"b\"]}]"}}}`), nil, now, present.Style{})
	if err != nil || !strings.Contains(text, "Annotations:  mine=1\nExposed:      a, b, to node/web-1, which was deleted 2026-01-02T04:00:00Z (1h ago)\n") || strings.Contains(text, "uid") {
		t.Errorf("%v\n%s", err, text)
	}
}
