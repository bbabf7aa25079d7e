package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"tako.dev/tako/internal/cli/remote"
)

// theatre is a server of two kinds: of the one there is news when the test says so, the other may not be seen.
type theatre struct{ news chan string }

func (s *theatre) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api":
		fmt.Fprint(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
	case r.URL.Path == "/apis":
		fmt.Fprint(w, `{"kind": "APIGroupList", "groups": []}`)
	case r.URL.Path == "/api/v1":
		fmt.Fprint(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "things", "singularName": "thing", "kind": "Thing", "namespaced": true, "verbs": ["list"]},
			{"name": "hidden", "singularName": "hidden", "kind": "Hidden", "namespaced": true, "verbs": ["list"]}]}`)
	case strings.HasSuffix(r.URL.Path, "/hidden"):
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`)
	case r.URL.Query().Get("watch") == "true":
		w.(http.Flusher).Flush()
		for version := 6; ; version++ {
			select {
			case name := <-s.news:
				fmt.Fprintf(w, `{"type": "ADDED", "object": {"kind": "Table", "rows": [{"cells": [], "object": {"metadata": {"name": %q, "uid": %q, "resourceVersion": "%d"}}}]}}`+"\n", name, name, version)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	default:
		fmt.Fprint(w, `{"kind": "Table", "metadata": {"resourceVersion": "5"}, "rows": []}`)
	}
}

// TestFollow: what is shown is shown again after a change, many changes are one look, a server that is away is waited for and told of
// once, and the end of it is no error.
func TestFollow(t *testing.T) {
	s := &theatre{news: make(chan string, 100)}
	h := httptest.NewServer(s)
	defer h.Close()
	server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said atomic.Int32
	looks := 0
	show := func(context.Context) error {
		looks++
		switch looks {
		case 1:
			for i := range 50 {
				s.news <- fmt.Sprint("a", i)
			}
		case 2, 3:
			return apierrors.NewServiceUnavailable("it starts")
		case 4:
			s.news <- "last"
		case 5:
			for len(s.news) > 0 && ctx.Err() == nil { // what is on its way belongs to this look
				<-time.After(time.Millisecond)
			}
			cancel() // Ctrl-C
		}
		return nil
	}
	source := Source{Server: server, Resources: []string{"things", "hidden"}, Show: show, Say: func(string) { said.Add(1) }}
	if err := source.Follow(ctx); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if looks != 5 || said.Load() != 1 || len(s.news) > 0 {
		t.Errorf("it looked %d times and told %d times that the server is away; %d changes are left", looks, said.Load(), len(s.news))
	}
}

// TestFollowEnds: the first look must succeed, and what shows may end it.
func TestFollowEnds(t *testing.T) {
	h := httptest.NewServer(&theatre{})
	defer h.Close()
	server, err := remote.New(&rest.Config{Host: h.URL}, remote.Options{RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the pipe is closed")
	for name, answers := range map[string][]error{"first": {broken}, "first, and the server is away": {apierrors.NewServiceUnavailable("it starts")}} {
		source := Source{Server: server, Resources: []string{"things"}, Say: func(string) {}, Show: func(context.Context) error {
			next := answers[0]
			answers = answers[1:]
			return next
		}}
		if err := source.Follow(t.Context()); err == nil {
			t.Errorf("%s: it ended without an error", name)
		}
	}
}

func TestScreen(t *testing.T) {
	s := Screen{Width: 8}
	first := s.Page("Nodes 3\na line that is long\n")
	if first != "\x1b[H\x1b[2JNodes 3\x1b[K\na line …\x1b[K\n\x1b[J" {
		t.Errorf("first %q", first)
	}
	if second := s.Page("Nodes 4\n"); second != "\x1b[HNodes 4\x1b[K\n\x1b[J" {
		t.Errorf("second %q", second)
	}
}
