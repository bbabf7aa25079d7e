package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// relayStream is the stream of a relay.
type relayStream struct {
	t    testing.TB
	up   *io.PipeWriter
	body io.ReadCloser
	end  context.CancelFunc
}

// relay opens one.
func (h *host) relay() *relayStream {
	h.rig.t.Helper()
	body, up := io.Pipe()
	ctx, cancel := context.WithCancel(h.rig.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+h.rig.addr+wire.PathRelay, body)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	s := &relayStream{t: h.rig.t, up: up, end: func() {
		cancel()
		_ = up.Close()
	}}
	go s.say() // the server answers when it has read something
	resp, err := h.Do(req)
	if err != nil {
		h.rig.t.Fatal(err)
	}
	h.rig.t.Cleanup(func() {
		s.end()
		_ = resp.Body.Close()
	})
	if resp.StatusCode != http.StatusOK {
		h.rig.t.Fatalf("a stream is refused: %+v", problemOf(h.rig.t, resp))
	}
	s.body = resp.Body
	return s
}

// say tells the server of agents.
func (s *relayStream) say(agents ...wire.RelayedAgent) {
	if err := wire.WriteFrame(s.up, wire.RelayUp{Protocol: wire.Protocol, Agents: agents}); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		s.t.Error(err)
	}
}

// next is the next news of an agent.
func (s *relayStream) next(number uint64) wire.RelayedNews {
	s.t.Helper()
	for {
		var m wire.RelayDown
		if err := wire.ReadFrame(s.body, &m); err != nil {
			s.t.Fatalf("the stream has ended: %v", err)
		}
		if err := m.Validate(); err != nil {
			s.t.Fatal(err)
		}
		for _, a := range m.Agents {
			if a.Number == number {
				return a
			}
		}
	}
}

// TestRelayStream: an agent of a relay is a watch like any other: heads, reports, heartbeats, questions, and its end.
func TestRelayStream(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	r.add("web-2")
	r.give("web-1", []byte("first"))
	cert := func(name string) []byte { return r.ca.client(t, name, 0, x509.ExtKeyUsageClientAuth).Leaf.Raw }
	h := r.as("relay-1")
	s := h.relay()
	s.say(
		wire.RelayedAgent{Number: 7, Certificate: cert("web-1"), Report: &wire.Report{Number: 1}},
		wire.RelayedAgent{Number: 9, Report: &wire.Report{Number: 9}}, // of nobody
	)
	n := s.next(7)
	for len(n.Head) == 0 {
		n = s.next(7)
	}
	if string(n.Head) != "first" || n.Problem != nil {
		t.Errorf("%+v", n)
	}
	r.give("web-1", []byte("second"))
	if n = s.next(7); string(n.Head) != "second" {
		t.Errorf("%+v", n)
	}
	s.say(wire.RelayedAgent{Number: 7, Asked: true})
	r.wait(t, "the heartbeat is told", func() bool { return slices.Contains(r.heard, "asked web-1 1") })
	s.say(wire.RelayedAgent{Number: 7, Report: &wire.Report{Number: 2}})
	if n = s.next(7); n.Status == nil || n.Status.RetryAfter != 2 {
		t.Errorf("the answer to a report: %+v", n)
	}
	done := r.ask(t.Context(), "web-1", wire.Question{What: wire.AskHistory})
	if n = s.next(7); len(n.Questions) != 1 || n.Questions[0].What != wire.AskHistory {
		t.Fatalf("%+v", n)
	}
	id := n.Questions[0].ID
	for what, path := range map[string]string{"of another node": "&" + wire.ParamNode + "=uid-of-web-2", "of no node": ""} {
		if status, p := h.send(answerPath(id, path), []byte("a lie"), nil); status != http.StatusNotFound {
			t.Errorf("an answer %s: %d %+v", what, status, p)
		}
	}
	of := "&" + wire.ParamNode + "=uid-of-web-1"
	if status, p := r.as("relay-2").send(answerPath(id, of), []byte("a lie"), nil); status != http.StatusNotFound {
		t.Errorf("the answer by another relay: %d %+v", status, p)
	}
	if status, p := r.as("web-1").send(answerPath(id, ""), []byte("a lie"), nil); status != http.StatusNotFound {
		t.Errorf("the answer by the host, which was not asked here: %d %+v", status, p)
	}
	if _, p := h.send(answerPath(id, of), []byte("the answer"), &map[int]any{}); p != nil {
		t.Errorf("%+v", p)
	}
	if a := <-done; a.err != nil || a.text != "the answer" {
		t.Errorf("%q, %v", a.text, a.err)
	}
	s.say(wire.RelayedAgent{Number: 7, Left: wire.Lost})
	r.wait(t, "it is lost", func() bool { return slices.Contains(r.heard, "closed web-1 1 true") })
	s.say(wire.RelayedAgent{Number: 8, Certificate: cert("web-2"), Report: &wire.Report{Number: 1}})
	r.wait(t, "another one is there", func() bool { return slices.Contains(r.heard, "heard web-2 2 1") })
	s.end()
	r.wait(t, "with the relay it is not heard, and not lost", func() bool { return slices.Contains(r.heard, "closed web-2 2 false") })
	want := []string{"opened web-1 1", "heard web-1 1 1", "asked web-1 1", "heard web-1 1 2", "closed web-1 1 true", "opened web-2 2", "heard web-2 2 1", "closed web-2 2 false"}
	if r.world.mu.Lock(); !slices.Equal(r.heard, want) {
		t.Errorf("heard %v", r.heard)
	}
	r.world.mu.Unlock()
	r.stop()
}

// TestRelayedDeposits: what is signed for hosts that are away is left with one behind a relay, each newest head once and a few at a time.
func TestRelayedDeposits(t *testing.T) {
	noLeak(t)
	var away []Identity
	r := newRig(t, func(o *Options) {
		o.Times.Heartbeat = Between{time.Millisecond, time.Millisecond}
		o.Entrusted = func(holder Identity) []Identity {
			if holder.Name != "web-1" {
				return nil
			}
			return away
		}
	})
	list := listOf(t, catalog.Layer{Priority: 1, ID: "NodeConfig/prod/web"})
	for i := range wire.RelayedDepositsMax + 2 {
		id := r.add(fmt.Sprint("away-", i))
		r.give(id.Name, r.head(id, 1, list))
		away = append(away, id)
	}
	r.add("web-1")
	s := r.as("relay-1").relay()
	s.say(wire.RelayedAgent{Number: 7, Certificate: r.ca.client(t, "web-1", 0, x509.ExtKeyUsageClientAuth).Leaf.Raw, Report: &wire.Report{Number: 1}})
	heads := map[string]int{}
	take := func(n int) {
		t.Helper()
		for n > 0 {
			for _, d := range s.next(7).Deposits {
				_, h, err := catalog.DecodeHead(d.Head)
				root, _ := h.Root()
				if err != nil || catalog.ListRoot(d.List) != root {
					t.Fatalf("a head of %s with another list, %v", h.Node, err)
				}
				heads[fmt.Sprint(h.Node, " ", h.Version)]++
				n--
			}
		}
	}
	take(len(away))
	r.give("away-3", r.head(away[3], 2, list))
	take(1)
	if len(heads) != len(away)+1 || heads["away-3 2"] != 1 {
		t.Errorf("it was left %v", heads)
	}
	r.stop()
}

// TestRelayedNodeGone: whose node goes is told why, and a certificate that has expired, or is of nobody, brings none in. It is audited.
func TestRelayedNodeGone(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	s := r.as("relay-1").relay()
	s.say(wire.RelayedAgent{Number: 1, Certificate: r.ca.client(t, "web-1", 0, x509.ExtKeyUsageClientAuth).Leaf.Raw, Report: &wire.Report{Number: 1}})
	if n := s.next(1); !n.Taken {
		t.Fatalf("%+v", n)
	}
	r.change(func() { r.nodes["web-1"].gone = true })
	if n := s.next(1); n.Problem == nil || n.Problem.Code != reason.IdentityGone.String() {
		t.Errorf("%+v", n)
	}
	r.add("web-2")
	number := uint64(4) // an agent that has not been forgotten yet must not begin once more
	for name, c := range map[string]struct {
		node string
		late time.Duration
		code reason.Code
	}{"expired": {"web-2", 2 * time.Hour, reason.CertificateTime}, "of nobody": {"web-3", 0, reason.CertificateRefused}, "of a relay": {"relay-2", 0, reason.CertificateRefused}} {
		number++
		s.say(wire.RelayedAgent{Number: number, Certificate: r.ca.client(t, c.node, c.late, x509.ExtKeyUsageClientAuth).Leaf.Raw, Report: &wire.Report{Number: 1}})
		if n := s.next(number); n.Taken || n.Problem == nil || n.Problem.Code != c.code.String() {
			t.Errorf("%s: %+v", name, n)
		}
	}
	r.wait(t, "it is audited", func() bool {
		return slices.ContainsFunc(r.refusals, func(x Refusal) bool {
			return x.Call == wire.PathRelay && x.Code == reason.CertificateTime && x.Who.Name == "web-2" && x.Who.Through == "relay-1"
		})
	})
}

// TestRelayFetches: a relay gets what the head of any living node names, and no more than that.
func TestRelayFetches(t *testing.T) {
	r := newRig(t, nil)
	one, two := r.add("web-1"), r.add("web-2")
	target, other := r.layer("l", 10, 0, 0), r.layer("other", 10, 0, 0)
	list := listOf(t, catalog.Layer{ID: "l", Root: target.Root()})
	head := r.head(one, 5, list)
	h := r.as("relay-1")
	if parts, whole := h.parts(wire.SyncRequest{Head: head, Layer: "l", Target: target.Root()}); !whole || len(parts) == 0 {
		t.Errorf("%+v", parts)
	}
	if _, p := h.call(wire.PathNodes, wire.NodesRequest{Head: r.head(two, 5, list), Layer: "l", Hashes: []catalog.Digest{target.Root()}}, &wire.NodesReply{}); p != nil {
		t.Errorf("%+v", p)
	}
	for what, c := range map[string]struct {
		message wire.SyncRequest
		code    reason.Code
	}{
		"what is not listed":      {wire.SyncRequest{Head: head, Layer: "other", Target: other.Root()}, reason.NotListed},
		"a head of nobody":        {wire.SyncRequest{Head: r.head(Identity{Name: "web-9", UID: "uid-of-web-9"}, 5, list), Layer: "l", Target: target.Root()}, reason.ObjectUnknown},
		"a head that was changed": {wire.SyncRequest{Head: append(slices.Clone(head[:len(head)-1]), head[len(head)-1]^1), Layer: "l", Target: target.Root()}, reason.HeadRefused},
	} {
		if _, p := h.call(wire.PathSync, c.message, nil); p == nil || p.Code != c.code.String() {
			t.Errorf("%s: %+v", what, p)
		}
	}
	for _, path := range []string{wire.PathWatch, wire.PathStatus} {
		if status, p := h.call(path, wire.WatchRequest{Protocol: wire.Protocol}, nil); status != http.StatusUnauthorized {
			t.Errorf("%s by a relay: %d %+v", path, status, p)
		}
	}
	if status, p := r.as("web-1").call(wire.PathRelay, wire.RelayUp{Protocol: wire.Protocol}, nil); status != http.StatusUnauthorized {
		t.Errorf("a stream by a host: %d %+v", status, p)
	}
}

// TestRelayRenewsForHosts: a relay passes on the request of a host with the certificate that it has shown, which may have expired; a host passes on nothing.
func TestRelayRenewsForHosts(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	cert := r.ca.client(t, "web-1", 2*time.Hour, x509.ExtKeyUsageClientAuth).Leaf.Raw
	var c wire.Credentials
	if _, p := r.as("relay-1").call(wire.PathRenew, wire.RenewRequest{Protocol: wire.Protocol, Certificate: cert}, &c); p != nil || c.Name != "web-1" {
		t.Errorf("%+v, %+v", c, p)
	}
	if status, p := r.as("web-1").call(wire.PathRenew, wire.RenewRequest{Protocol: wire.Protocol, Certificate: cert}, nil); status != http.StatusBadRequest {
		t.Errorf("by a host: %d %+v", status, p)
	}
}

// TestRelayCallers: a node and a relay of one name are two callers, and a relay has more places.
func TestRelayCallers(t *testing.T) {
	node, relay := Identity{Name: "edge"}, Identity{Name: "edge", Relay: true}
	if node.caller() == relay.caller() || placesOf(node) != hostPlaces || placesOf(relay) != relayPlaces {
		t.Error(fmt.Sprint(node.caller(), relay.caller()))
	}
}
