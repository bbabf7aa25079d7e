package follow

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// stage is a control plane whose loops take their time: each act is what it says of a config, of what is assigned and of the node at one
// moment. The next begins when the node is listed again.
type stage struct {
	acts    []act
	refuses string // a resource that may not be seen

	mu  sync.Mutex // guards what follows
	now int
}

type act struct {
	observed int    // generation of the config, of 2, that the loops have looked at
	revision string // that is assigned
	version  int    // of what is assigned
	has      int    // version that the host has applied
	stalled  bool
}

const discovery = `{"kind": "APIResourceList", "groupVersion": "tako.dev/v1alpha1", "resources": [
	{"name": "nodes", "kind": "Node", "namespaced": false, "verbs": ["get"]}, {"name": "assignments", "kind": "Assignment", "namespaced": false, "verbs": ["get"]},
	{"name": "nodeconfigs", "kind": "NodeConfig", "namespaced": true, "verbs": ["get"]}, {"name": "clusternodeconfigs", "kind": "ClusterNodeConfig", "namespaced": false, "verbs": ["get"]}]}`

// at is the act that is played, after the next has begun where it does. Several requests are answered at once.
func (s *stage) at(next bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next {
		s.now++
	}
	return min(max(s.now-1, 0), len(s.acts)-1)
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	a := s.acts[s.at(strings.HasSuffix(r.URL.Path, "/nodes") && r.URL.Query().Get("watch") == "")]
	node := fmt.Sprintf(`{"apiVersion": "tako.dev/v1alpha1", "kind": "Node", "metadata": {"name": "one", "uid": "u", "resourceVersion": "3"}, "spec": {"environment": "prod"},
		"status": {"identity": {"key": "k", "sealingKey": "AA==", "joined": "2026-01-02T03:04:05Z"}, "conditions": [{"type": "Ready", "status": "True"}],
		"assignedHead": {"epoch": 1, "version": %[1]d, "root": "r"}, "appliedHead": {"epoch": 1, "version": %[1]d, "root": "r"}, "verdict": {"type": "Applied", "version": %[1]d, "since": "2026-01-02T03:04:05Z"}}}`, a.has)
	switch path := r.URL.Path; {
	case r.URL.Query().Get("watch") == "true":
		<-r.Context().Done() // nothing that is told
	case s.refuses != "" && strings.Contains(path, "/"+s.refuses):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`)
	case path == "/api":
		fmt.Fprint(w, `{"kind": "APIVersions", "versions": []}`)
	case path == "/apis":
		fmt.Fprint(w, `{"kind": "APIGroupList", "groups": [{"name": "tako.dev", "versions": [{"groupVersion": "tako.dev/v1alpha1", "version": "v1alpha1"}], "preferredVersion": {"groupVersion": "tako.dev/v1alpha1", "version": "v1alpha1"}}]}`)
	case path == "/apis/tako.dev/v1alpha1":
		fmt.Fprint(w, discovery)
	case strings.HasSuffix(path, "/clusternodeconfigs"):
		fmt.Fprint(w, list(5))
	case strings.HasSuffix(path, "/namespaces/prod/nodeconfigs"):
		stalled := ""
		if a.stalled {
			stalled = `, "conditions": [{"type": "Stalled", "status": "True", "reason": "Halted", "message": "it halted", "observedGeneration": 2}]`
		}
		fmt.Fprint(w, list(5, fmt.Sprintf(`{"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": "web", "namespace": "prod", "generation": 2}, "spec": {"priority": 5, "selector": {}, "resources": []},
			"status": {"observedGeneration": %d, "revision": "web-%d"%s}}`, a.observed, a.observed, stalled)))
	case strings.HasSuffix(path, "/assignments/one"):
		fmt.Fprintf(w, `{"apiVersion": "tako.dev/v1alpha1", "kind": "Assignment", "metadata": {"name": "one", "resourceVersion": "%d"}, "spec": {"nodeUID": "u", "environment": "prod",
			"layers": [{"priority": 5, "config": "NodeConfig/prod/web", "revision": %q, "root": "00", "since": "2026-01-02T03:04:05Z"}]}}`, a.version, a.revision)
	case strings.HasSuffix(path, "/nodes/one"):
		fmt.Fprint(w, node)
	case strings.HasSuffix(path, "/nodes"):
		fmt.Fprint(w, list(5, node))
	default:
		http.NotFound(w, r)
	}
}

// TestConvergedAfterAnApply: a node that has converged on what was declared before is not converged on what was declared a moment ago,
// however long the loops take to look at it, to assign it, and to show it.
func TestConvergedAfterAnApply(t *testing.T) {
	before := act{observed: 1, revision: "web-1", version: 7, has: 7}
	observed := act{observed: 2, revision: "web-1", version: 7, has: 7}
	assigned := act{observed: 2, revision: "web-2", version: 9, has: 7}
	done := act{observed: 2, revision: "web-2", version: 9, has: 9}
	halted := act{observed: 2, revision: "web-1", version: 7, has: 7, stalled: true}
	stale := act{observed: 1, revision: "web-1", version: 7, has: 7, stalled: true}
	for _, c := range []struct {
		name    string
		acts    []act
		refuses string
		exit    reason.Exit
		looks   int // at least
		says    string
	}{
		{"each in its time", []act{before, before, observed, assigned, done}, "", reason.ExitOK, 4, ""},
		{"at once", []act{done}, "", reason.ExitOK, 1, ""},
		{"halted before it came here", []act{before, halted}, "", reason.ExitStalled, 2, "it halted"},
		{"never", []act{before}, "", reason.ExitDeadline, 2, "nobody has looked yet at what NodeConfig/prod/web declares now"},
		{"assigned and never shown", []act{before, assigned}, "", reason.ExitDeadline, 2, "state 9"},
		{"what was stalled before it was changed", []act{stale, done}, "", reason.ExitOK, 1, ""},
		{"configs that may not be seen", []act{before}, "nodeconfigs", reason.ExitOK, 1, "you may not see nodeconfigs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &stage{acts: c.acts, refuses: c.refuses}
			server := play(t, s)
			goal, err := await.Parse("converged")
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if c.exit == reason.ExitDeadline {
				ctx, cancel = context.WithTimeout(t.Context(), 6*softEvery)
			}
			defer cancel()
			ref := remote.Ref{Kind: remote.Kind{GroupVersionKind: schema.GroupVersionKind{Group: v1alpha1.GroupName, Version: "v1alpha1", Kind: v1alpha1.KindNode}, Resource: "nodes"}, Name: "one"}
			err = Converged(ctx, server, ref, goal, NewDeclared(server, func(text string) { said += text }))
			exit := reason.ExitOK
			if err != nil {
				exit, said = failure.Of(err, "").Exit, said+err.Error()
			}
			s.mu.Lock()
			looks := s.now
			s.mu.Unlock()
			if exit != c.exit || !strings.Contains(said, c.says) || looks < c.looks {
				t.Errorf("exit %d after %d looks: %s", exit, looks, said)
			}
		})
	}
}
