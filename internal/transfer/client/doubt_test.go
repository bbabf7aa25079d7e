package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// heads sends signed heads through the watch, one after the other.
func (s *scene) heads(key *trust.SigningKey, changes ...func(h *catalog.Head)) {
	s.t.Helper()
	for _, change := range changes {
		h := catalog.Head{
			Cluster: s.cluster.id, Node: "web-1", UID: "uid-1", Epoch: 1, Version: 7, Roots: []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.KeyOf("another")}},
			Issued: time.Now().Unix(), Expires: time.Now().Add(time.Hour).Unix(), MinProtocol: 1,
		}
		change(&h)
		signed, err := h.Sign(key)
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := signed.Encode()
		if err != nil {
			s.t.Fatal(err)
		}
		s.send(text)
	}
}

func (s *scene) send(head []byte) {
	s.set(func() {
		s.head = head
		close(s.changed)
		s.changed = make(chan struct{})
	})
	pass(100 * time.Millisecond)
}

// Each kind of head that a host does not believe is said in its log, with what a person does next: at once, and then once a minute.
func TestDoubtsAreSaid(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		s.wantVersions(7)
		kinds := []struct {
			doubt core.Doubt
			key   *trust.SigningKey
			h     func(h *catalog.Head)
		}{
			{core.DoubtOld, s.cluster.heads, func(h *catalog.Head) { h.Version = 6 }},
			{core.DoubtNode, s.cluster.heads, func(h *catalog.Head) { h.Node = "web-2" }},
			{core.DoubtNode, s.cluster.heads, func(h *catalog.Head) { h.UID = "uid-2" }},
			{core.DoubtCluster, s.cluster.heads, func(h *catalog.Head) { h.Cluster = trust.NewClusterID() }},
			{core.DoubtKey, trust.NewSigningKey(), func(*catalog.Head) {}},
			{core.DoubtEpoch, s.cluster.heads, func(h *catalog.Head) { h.Epoch = 2 }},
			{core.DoubtEquivocation, s.cluster.heads, func(*catalog.Head) {}},
		}
		for round := range 2 {
			s.log.Reset()
			for _, k := range kinds {
				for range 4 {
					s.heads(k.key, k.h)
					s.heads(s.cluster.heads, func(h *catalog.Head) { h.Version = 5 }) // the same again would be no news
				}
			}
			s.send([]byte("no head"))
			s.send(nil) // which is not repeated as a heartbeat
			log := s.log.String()
			for _, doubt := range []core.Doubt{core.DoubtOld, core.DoubtNode, core.DoubtCluster, core.DoubtKey, core.DoubtEpoch, core.DoubtMalformed, core.DoubtEquivocation} {
				line := `what="` + string(doubt) + `"`
				if n := strings.Count(log, line); n != 1 {
					t.Errorf("round %d: %q is said %d times", round, doubt, n)
				}
			}
			if round == 1 && (!strings.Contains(log, `what="`+string(core.DoubtKey)+`" times=4`) || !strings.Contains(log, `what="`+string(core.DoubtNode)+`" times=8`)) {
				t.Errorf("the second time it is not said how often: %s", log)
			}
			for _, line := range strings.Split(log, "\n") {
				if strings.Contains(line, "do not believe") && (!strings.Contains(line, "hint=") || !strings.Contains(line, "code=TK")) {
					t.Errorf("nobody is told what to do: %s", line)
				}
			}
			pass(2 * time.Minute)
		}
		s.wantVersions(7)
	})
}

// How a host stands to its server is told, and since when; only what needs a person is called cut off.
func TestLinks(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		state := func(what string, connected, cutOff bool) client.Link {
			t.Helper()
			l := s.links.State()
			if l.Connected != connected || (l.CutOff(time.Now()) != nil) != cutOff {
				t.Errorf("%s: %+v, trouble %+v, cut off %+v", what, l, l.Trouble, l.CutOff(time.Now()))
			}
			return l
		}
		state("not begun", false, false)
		s.set(func() {
			s.refuse = &reason.Error{Code: reason.StoreUnreachable, Doing: "identify node web-1", Cause: errors.New("it restarts")}
		})
		began := time.Now()
		s.start()
		pass(4 * time.Minute)
		state("the server is not ready", false, false)
		pass(2 * time.Minute)
		if l := state("for long", false, true); !l.CutOff(time.Now()).Since.Equal(began) || l.Trouble.Code != reason.StoreUnreachable {
			t.Errorf("cut off since %s, and it began at %s: %+v", l.CutOff(time.Now()).Since, began, l.Trouble)
		}
		s.set(func() { s.refuse = nil; s.again = true })
		s.publish(7, "one")
		pass(2 * time.Minute)
		since := state("connected", true, false).ConnectedSince
		s.publish(8, "two")
		pass(time.Minute)
		if l := state("after another watch", true, false); !l.ConnectedSince.Equal(since) {
			t.Errorf("a watch that ends as the server says is a loss: %+v", l)
		}
		s.wantVersions(7, 8)
		refusal := &reason.Error{Code: reason.IdentityGone, Doing: "identify node web-1", Cause: errors.New("the node was deleted"), Hint: "join again"}
		s.set(func() { s.refuse, s.cut, s.again = refusal, true, false })
		lost := time.Now()
		s.publish(9, "three")
		pass(20 * time.Minute)
		l := state("refused", false, true)
		if c := l.CutOff(time.Now()); c.Code != reason.IdentityGone || c.Hint != "join again" || c.Since.Sub(lost) > 2*time.Minute || c.Since.Before(lost) || l.ConnectedSince.Sub(lost) > 2*time.Minute {
			t.Errorf("refused: %+v, %+v, lost at %s", l, c, lost)
		}
	})
}

// What could not be fetched is told on the host, until it is there.
func TestStuck(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		if v, hint := s.links.Stuck(); v.Type != wire.Pending || hint != "" {
			t.Errorf("nothing is wrong, and it says %+v, %q", v, hint)
		}
		s.heads(s.cluster.heads, func(h *catalog.Head) { h.Version, h.MinProtocol = 8, catalog.HeadProtocol+1 })
		if v, hint := s.links.Stuck(); v.Type != wire.Rejected || v.Version != 8 || v.Code != reason.LaterVersion || hint == "" {
			t.Errorf("it says %+v, %q", v, hint)
		}
		s.publish(9, "two")
		pass(5 * time.Second)
		if v, _ := s.links.Stuck(); v.Type != wire.Pending {
			t.Errorf("it is over, and it says %+v", v)
		}
		s.wantVersions(7, 9)
	})
}
