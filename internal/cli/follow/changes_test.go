package follow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

var things = remote.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "x.org", Version: "v1", Kind: "Thing"}, Resource: "things", Namespaced: true}

// scene is a server that gives one answer after the other: lists and watches each have their own.
type scene struct {
	lists, watches []string
}

func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answers := &s.lists
	if r.URL.Query().Get("watch") == "true" {
		answers = &s.watches
	}
	w.Header().Set("Content-Type", "application/json")
	if len(*answers) == 0 {
		w.WriteHeader(http.StatusForbidden) // which ends the command
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "the end"}`)
		return
	}
	answer := (*answers)[0]
	*answers = (*answers)[1:]
	if answer == away {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fmt.Fprint(w, answer)
}

// away is the answer of a server that is starting.
const away = "away"

const expired = `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}`

func thing(name, uid string, version int) string {
	return fmt.Sprintf(`{"kind": "Thing", "apiVersion": "x.org/v1", "metadata": {"name": %q, "uid": %q, "resourceVersion": "%d"}}`, name, uid, version)
}

func list(version int, items ...string) string {
	return fmt.Sprintf(`{"metadata": {"resourceVersion": "%d"}, "items": [%s]}`, version, strings.Join(items, ", "))
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type": %q, "object": %s}`+"\n", kind, object)
}

// told is a view that writes down what it is shown.
type told struct{ lines []string }

func (v *told) Show(c Change) error {
	v.lines = append(v.lines, fmt.Sprintf("%s %s", c.Type, c.Object.GetName()))
	return nil
}

func (v *told) Flush() error { return nil }

func play(t *testing.T, s http.Handler) *remote.Server {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// TestFeed: each change is shown once, over watches that end, a server that is away and a place that it has forgotten.
func TestFeed(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		want  string
	}{
		{"a watch that goes on from its place", scene{
			lists:   []string{list(5, thing("a", "1", 1))},
			watches: []string{event("ADDED", thing("b", "2", 6)), away, event("MODIFIED", thing("b", "2", 6)) + event("DELETED", thing("a", "1", 7))},
		}, "ADDED a, ADDED b, DELETED a"},
		{"a place that is forgotten", scene{
			lists:   []string{list(5, thing("same", "1", 1), thing("changed", "2", 2), thing("gone", "3", 3), thing("again", "4", 4)), away, list(9, thing("same", "1", 1), thing("changed", "2", 6), thing("again", "5", 7), thing("new", "6", 8))},
			watches: []string{expired, event("MODIFIED", thing("new", "6", 10))},
		}, "ADDED same, ADDED changed, ADDED gone, ADDED again, DELETED again, DELETED gone, MODIFIED changed, ADDED again, ADDED new, MODIFIED new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			view := &told{}
			said := 0
			feed := Feed{Server: play(t, &c.scene), Query: remote.Query{Kind: things}, Say: func(string) { said++ }}
			err := feed.Run(t.Context(), view)
			if f := failure.Of(err, ""); f == nil || f.Exit != reason.ExitNotAllowed {
				t.Errorf("it ended with %v", err)
			}
			if got := strings.Join(view.lines, ", "); got != c.want {
				t.Errorf("shown: %s\nwant:  %s", got, c.want)
			}
			if said != 1 {
				t.Errorf("that the server was away is said %d times", said)
			}
		})
	}
}

// TestGone: an object that was made again is another one.
func TestGone(t *testing.T) {
	ref := remote.Ref{Kind: things, Namespace: "n", Name: "a"}
	for name, answer := range map[string]string{"made again": list(5, thing("a", "2", 4)), "gone": list(5)} {
		if err := Gone(t.Context(), play(t, &scene{lists: []string{answer}}), ref, "1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	still := &scene{lists: []string{list(5, thing("a", "1", 4))}, watches: []string{event("DELETED", thing("a", "1", 6))}}
	if err := Gone(t.Context(), play(t, still), ref, "1"); err != nil || len(still.watches) > 0 {
		t.Errorf("a wait for the end of an object ended with %v and %d answers left", err, len(still.watches))
	}
	// Where nobody has said which one is meant, it is the one that is there first.
	first := &scene{lists: []string{list(5, thing("a", "1", 4))}, watches: []string{event("ADDED", thing("a", "2", 6))}}
	if err := Wait(t.Context(), play(t, first), ref, await.Gone()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Gone(ctx, play(t, &scene{lists: []string{list(5, thing("a", "1", 4)), list(5, thing("a", "1", 4))}, watches: []string{""}}), ref, "1"); failure.Of(err, "").Exit != reason.ExitDeadline {
		t.Errorf("an object that stays: %v", err)
	}
}
