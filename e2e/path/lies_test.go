package path

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// site is a config for every host of a ground: one file.
func site(text string) string {
	return fmt.Sprintf(`apiVersion: tako.dev/v1alpha1
kind: ClusterNodeConfig
metadata: {name: site}
spec:
  rollout: {maxUnavailable: "100%%"}
  resources:
    - name: motd
      file: {path: /etc/motd, content: %q}
`, text)
}

// siteOf is the same as resources.
func siteOf(text string) declare.Resource {
	return declare.Resource{Name: "motd", File: &declare.File{Path: "/etc/motd", Content: text}}
}

// applied is the version that is shown as applied.
func applied(n *v1alpha1.Node) int64 {
	if n.Status.AppliedHead == nil {
		return 0
	}
	return n.Status.AppliedHead.Version
}

// digestOf reads a root as the API has it.
func digestOf(c *casetest.Case, text string) (d catalog.Digest) {
	b, err := hex.DecodeString(strings.TrimPrefix(text, "sha256:"))
	c.NoError(err, "read root "+text)
	copy(d[:], b)
	return d
}

// counters are what a host has refused so far, as its agent says.
func (s *sandbox) counters() wire.Refused {
	s.ground.Helper()
	ctx, cancel := context.WithTimeout(s.ground.Context(), inTime)
	defer cancel()
	out, _ := exec.CommandContext(ctx, filepath.Join(s.ground.Bin, "tako-agent"), "status", "--json", "--root", s.Root).Output()
	var r agent.Report
	if json.Unmarshal(out, &r) != nil || r.Cluster == nil || r.Cluster.Disbelieved == nil {
		return wire.Refused{} // it is looked at again
	}
	return *r.Cluster.Disbelieved
}

// counts waits until the counters of a host are so.
func (s *sandbox) counts(what string, want wire.Refused) {
	s.ground.Helper()
	s.Until("it counts "+what, func() (string, bool) {
		got := s.counters()
		return fmt.Sprintf("%+v", got), got == want
	})
}

// betrayed is a host that has taken version two of its state, and whose server is a liar from now on. older is the head of the
// version before.
func betrayed(t *testing.T) (g *ground, s *sandbox, older []byte) {
	t.Helper()
	g = newGround(t)
	s = g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	s.converges()
	s.Has("etc/motd", "one\n")
	older = s.kept().Head
	g.Apply(site("two\n"))
	s.Has("etc/motd", "two\n")
	s.converges()
	s.Stop()
	return g, s, older
}

// unmoved proves that a host goes on with what it has.
func (s *sandbox) unmoved(c *casetest.Case, mark catalog.Mark, text string) {
	s.ground.Helper()
	s.Keeps("etc/motd", text)
	now := s.kept().Mark
	c.Check(now.Epoch == mark.Epoch && now.Version == mark.Version && now.Root == mark.Root, "the mark is %+v, it was %+v", now, mark)
}

// heals proves that a host goes on with its own server.
func (s *sandbox) heals(text string) {
	g := s.ground
	g.Helper()
	g.Server.Start(g.T)
	s.Stop()
	s.Start() // at once, and not when its next try is due
	g.Apply(site(text))
	s.Has("etc/motd", text)
	s.converges()
}

func TestTransferCase25_OldHeadFromALyingServer(t *testing.T) {
	c := casetest.Start(t)
	g, s, older := betrayed(t)
	g.Server.Stop(t)
	mark := s.kept().Mark
	l, stop := g.lie(s, g.keys())
	l.say(older)
	s.Start()
	s.counts("one head that is old", wire.Refused{Old: 1})
	s.unmoved(c, mark, "two\n")
	s.Stop()
	s.Start()
	s.counts("another one after its restart", wire.Refused{Old: 2})
	s.unmoved(c, mark, "two\n")
	stop()
	s.heals("three\n")
}

func TestTransferCase29_HeadsOfOthersFromALyingServer(t *testing.T) {
	c := casetest.Start(t)
	g, s, _ := betrayed(t)
	other := g.join("web-2")
	other.Start()
	other.Has("etc/motd", "two\n")
	other.converges()
	other.Stop()
	g.Server.Stop(t)
	mark, keys := s.kept().Mark, g.keys()
	_, own, err := catalog.DecodeHead(s.kept().Head)
	c.NoError(err, "read its head")
	l, stop := g.lie(s, keys)
	s.Start()
	var want wire.Refused
	for _, lie := range []struct {
		what string
		head []byte
	}{
		{"of another host", other.kept().Head},
		{"of another cluster", altered(c, own, keys.Heads(), func(h *catalog.Head) { h.Cluster = trust.NewClusterID() })},
		{"of a host of this name that there was before", altered(c, own, keys.Heads(), func(h *catalog.Head) { h.UID = "another" })},
		{"that nobody known has signed", altered(c, own, trust.NewSigningKey(), func(*catalog.Head) {})},
		{"of an epoch that the root keys do not know", altered(c, own, keys.Heads(), func(h *catalog.Head) { h.Epoch++ })},
		{"that is none", []byte("no head")},
	} {
		l.say(lie.head)
		want.Forged++
		s.counts("a head "+lie.what, want)
	}
	s.unmoved(c, mark, "two\n")
	stop()
	other.Start() // a rollout waits for hosts that were not heard
	s.heals("three\n")
	s.counts("in all what it was told then", want)
}

// altered is a head of a later version, changed, signed by a key.
func altered(c *casetest.Case, h catalog.Head, key *trust.SigningKey, change func(*catalog.Head)) []byte {
	h.Version += 1000
	change(&h)
	sh, err := h.Sign(key)
	c.NoError(err, "sign a head")
	text, err := sh.Encode()
	c.NoError(err, "encode a head")
	return text
}

// TestTransferCase07_TamperedByALyingServer: the head and the list are the server's own, and only what they name is changed.
func TestTransferCase07_TamperedByALyingServer(t *testing.T) {
	c := casetest.Start(t)
	g, s, _ := betrayed(t)
	next := s.ahead("three\n")
	g.Server.Stop(t)
	l, stop := g.lie(s, g.keys())
	base, bodies := content(g, siteOf("two\n"))
	target, _ := content(g, siteOf("three\n"))
	c.Equal(next.rows[0].Root, target.Root(), "the layer that the server has signed, and the same compiled here")
	forged := []byte("planted by the liar\n")
	l.serves(base.Root(), base, bodyOf(bodies))
	l.serves(target.Root(), target, func(catalog.Digest) ([]byte, bool) { return forged, true })
	l.offers(next)
	s.Start()
	s.Until("it refuses what it is sent", func() (string, bool) {
		r := l.last()
		return fmt.Sprintf("%+v", r.Verdict), r.Verdict.Type == wire.Rejected && r.Verdict.Version == next.head.Version
	})
	s.Keeps("etc/motd", "two\n")
	s.Until("it counts what it has refused", func() (string, bool) {
		n := s.counters().Content
		return fmt.Sprint(n), n > 0
	})
	refused := s.counters().Content
	c.Check(refused < 10, "%d contents were refused: it asks in a hot loop", refused)
	stop()
	g.Server.Start(t)
	s.Stop()
	s.Start()
	s.Has("etc/motd", "three\n")
	s.converges()
}

// TestTransferCase33_PoisonFromALyingServer: what is signed, and cannot be taken, is told once and fetched once.
func TestTransferCase33_PoisonFromALyingServer(t *testing.T) {
	c := casetest.Start(t)
	g, s, _ := betrayed(t)
	g.Server.Stop(t)
	keys, kept := g.keys(), s.kept()
	_, own, err := catalog.DecodeHead(kept.Head)
	c.NoError(err, "read its head")
	l, stop := g.lie(s, keys)
	// Two layers of one priority that say different things of one file.
	var rows []catalog.Layer
	for i, text := range []string{"this\n", "that\n"} {
		trie, bodies := content(g, siteOf(text))
		l.serves(trie.Root(), trie, bodyOf(bodies))
		rows = append(rows, catalog.Layer{Priority: 5, ID: fmt.Sprintf("ClusterNodeConfig/c%d", i), Root: trie.Root()})
	}
	list, err := catalog.NewList(rows...)
	c.NoError(err, "make a list")
	encoded, err := list.Encode()
	c.NoError(err, "encode it")
	poison := signed{list: encoded, head: own, rows: list}
	poison.head.Version++
	poison.head.Roots = []catalog.FormatRoot{{Format: catalog.FormatV1, Root: catalog.ListRoot(encoded)}}
	poison.bytes = altered(c, poison.head, keys.Heads(), func(h *catalog.Head) { h.Version -= 1000 })
	l.offers(poison)
	s.Start()
	rejected := func() (string, bool) {
		v := l.last().Verdict
		return fmt.Sprintf("%+v", v), v.Type == wire.Rejected && v.Version == poison.head.Version
	}
	s.Until("it rejects it", rejected)
	s.Keeps("etc/motd", "two\n")
	l.forget()
	s.Stop()
	s.Start()
	s.Until("it says so again", func() (string, bool) {
		if l.last().Session.Start < 3 {
			return "not started", false
		}
		return rejected()
	})
	l.say(poison.bytes)
	s.Keeps("etc/motd", "two\n")
	c.Equal(l.fetched(), 0, "fetches of what was rejected, over a restart")
	stop()
}

// TestTransferCase36_StatusReplayed: what a host said earlier changes nothing when somebody says it again.
func TestTransferCase36_StatusReplayed(t *testing.T) {
	c := casetest.Start(t)
	g := newGround(t)
	s := g.join("web-1")
	g.Apply(site("one\n"))
	s.Start()
	one := s.converges()
	s.Has("etc/motd", "one\n")
	g.Apply(site("two\n"))
	s.Has("etc/motd", "two\n")
	two := s.reports("the second is applied, and nothing more is to be said of it", func(n *v1alpha1.Node) bool {
		return applied(n) > applied(&one) && converged(n)
	})
	root := digestOf(c, one.Status.AppliedHead.Root)
	old := wire.Report{
		Session: wire.Session{ID: one.Status.Agent.Session, Start: uint64(one.Status.Agent.Starts)}, Number: 1,
		Have: catalog.Mark{Epoch: 1, Version: uint64(applied(&one)), Root: root}, Enforced: catalog.Mark{Epoch: 1, Version: uint64(applied(&one)), Root: root},
		Verdict: wire.Verdict{Type: wire.Rejected, Epoch: 1, Version: uint64(applied(&one)), Root: root},
	}
	attacker := s.impostor()
	for range 3 {
		_ = attacker.post(wire.PathStatus, old).Body.Close()
	}
	now := s.Node()
	c.Check(applied(&one) < applied(&two), "version %d came after %d", applied(&two), applied(&one))
	c.Equal(applied(&now), applied(&two), "the version that is shown as applied")
	c.Equal(now.Status.Verdict, two.Status.Verdict, "the verdict")
	g.Apply(site("three\n"))
	s.Has("etc/motd", "three\n")
	s.converges()
}

// TestTransferCase15_KilledBetweenMarkAndSwap: the high-water is durable before the state is there, and nothing lower is taken afterwards.
func TestTransferCase15_KilledBetweenMarkAndSwap(t *testing.T) {
	c := casetest.Start(t)
	g, s, _ := betrayed(t)
	kept := s.kept()
	next := s.ahead("three\n")
	g.Server.Stop(t)
	l, stop := g.lie(s, g.keys())
	target, bodies := content(g, siteOf("three\n"))
	wait := make(chan struct{})
	l.serves(target.Root(), target, func(d catalog.Digest) ([]byte, bool) {
		<-wait
		b, found := bodies[d]
		return b, found
	})
	l.offers(next)
	s.Start()
	s.Until("the mark is durable", func() (string, bool) {
		m := s.kept().Mark
		return fmt.Sprintf("%+v", m), m.Version == next.head.Version
	})
	s.Kill()
	s.Has("etc/motd", "two\n")
	l.say(kept.Head)
	s.Start()
	s.counts("the lower head", wire.Refused{Old: 1})
	s.Keeps("etc/motd", "two\n")
	c.Equal(s.kept().Mark.Version, next.head.Version, "the mark")
	close(wait)
	l.say(next.bytes)
	s.Has("etc/motd", "three\n")
	stop()
	g.Server.Start(t)
	s.converges()
}
