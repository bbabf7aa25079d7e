package relay

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// TestSameAsServer: what a host sees of a relay is what it sees of a server.
func TestSameAsServer(t *testing.T) {
	for _, c := range []struct{ name, at, through string }{{"server", "server:6444", ""}, {"relay", "edge-1:6444", "edge-1"}} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(s *scene) {
				origin := s.serve("server:6444", nil)
				s.publish(t, "one", "two")
				s.relay("edge-1:6444", "", nil, "server:6444")
				pass(time.Second)
				h := s.host("web-1", c.at)
				s.all(10*time.Second, 1)
				for version, bodies := range [][]string{2: {"one", "three"}, 3: {"one"}, 4: {"one", "two", "three"}} {
					if version < 2 {
						continue
					}
					s.publish(t, bodies...)
					s.all(10*time.Second, uint64(version))
				}
				s.eventually(10*time.Second, "the server hears what the host enforces", func() bool { return s.report("web-1").Enforced.Version == 4 })
				if r := s.report("web-1"); r.Host == nil || r.Verdict.Type != wire.Applied {
					t.Errorf("it hears %+v", r)
				}
				if n := s.watches(c.through); n != 1 {
					t.Errorf("%d watches through %q are open", n, c.through)
				}
				body, err := origin.server.Ask(s.t.Context(), "web-1", "uid-of-web-1", wire.Question{What: wire.AskHistory})
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(body); err != nil || string(text) != "web-1 about history" {
					t.Errorf("it answers %q, %v", text, err)
				}
				_ = body.Close()
				_, err = origin.server.Ask(s.t.Context(), "web-1", "uid-of-web-1", wire.Question{What: wire.AskLogs, Subject: "ssh.service"})
				if !reason.Is(err, reason.AnswerRefused) || !strings.Contains(err.Error(), "ssh.service") {
					t.Errorf("what it refuses: %v", err)
				}
				if heartbeats := s.counts(func() int { return s.asked }); heartbeats != 0 {
					t.Fatalf("%d heartbeats within seconds", heartbeats)
				}
				pass(5 * time.Minute)
				if heartbeats := s.counts(func() int { return s.asked }); heartbeats < 4 || heartbeats > 12 {
					t.Errorf("%d heartbeats within five minutes", heartbeats)
				}
				s.renewed(h)
				s.with(func() { delete(s.nodes, "web-1") })
				s.eventually(10*time.Second, "a host whose node is gone has no watch", func() bool { return s.watches(c.through) == 0 })
				pass(5 * time.Minute)
				if n := s.watches(c.through); n != 0 {
					t.Errorf("it is back: %d", n)
				}
			})
		})
	}
}

// counts reads something of the origin.
func (s *scene) counts(what func() int) (n int) {
	s.with(func() { n = what() })
	return n
}

// renewed lets so much time go by that a host renews its certificate.
func (s *scene) renewed(h *host) {
	s.t.Helper()
	was, _ := h.Certificate()
	pass(2 * time.Hour)
	s.eventually(2*time.Hour, "the host has another certificate", func() bool {
		is, _ := h.Certificate()
		return is.Leaf.NotAfter.After(was.Leaf.NotAfter)
	})
	s.eventually(time.Minute, "and is connected", func() bool { return len(s.open) == 1 })
}

// TestJoinThroughRelay: a host that reaches only a relay joins through it; who has no token does not.
func TestJoinThroughRelay(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		line := trust.JoinLine{Address: "edge-1:6444", Trust: s.chain.Pin(), Token: trust.NewToken(trust.TokenJoin)}
		c, err := client.Join(s.t.Context(), client.Joining{Line: line, Name: "web-1", Host: trust.NewHostKey(), Sealing: trust.NewSealingKey(), Built: time.Now(), Dial: s.dial})
		if err != nil || c.Name != "web-1" || s.joins != 1 {
			t.Errorf("%+v, %v", c.Name, err)
		}
		line.Trust[0] ^= 1
		if _, err := client.Join(s.t.Context(), client.Joining{Line: line, Name: "web-2", Host: trust.NewHostKey(), Sealing: trust.NewSealingKey(), Built: time.Now(), Dial: s.dial}); !reason.Is(err, reason.WrongCluster) {
			t.Errorf("a relay of another cluster: %v", err)
		}
	})
}

// TestRelayRemoved: a relay whose token was deleted has no hosts within seconds.
func TestRelayRemoved(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one")
		s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "edge-1:6444")
		s.all(10*time.Second, 1)
		s.with(func() { s.relays["uid-of-edge-1"] = true })
		s.eventually(10*time.Second, "its hosts have no watch", func() bool { return s.watches("edge-1") == 0 })
		s.publish(t, "two")
		pass(10 * time.Minute)
		if s.hosts[0].isAt(2) || s.watches("edge-1") != 0 {
			t.Error("it still serves")
		}
	})
}

// TestRelayAway: what the servers hear when a relay goes is that its hosts are not heard, and not that they are lost; while a relay has no
// server it lets its hosts go elsewhere, and when it is back it has them again.
func TestRelayAway(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one")
		first := s.relay("edge-1:6444", "", nil, "server:6444")
		s.relay("edge-2:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "edge-1:6444", "edge-2:6444")
		s.all(10*time.Second, 1)
		first.stop()
		s.eventually(10*time.Second, "the host goes on through the other relay", func() bool { return s.watches("edge-2") == 1 && s.watches("edge-1") == 0 })
		if s.lost != 0 {
			t.Error("the host counts as lost")
		}
		s.servers["server:6444"].stop()
		pass(time.Minute)
		s.publish(t, "two")
		s.serve("server:6444", nil)
		s.all(5*time.Minute, 2)
	})
}

// TestStopsAtOnce: neither a relay that is to end nor one whose server has gone silent waits for anything, though its own half of the stream stays open.
// TestSignedAgain: that the servers live, which is what they sign anew each hour, comes through a relay within minutes: what has a
// TTL would expire otherwise, and nothing be amiss.
func TestSignedAgain(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.relay("edge-1:6444", "", nil, "server:6444")
		hosts := []*host{s.host("web-1", "edge-1:6444"), s.host("web-2", "server:6444")}
		s.publish(t, "one", "two")
		s.all(time.Minute, 1)
		for range 3 {
			pass(time.Hour)
			s.resign(t)
			signed := time.Now().Unix()
			s.eventually(3*time.Minute, "the hosts have what was signed again", func() bool {
				return !slices.ContainsFunc(hosts, func(h *host) bool {
					kept, err := h.store.Kept()
					return err != nil || kept.Mark.Issued < signed
				})
			})
		}
	})
}

// TestEcho: what is told to a host of its reports is what a server has heard, through a relay too, soon where the host waits for that; a relay that is
// cut off from the servers answers reports, and says of none that it was heard.
func TestEcho(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		r := s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		var newest atomic.Uint64 // when the newest report was made that was heard
		var hungry atomic.Bool
		s.tune = func(_ *host, o *client.Options) {
			o.Heard, o.Hungry = func(echo uint64) { newest.Store(max(newest.Load(), echo)) }, hungry.Load
		}
		h := s.host("web-1", "edge-1:6444")
		s.publish(t, "one")
		s.all(10*time.Second, 1)
		heard := func() time.Time { return time.Unix(0, int64(newest.Load())) }
		fresh := func(within time.Duration) {
			t.Helper()
			hungry.Store(true)
			h.changed <- struct{}{}
			began := time.Now()
			s.eventually(within, "it is told that the server has heard it", func() bool { return heard().After(began) })
			hungry.Store(false)
		}
		fresh(5 * time.Second)
		calls := func() float64 { return counted(t, r.metrics, "tako_transfer_calls_total", wire.PathStatus) }
		s.servers["server:6444"].stop()
		cut, before := time.Now(), calls()
		hungry.Store(true)
		for range 60 {
			select {
			case h.changed <- struct{}{}:
			default:
			}
			pass(5 * time.Second)
		}
		if answered := calls() - before; answered < 5 {
			t.Errorf("the relay has answered %v reports while it was cut off", answered)
		}
		if heard().After(cut) {
			t.Errorf("the host was told that a report was heard of %s after the relay was cut off", heard().Sub(cut))
		}
		s.serve("server:6444", nil)
		s.all(5*time.Minute, 1)
		fresh(10 * time.Second)
	})
}

func TestStopsAtOnce(t *testing.T) {
	play(t, func(s *scene) {
		never := server.Between{Min: 24 * time.Hour, Max: 24 * time.Hour}
		silent := s.serve("server-1:6444", func(o *server.Options) { o.Times.Heartbeat, o.Times.Watch = never, never })
		other := s.serve("server-2:6444", nil)
		s.publish(t, "one")
		r := s.relay("edge-1:6444", "", nil, "server-1:6444", "server-2:6444")
		streams := func(at *running) float64 {
			return counted(t, at.metrics, "tako_transfer_calls_total", wire.PathRelay)
		}
		open := func() float64 { return counted(t, r.metrics, "tako_relay_connected") }
		s.eventually(10*time.Second, "the relay is connected", func() bool { return open() == 1 })
		if s.eventually(silenceMax+time.Minute, "the relay has left the server that says nothing", func() bool { return streams(silent) == 1 }); streams(other) != 0 {
			t.Error("the stream to the other server has ended")
		}
		s.eventually(10*time.Second, "the relay is connected to the other server", func() bool { return open() == 1 })
		began := time.Now()
		if r.stop(); time.Since(began) > time.Second {
			t.Errorf("the relay took %s to end", time.Since(began))
		}
	})
}

// TestShowsForeignHead: who is connected to a relay gets what its own head names, from the cache too, and nothing else.
func TestShowsForeignHead(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one", "two")
		r := s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		a, b := s.host("web-1", "edge-1:6444"), s.host("web-2", "edge-1:6444")
		s.all(10*time.Second, 1)
		ask := func(h *host, head []byte, layer string, target catalog.Digest) error {
			cert, _ := h.Certificate()
			u := client.NewUpstream(s.dial, r.address, credential{cert: cert, chain: s.chain})
			defer u.Close()
			err := u.Sync(s.t.Context(), wire.SyncRequest{Head: head, Layer: layer, Target: target}, func(*wire.SyncPart) error { return io.EOF })
			if err == nil || err == io.EOF {
				_, err = u.Nodes(s.t.Context(), wire.NodesRequest{Head: head, Layer: layer, Hashes: []catalog.Digest{target}})
			}
			return err
		}
		na, nb := s.nodes["web-1"], s.nodes["web-2"]
		if err := ask(a, na.head, wire.OwnLayer, na.own); err != nil {
			t.Errorf("its own: %v", err)
		}
		if err := ask(a, nb.head, wire.OwnLayer, nb.own); !reason.Is(err, reason.HeadRefused) {
			t.Errorf("with the head of another: %v", err)
		}
		if err := ask(a, na.head, wire.OwnLayer, nb.own); !reason.Is(err, reason.NotListed) {
			t.Errorf("the own layer of another: %v", err)
		}
		u := client.NewUpstream(s.dial, r.address, credential{cert: mustCert(t, a), chain: s.chain})
		defer u.Close()
		if _, err := u.Nodes(s.t.Context(), wire.NodesRequest{Head: na.head, Layer: wire.OwnLayer, Hashes: []catalog.Digest{nb.own}}); !reason.Is(err, reason.NotListed) {
			t.Errorf("the own layer of another by hash: %v", err)
		}
		if err := ask(b, nb.head, "NodeConfig/default/other", na.own); !reason.Is(err, reason.NotListed) {
			t.Errorf("a layer that is not listed: %v", err)
		}
	})
}

// TestRolesApart: a host cannot act as a relay, and a relay not as a host.
func TestRolesApart(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one")
		r := s.relay("edge-1:6444", "", nil, "server:6444")
		h := s.host("web-1", "server:6444")
		s.all(10*time.Second, 1)
		asHost := client.NewUpstream(s.dial, "server:6444", credential{cert: mustCert(t, h), chain: s.chain})
		defer asHost.Close()
		err := asHost.Relay(s.t.Context(), strings.NewReader(""), time.Minute, func() {}, func(*wire.RelayDown) error { return nil })
		if !reason.Is(err, reason.CertificateRefused) {
			t.Errorf("a host as a relay: %v", err)
		}
		if _, err := asHost.Renew(s.t.Context(), wire.RenewRequest{Protocol: wire.Protocol, Request: []byte{1}, Certificate: []byte{1}}); !reason.Is(err, reason.CallMalformed) {
			t.Errorf("a host renews for another: %v", err)
		}
		cert, _ := r.opts.Identity.Certificate()
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		c, err := client.New(client.Options{
			Store: &h.store, Host: h, Identity: impostor{h, credential{cert: cert, chain: s.chain}}, Session: wire.Session{ID: "x"}, Dial: s.dial, Log: s.logger("impostor"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := len(s.open); n != 1 {
			t.Errorf("a relay as a host: %d watches are open", n)
		}
	})
}

// TestRefusedReports: a relay speaks for the hosts that have shown it their certificate, and for no others.
func TestRefusedReports(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one")
		s.node("web-1")
		r := s.relay("edge-1:6444", "", nil, "nowhere:6444")
		other := trust.NewHostKey()
		foreign, err := trust.NewCA(s.cluster, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		request, err := trust.NodeRequest(other, trust.NewSealingKey().Public())
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := trust.ParseNodeRequest(request)
		if err != nil {
			t.Fatal(err)
		}
		forged, err := foreign.IssueNode(parsed, trust.NodeCertificate{Cluster: s.cluster, Name: "web-1", UID: "uid-of-web-1"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cert, _ := r.opts.Identity.Certificate()
		for name, c := range map[string]struct {
			certificate []byte
			code        string
		}{
			"by another authority": {forged, reason.CertificateRefused.String()},
			"its own":              {cert.Leaf.Raw, reason.CertificateRefused.String()},
			"none":                 {[]byte("no certificate"), reason.CallMalformed.String()},
		} {
			u := client.NewUpstream(s.dial, "server:6444", r.opts.Identity)
			body, up := io.Pipe()
			go func() {
				_ = wire.WriteFrame(up, wire.RelayUp{Protocol: wire.Protocol, Agents: []wire.RelayedAgent{{Number: 7, Certificate: c.certificate, Report: &wire.Report{Session: wire.Session{ID: "forged"}}}}})
			}()
			var problem *wire.Problem
			err := u.Relay(s.t.Context(), body, time.Minute, func() {}, func(d *wire.RelayDown) error {
				for _, a := range d.Agents {
					problem = a.Problem
					return io.EOF
				}
				return nil
			})
			_ = up.Close()
			u.Close()
			if err != io.EOF || problem == nil || problem.Code != c.code {
				t.Errorf("%s: %+v, %v", name, problem, err)
			}
		}
		if r := s.report("web-1"); r.Session.ID != "" {
			t.Error("a report was taken")
		}
	})
}

// TestRestart: what a relay has kept is there after its death, and what was being written is not.
func TestRestart(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one", "two")
		r := s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "edge-1:6444")
		s.all(10*time.Second, 1)
		r.stop()
		again := s.relay("edge-1:6444", r.state, nil, "server:6444")
		s.host("web-2", "edge-1:6444")
		s.all(time.Minute, 1)
		if misses := counted(t, again.metrics, "tako_relay_misses_total", kindSync); misses != 1 {
			t.Errorf("%v layers were fetched anew, want the own one of the other host alone", misses)
		}
	})
}

// TestBusyRelay: hosts above what a server takes through one relay are told to come again, and come elsewhere.
func TestBusyRelay(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server:6444", func(o *server.Options) { o.Limits.RelayAgents = 3 })
		s.publish(t, "one")
		s.relay("edge-1:6444", "", nil, "server:6444")
		s.relay("edge-2:6444", "", nil, "server:6444")
		pass(time.Second)
		for i := range 6 {
			s.host(fmt.Sprint("web-", i), "edge-1:6444", "edge-2:6444")
		}
		s.all(5*time.Minute, 1)
		s.eventually(5*time.Minute, "three through each", func() bool { return s.watches("edge-1") == 3 && s.watches("edge-2") == 3 })
	})
}

// TestLearnsServers: a relay that was given two servers of three goes from one to the next in the order in which it was given them, and to the third one
// when both are gone, of which they have told it: also after its own death.
func TestLearnsServers(t *testing.T) {
	play(t, func(s *scene) {
		all := []string{"server-1:6444", "server-2:6444", "server-3:6444"}
		for _, address := range all {
			s.serve(address, func(o *server.Options) { o.Servers = func() []string { return all } })
		}
		with := func(address string) {
			t.Helper()
			s.eventually(5*time.Minute, "the relay is with "+address, func() bool { return counted(t, s.servers[address].metrics, "tako_transfer_relays") == 1 })
		}
		s.publish(t, "one")
		r := s.relay("edge-1:6444", "", nil, all[0], all[1])
		with(all[0])
		s.host("web-1", "edge-1:6444")
		s.all(10*time.Second, 1)
		s.servers[all[0]].stop()
		with(all[1])
		s.servers[all[1]].stop()
		with(all[2])
		s.publish(t, "two")
		s.all(5*time.Minute, 2)
		r.stop()
		s.relay("edge-1:6444", r.state, nil, all[0], all[1])
		with(all[2])
		s.publish(t, "three")
		s.all(5*time.Minute, 3)
	})
}

// TestToldNoAddress: what is none is not kept, and neither is more than there may be.
func TestToldNoAddress(t *testing.T) {
	play(t, func(s *scene) {
		s.serve("server-1:6444", func(o *server.Options) {
			o.Servers = func() []string { return []string{"server-1:6444", "no address", "server-2:6444"} }
		})
		r := s.relay("edge-1:6444", "", nil, "server-1:6444")
		pass(time.Minute)
		if learned := r.opts.Identity.Learned([]string{"server-1:6444"}); len(learned) != 1 || learned[0] != "server-2:6444" {
			t.Errorf("it has learned %q", learned)
		}
	})
}
