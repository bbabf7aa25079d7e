package misfit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOf(t *testing.T) {
	const begins = "the object does not have the form of its kind: "
	for _, c := range []struct {
		said   string
		words  string // "" is the error as it is
		causes []string
	}{
		{"something else", "", nil},
		{"failed to create typed live object (qa/a; v1, Kind=X): .spec.a: field not declared in schema", "", nil},
		{"failed to create typed patch object (a): b", "b", nil},
		{"failed to create typed patch object (qa/a; tako.dev/v1alpha1, Kind=NodeConfig): .spec.a: field not declared in schema",
			".spec.a: field not declared in schema", []string{"spec.a: TK0412: field not declared in schema"}},
		{"failed to create typed patch object (/a; v1, Kind=X): errors:\n  .spec.a: field not declared in schema\n  .spec.b: expected string, got &value.valueUnstructured{Value:420}",
			".spec.a: field not declared in schema; .spec.b: expected string, got 420",
			[]string{"spec.a: TK0412: field not declared in schema", "spec.b: TK0411: expected string, got 420"}},
		{`failed to create typed patch object (/n; tako.dev/v1alpha1, Kind=Node): .spec.taints: duplicate entries for key [effect="NoSchedule",key="a"]`,
			`.spec.taints: two entries have effect="NoSchedule" and key="a": remove one of them`,
			[]string{`spec.taints: TK0420: two entries have effect="NoSchedule" and key="a": remove one of them`}},
	} {
		err := errors.New(c.said)
		got := Of(err)
		if c.words == "" {
			if got != err {
				t.Errorf("%s: %v", c.said, got)
			}
			continue
		}
		var of *apierrors.StatusError
		if !errors.As(got, &of) || !apierrors.IsBadRequest(got) || got.Error() != begins+c.words {
			t.Errorf("%s: %v, want %q", c.said, got, c.words)
			continue
		}
		var causes []string
		for _, cause := range of.ErrStatus.Details.Causes {
			causes = append(causes, cause.Field+": "+cause.Message)
		}
		if strings.Join(causes, "\n") != strings.Join(c.causes, "\n") {
			t.Errorf("%s: causes %q", c.said, causes)
		}
	}
	if Of(nil) != nil {
		t.Error("nil is an error")
	}
	of, _ := answer("failed to create typed patch object (qa/a; tako.dev/v1alpha1, Kind=Node): .a: b")
	if d := of.ErrStatus.Details; d.Name != "a" || d.Group != "tako.dev" || d.Kind != "Node" {
		t.Errorf("it is about %+v", d)
	}
}

// TestManyMistakes: an answer has the first of them, and how many there are beside.
func TestManyMistakes(t *testing.T) {
	const count = 5000
	said := "failed to create typed patch object (qa/a; v1, Kind=X): errors:"
	for i := range count {
		said += fmt.Sprintf("\n  .spec.f%d: field not declared in schema", i)
	}
	of, _ := answer(said)
	if n := len(of.ErrStatus.Details.Causes); n != MistakesMax || !strings.HasSuffix(of.Error(), "; and 4900 more mistakes") {
		t.Errorf("%d causes, and ends with %q", n, of.Error()[len(of.Error())-40:])
	}
}

// TestHandler: of what is only tried, a misfit that is answered as a fault of the server becomes the client's; all else stays.
func TestHandler(t *testing.T) {
	const fault = "failed to create typed patch object (/a; example.com/v1, Kind=X): .spec.a: field not declared in schema"
	text := func(message string, code int32) string {
		b, err := json.Marshal(metav1.Status{Status: metav1.StatusFailure, Message: message, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct {
		name, method, query string
		code                int
		body                string
		want                int
	}{
		{"misfit", http.MethodPatch, "?dryRun=All", 500, text(fault, 500), 400},
		{"another fault", http.MethodPatch, "?dryRun=All", 500, text("oh", 500), 500},
		{"no status", http.MethodPatch, "?dryRun=All", 500, "oh", 500},
		{"refused", http.MethodPatch, "?dryRun=All", 422, text(fault, 422), 422},
		{"good", http.MethodPatch, "?dryRun=All", 200, "{}", 200},
		{"not tried", http.MethodPatch, "", 500, text(fault, 500), 500},
		{"no patch", http.MethodPut, "?dryRun=All", 500, text(fault, 500), 500},
	} {
		w := httptest.NewRecorder()
		Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		})).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, "/"+c.query, nil))
		if w.Code != c.want || c.want == c.code && w.Body.String() != c.body || c.want != c.code && !strings.Contains(w.Body.String(), `"message":"the object does not have`) {
			t.Errorf("%s: %d, %s", c.name, w.Code, w.Body)
		}
	}
}
