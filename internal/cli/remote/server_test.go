package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var things = Kind{GroupVersionKind: schema.GroupVersionKind{Group: "x.org", Version: "v1", Kind: "Thing"}, Resource: "things", Namespaced: true}

// serve answers requests, and returns a Server that asks there with the warnings that it gave.
func serve(t *testing.T, handler http.HandlerFunc) (*Server, *[]string) {
	t.Helper()
	h := httptest.NewServer(handler)
	t.Cleanup(h.Close)
	var mutex sync.Mutex
	warnings := &[]string{}
	s, err := New(&rest.Config{Host: h.URL}, Options{RequestTimeout: 5 * time.Second, Warn: func(text string) {
		mutex.Lock()
		defer mutex.Unlock()
		*warnings = append(*warnings, text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s, warnings
}

func object(name string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q, "resourceVersion": "5", "generation": 3}}`, name)
}

func TestListInChunks(t *testing.T) {
	var asked []string
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := r.URL.Query().Get("continue")
		asked = append(asked, next)
		w.Header().Set("Content-Type", "application/json")
		switch next {
		case "":
			fmt.Fprintf(w, `{"metadata": {"continue": "two", "resourceVersion": "7"}, "items": [%s, %s]}`, object("a"), object("b"))
		case "two": // the server has forgotten how the list began
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "metadata": {"continue": "now"}}`)
		case "now":
			fmt.Fprintf(w, `{"metadata": {"resourceVersion": "9"}, "items": [%s]}`, object("c"))
		}
	})
	var names []string
	version, err := s.List(t.Context(), Query{Kind: things, Namespace: "n", Labels: "a=b"}, func(o *unstructured.Unstructured) error {
		if o.GetKind() != "Thing" || o.GetAPIVersion() != "x.org/v1" || o.GetGeneration() != 3 {
			t.Errorf("an object came as %v", o.Object)
		}
		names = append(names, o.GetName())
		return nil
	})
	if err != nil || strings.Join(names, "") != "abc" || version != "9" || strings.Join(asked, ",") != ",two,now" {
		t.Errorf("%v at %s after asking for %q (%v)", names, version, asked, err)
	}
}

// TestListThatExpires: a server that forgets for ever is not asked for ever.
func TestListThatExpires(t *testing.T) {
	asked := 0
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked++; asked == 1 {
			fmt.Fprintf(w, `{"metadata": {"continue": "next"}, "items": [%s]}`, object("a"))
			return
		}
		w.WriteHeader(http.StatusGone)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "metadata": {"continue": "again-%d"}}`, asked)
	})
	_, err := s.List(t.Context(), Query{Kind: things}, func(*unstructured.Unstructured) error { return nil })
	if !apierrors.IsResourceExpired(err) || asked > forgottenMax+2 {
		t.Errorf("a list that expires for ever was asked for %d times and ended with %v", asked, err)
	}
}

func TestWatch(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "true" || q.Get("fieldSelector") != "metadata.name=a" || r.URL.Path != "/apis/x.org/v1/namespaces/n/things" {
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		switch q.Get("resourceVersion") {
		case "1":
			fmt.Fprintf(w, `{"type": "ADDED", "object": %s}`+"\n"+`{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}`+"\n", object("a"))
		case "8":
			fmt.Fprint(w, `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}`)
		case "9":
			fmt.Fprint(w, `{"type": "ADDED", "object": {"meta`) // the line breaks
		case "10":
			fmt.Fprint(w, `{"type": "ERROR", "object": {"kind": "Status", "code": 500, "reason": "InternalError", "message": "ill"}}`)
		case "11":
			fmt.Fprint(w, `no JSON`)
		}
	})
	query := Query{Kind: things, Namespace: "n", Name: "a"}
	var seen []string
	watch := func(from string) (string, error) {
		return s.Watch(t.Context(), query, from, func(e EventType, o *unstructured.Unstructured) error {
			seen = append(seen, string(e)+" "+o.GetName())
			return nil
		})
	}
	if next, err := watch("1"); err != nil || next != "8" || strings.Join(seen, ",") != "ADDED a" {
		t.Errorf("%v, to go on from %s (%v)", seen, next, err)
	}
	if _, err := watch("8"); !errors.Is(err, ErrExpired) {
		t.Errorf("a watch that is too old ended with %v", err)
	}
	if next, err := watch("9"); err != nil || next != "9" {
		t.Errorf("a line that broke: from %s (%v)", next, err)
	}
	if _, err := watch("10"); !apierrors.IsInternalError(err) {
		t.Errorf("an error of the server came as %v", err)
	}
	if _, err := watch("11"); err == nil {
		t.Error("what is no JSON was taken")
	}
	stop := errors.New("stop")
	if _, err := s.Watch(t.Context(), query, "1", func(EventType, *unstructured.Unstructured) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the end from inside came as %v", err)
	}
}

func TestWarningsAreSaidOnce(t *testing.T) {
	s, warnings := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "old field"`)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, object("a"))
	})
	for range 3 {
		if _, err := s.Get(t.Context(), Ref{Kind: things, Namespace: "n", Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(*warnings) != 1 || (*warnings)[0] != "old field" {
		t.Errorf("warnings: %q", *warnings)
	}
}

// TestWordedRefusal: why credentials are refused reaches the person, also from the questions which kinds there are.
func TestWordedRefusal(t *testing.T) {
	s, warnings := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "ended a year ago"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401, "message": "Unauthorized"}`)
	})
	_, listed := s.Kinds(t.Context())
	_, got := s.Get(t.Context(), Ref{Kind: things, Name: "a"})
	for _, err := range []error{listed, got} {
		if !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "ended a year ago") {
			t.Errorf("it came as %v", err)
		}
	}
	if len(*warnings) != 0 {
		t.Errorf("said twice: %q", *warnings)
	}
}

func TestRequestTimeout(t *testing.T) {
	release := make(chan struct{})
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	s.options.RequestTimeout = 20 * time.Millisecond
	if _, err := s.Get(t.Context(), Ref{Kind: things, Name: "a"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that says nothing: %v", err)
	}
}
