package fleet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/remote"
)

// TestDeclareAgainstStatuses: that controllers write the status of an object between the look at it and the change is no conflict; that somebody has declared
// something else, or another object has its name now, is one. Whoever changes it all the time does not hold a command up for ever.
func TestDeclareAgainstStatuses(t *testing.T) {
	const read = `{"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a", "uid": "u", "generation": 3, "resourceVersion": "5"}}`
	for name, c := range map[string]struct {
		now       string // what is there when the first change comes
		conflicts int    // how many changes are refused
		conflict  bool
		ok        bool
	}{
		"as it was read":       {conflicts: 0, ok: true},
		"another status":       {now: `"uid": "u", "generation": 3`, conflicts: 2, ok: true},
		"another spec":         {now: `"uid": "u", "generation": 4`, conflicts: 1, conflict: true},
		"another label":        {now: `"uid": "u", "generation": 3, "labels": {"x": "y"}`, conflicts: 1, conflict: true},
		"another object":       {now: `"uid": "v", "generation": 3`, conflicts: 1, conflict: true},
		"another all the time": {now: `"uid": "u", "generation": 3`, conflicts: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			version, refused := 5, 0
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_, _ = fmt.Fprintf(w, `{"apiVersion": "x.org/v1", "kind": "Thing", "metadata": {"name": "a", "resourceVersion": "%d", %s}}`, version, c.now)
					return
				}
				body, err := io.ReadAll(r.Body)
				var sent unstructured.Unstructured
				if err := sent.UnmarshalJSON(body); err != nil {
					t.Error(err)
				}
				if err != nil || sent.GetResourceVersion() != fmt.Sprint(version) {
					t.Errorf("a change of version %s comes, and %d is there (%v)", sent.GetResourceVersion(), version, err)
				}
				if refused < c.conflicts {
					refused++
					version++
					w.WriteHeader(http.StatusConflict)
					_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}`)
					return
				}
				_, _ = w.Write(body)
			}))
			defer h.Close()
			server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
			for _, o := range []*unstructured.Unstructured{before, after} {
				if err := o.UnmarshalJSON([]byte(read)); err != nil {
					t.Fatal(err)
				}
			}
			kind := remote.Kind{GroupVersionKind: schema.GroupVersionKind{Group: "x.org", Version: "v1", Kind: "Thing"}, Resource: "things"}
			_, err = Declare(t.Context(), server, remote.Ref{Kind: kind, Name: "a"}, before, after, false)
			if (err == nil) != c.ok || apierrors.IsConflict(err) != c.conflict || refused > attemptsMax {
				t.Errorf("%v after %d that were refused", err, refused)
			}
		})
	}
}
