package server

import (
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestServerSpeaksForHosts: another server says who its hosts are, and is sent no heads; a question goes to the host through it, and it alone may
// bring the answer. It is not asked whether the store knows what the host has: that it has found out itself.
func TestServerSpeaksForHosts(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	r.give("web-1", []byte("first"))
	r.change(func() { r.shown = &reason.Error{Code: reason.ServerBehind, Doing: "look"} })
	h := r.as("server-b")
	s := h.relay()
	s.say(wire.RelayedAgent{Number: 7, Who: &wire.Vouched{Name: "web-1", UID: "uid-of-web-1", Key: "sha256:1", Through: "edge"}, Report: &wire.Report{Number: 1}})
	r.wait(t, "the report is heard", func() bool { return slices.Contains(r.heard, "heard web-1 1 1") })
	for n := s.next(7); !n.Taken; n = s.next(7) {
		if n.Problem != nil {
			t.Fatalf("%+v", n.Problem)
		}
	}
	r.give("web-1", []byte("second"))
	done := r.ask(t.Context(), "web-1", wire.Question{What: wire.AskHistory})
	n := s.next(7)
	if len(n.Questions) != 1 || len(n.Head) > 0 {
		t.Fatalf("%+v", n)
	}
	path := answerPath(n.Questions[0].ID, "&"+wire.ParamNode+"=uid-of-web-1")
	for _, other := range []string{"server-c", "edge", "relay-1"} {
		r.change(func() { r.nodes["edge"] = &node{id: Identity{Name: "edge", UID: "uid-of-edge", Relay: true}} })
		if status, p := r.as(other).send(path, []byte("a lie"), nil); status != http.StatusNotFound {
			t.Errorf("the answer by %s: %d %+v", other, status, p)
		}
	}
	if _, p := h.send(path, []byte("the answer"), &map[int]any{}); p != nil {
		t.Errorf("%+v", p)
	}
	if a := <-done; a.err != nil || a.text != "the answer" {
		t.Errorf("%q, %v", a.text, a.err)
	}
	s.say(wire.RelayedAgent{Number: 7, Left: wire.Lost})
	r.wait(t, "it is lost", func() bool { return slices.Contains(r.heard, "closed web-1 1 true") })
	s.end()
}

// TestRelayVouchesForNobody: what a relay says of a host without its certificate ends its stream.
func TestRelayVouchesForNobody(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	s := r.as("relay-1").relay()
	s.say(wire.RelayedAgent{Number: 7, Who: &wire.Vouched{Name: "web-1", UID: "uid-of-web-1", Key: "sha256:1"}, Report: &wire.Report{Number: 1}})
	for {
		var m wire.RelayDown
		if err := wire.ReadFrame(s.body, &m); err != nil {
			break
		}
		for _, a := range m.Agents {
			t.Errorf("it is told %+v", a)
		}
	}
	r.wait(t, "nothing is heard", func() bool { return len(r.heard) == 0 })
	s.end()
}

// TestBetterElsewhere: hosts and relays that are better with another server are refused, and their watches end within a heartbeat. Before
// that hosts are told where the others are.
func TestBetterElsewhere(t *testing.T) {
	noLeak(t)
	var elsewhere atomic.Bool
	others := []string{"a:6444", "b:6444"}
	r := newRig(t, func(o *Options) {
		o.Times.Heartbeat = Between{50 * time.Millisecond, 60 * time.Millisecond}
		o.Servers = func() []string { return others }
		o.Serving = func() error {
			if elsewhere.Load() {
				return &reason.Error{Code: reason.StoreUnreachable, Doing: "serve hosts", After: time.Minute}
			}
			return nil
		}
	})
	r.add("web-1")
	r.give("web-1", []byte("head"))
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{})
	if f := w.next(); !slices.Equal(f.Servers, others) {
		t.Errorf("it is told %+v, want the servers", f)
	}
	for range 3 { // heartbeats say it no more
		if f := w.next(); string(f.Head) != "head" || len(f.Servers) > 0 {
			t.Errorf("%+v", f)
		}
	}
	s := r.as("relay-1").relay()
	elsewhere.Store(true)
	for _, body := range []io.Reader{w.body, s.body} {
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Errorf("it ends with %v", err)
		}
	}
	s.end()
	status, p := h.call(wire.PathWatch, wire.WatchRequest{Protocol: wire.Protocol}, nil)
	if status != http.StatusServiceUnavailable || p == nil || p.Code != reason.StoreUnreachable.String() || p.RetryAfter == 0 {
		t.Errorf("another watch: %d %+v", status, p)
	}
}
