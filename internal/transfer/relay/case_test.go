package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// noise is a text that packing makes no shorter.
func noise(seed, size int) string {
	text := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(text) // never fails
	return string(text)
}

// TestTransferCase40_HerdOfAChange: a change to what many hosts share goes through relays: of what they ask for at least 99 % is given from what a relay has, or
// has on its way, and the servers send about the difference times the relays. The window of its heads spreads it; without one it is fetched at once.
func TestTransferCase40_HerdOfAChange(t *testing.T) {
	c := casetest.Start(t)
	const relays, hosts, entries = 2, 220, 500 // hosts in all
	bodies := make([]string, entries)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("entry %d %s", i, noise(i, 100))
	}
	play(t, func(s *scene) {
		r := s.serve("server:6444", nil)
		s.publish(t, bodies...)
		var all []*relaying
		for i := range relays {
			all = append(all, s.relay(fmt.Sprintf("edge-%d:6444", i), "", nil, "server:6444"))
		}
		pass(time.Second)
		for i := range hosts {
			s.host(fmt.Sprint("web-", i), all[i%relays].address)
		}
		s.all(5*time.Minute, 1)
		// The lists and own layers of hosts are each one's own; the change is of what all share.
		shared := func() (hits, misses float64) {
			for _, relay := range all {
				hits += counted(t, relay.metrics, "tako_relay_hits_total", kindSync)
				misses += counted(t, relay.metrics, "tako_relay_misses_total", kindSync)
			}
			return hits, misses
		}
		hits, misses := shared()
		sent := counted(t, r.metrics, "tako_transfer_sent_bytes_total", wire.PathSync)
		delta := 0
		for i := range 40 {
			bodies[i*7] = "changed " + bodies[i*7]
			delta += len(bodies[i*7]) + 32
		}
		const window = 4 * time.Minute // a relay gives a difference for five
		s.with(func() { s.window = window })
		changed := time.Now()
		s.publish(t, bodies...)
		s.all(window+time.Minute, 2)
		came := s.came(changed, window)
		c.Check(slices.Min(came[:]) >= hosts/8, "of %d hosts so many have fetched in each quarter of the window: %v", hosts, came)
		hitsAfter, missesAfter := shared()
		given, asked := hitsAfter-hits, missesAfter-misses
		c.Check(given+asked == hosts, "%v differences were given, of %d hosts", given+asked, hosts)
		c.Check(given/(given+asked) >= 0.99, "%v of %v were given without a server", given, given+asked)
		bytes := counted(t, r.metrics, "tako_transfer_sent_bytes_total", wire.PathSync) - sent
		c.Check(bytes >= 0.8*float64(delta) && bytes <= 1.2*float64(delta*relays), "the server has sent %v bytes; the difference has %d, and there are %d relays", bytes, delta, relays)
		fetched := slices.ContainsFunc(s.hosts, func(h *host) bool { return len(h.versions()) != 2 })
		c.Check(!fetched, "a host was handed something else than versions 1 and 2")

		s.with(func() { s.window = 0 })
		changed = time.Now()
		s.publish(t, bodies[1:]...)
		s.all(time.Minute, 3)
		c.Equal(s.came(changed, window), [4]int{hosts}, "without a window: hosts that have fetched in each quarter of what was one")
	})
}

// TestTransferCase44_RelayFlaps: a relay that comes and goes every five seconds costs its hosts one change to another one; nothing is fetched twice for a version.
func TestTransferCase44_RelayFlaps(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(s *scene) {
		r := s.serve("server:6444", nil)
		s.publish(t, "one")
		flapping := s.relay("edge-1:6444", "", nil, "server:6444")
		s.relay("edge-2:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "edge-1:6444", "edge-2:6444")
		s.all(10*time.Second, 1)
		c.Equal(s.watches("edge-1"), 1, "watches through the first relay")
		opened := func() float64 {
			return counted(t, flapping.metrics, "tako_transfer_calls_total", wire.PathWatch)
		}
		syncs := counted(t, r.metrics, "tako_transfer_calls_total", wire.PathSync)
		version := uint64(1)
		moved := false
		for range 24 { // four minutes
			flapping.stop()
			pass(5 * time.Second)
			moved = moved || s.watches("edge-2") == 1
			c.Check(!moved || s.watches("edge-2") == 1, "the host has left the relay that goes well")
			flapping = s.relay("edge-1:6444", flapping.state, nil, "server:6444")
			version++
			s.publish(t, fmt.Sprint("version ", version))
			pass(5 * time.Second)
			c.Check(s.hosts[0].isAt(version), "it is at %v, and there is %d", s.hosts[0].versions(), version)
			c.Equal(opened(), 0.0, "watches that the host has opened at the relay that flaps")
		}
		c.Check(moved, "the host has not changed to the other relay")
		versions := s.hosts[0].versions()
		c.Equal(len(versions), int(version), "states that the host was handed")
		c.Equal(counted(t, r.metrics, "tako_transfer_calls_total", wire.PathSync)-syncs, float64(version-1), "differences that the server was asked for")
	})
}

// TestTransferCase45_StaleCache: what a relay has lost or was spoilt on its disk is asked for again, and keeps nobody else from what is whole; with a cache that is far too
// small it still serves all.
func TestTransferCase45_StaleCache(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		bodies := make([]string, 200)
		for i := range bodies {
			bodies[i] = fmt.Sprintf("entry %d %s", i, noise(i, 1000))
		}
		s.publish(t, bodies...)
		r := s.relay("edge-1:6444", "", nil, "server:6444")
		pass(time.Second)
		s.host("web-1", "edge-1:6444")
		s.all(10*time.Second, 1)
		before := counted(t, r.metrics, "tako_relay_misses_total", kindSync)
		spoilAll(t, r.state+"/cache")
		s.host("web-2", "edge-1:6444")
		s.all(2*time.Minute, 1)
		c.Equal(counted(t, r.metrics, "tako_relay_misses_total", kindSync)-before, 2.0, "layers that were fetched: the host's own, and the one that is spoilt")
		removeAll(t, r.state+"/cache")
		s.host("web-3", "edge-1:6444")
		s.all(2*time.Minute, 1)
		c.Check(s.hosts[2].isAt(1), "a host gets nothing after the cache was removed")
		c.Equal(counted(t, r.metrics, "tako_relay_wrong_total"), 0.0, "servers that were blamed")

		// A second one has room for less than one layer.
		small := s.relay("edge-2:6444", "", func(o *Options) { o.CacheBytes = cacheBytesMin }, "server:6444")
		for i := range bodies {
			bodies[i] += noise(i, 10_000)
		}
		s.publish(t, bodies...)
		for i := range 4 {
			s.host(fmt.Sprint("db-", i), "edge-2:6444")
		}
		s.all(2*time.Minute, 2)
		c.Check(counted(t, small.metrics, "tako_relay_cache_dropped_total") > 0, "nothing was let go")
		for _, h := range s.hosts {
			c.Check(h.isAt(2), "%s is at %v", h.name, h.versions())
		}
	})
}

// TestTransferCase46_RelayLies: of a relay that sends other bodies than those of a hash nothing is taken; it is not asked for ten minutes, and the hosts get on with another
// one.
func TestTransferCase46_RelayLies(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		// What a liar keeps looks like what it should be to whoever does not hash it: it is a server behind an address of a relay.
		liar := s.serve("edge-1:6444", func(o *server.Options) { o.Content = lying{o} })
		s.relay("edge-2:6444", "", nil, "server:6444")
		s.publish(t, "one", "two")
		pass(time.Second)
		h := s.host("web-1", "edge-1:6444", "edge-2:6444")
		s.all(5*time.Minute, 1)
		asked := func() float64 {
			return counted(t, liar.metrics, "tako_transfer_calls_total", wire.PathSync, wire.PathNodes)
		}
		lies := asked()
		c.Check(lies >= 1, "the relay that lies was not asked")
		c.Check(s.report("web-1").Refused.Content >= 1, "what came wrong is not counted: %+v", s.report("web-1").Refused)
		for version := uint64(2); version <= 6; version++ {
			s.publish(t, fmt.Sprint("version ", version))
			pass(time.Minute)
			c.Check(h.isAt(version), "it is at %v, and there is %d", h.versions(), version)
		}
		c.Equal(asked(), lies, "calls for content to the relay that lies, within five minutes")
		h.mu.Lock()
		last := h.states[len(h.states)-1]
		h.mu.Unlock()
		for _, l := range last.List {
			trie, there, err := h.store.Trie(l.Root)
			c.Check(err == nil && there && trie.Root() == l.Root, "layer %s: %t, %v", l.ID, there, err)
		}
	})
}

// TestTransferCase47_RelayDies: when a relay with many hosts dies, they come to its sibling spread over time, within what the sibling lets in, and all are served.
func TestTransferCase47_RelayDies(t *testing.T) {
	c := casetest.Start(t)
	const hosts, accepts = 200, 25 // connections that the sibling takes in a second
	play(t, func(s *scene) {
		s.serve("server:6444", nil)
		s.publish(t, "one")
		dies := s.relay("edge-1:6444", "", nil, "server:6444")
		sibling := s.relay("edge-2:6444", "", func(o *Options) { o.Limits.Accepts = accepts }, "server:6444")
		pass(time.Second)
		for i := range hosts {
			s.host(fmt.Sprint("web-", i), "edge-1:6444", "edge-2:6444")
		}
		s.all(5*time.Minute, 1)
		c.Equal(s.watches("edge-1"), hosts, "hosts of the relay that dies")
		dies.die()
		began := time.Now()
		first, most, was := time.Duration(0), 0, 0
		for s.watches("edge-2") < hosts && time.Since(began) < 10*time.Minute {
			pass(100 * time.Millisecond)
			n := s.watches("edge-2")
			if n > 0 && first == 0 {
				first = time.Since(began)
			}
			most, was = max(most, n-was), n
		}
		took := time.Since(began)
		c.Equal(s.watches("edge-2"), hosts, "hosts of the sibling")
		c.Check(took <= 2*time.Minute, "all are back after %s", took)
		c.Check(took-first >= 2*time.Second && most <= 2*accepts+accepts, "the sibling has let in more than it may: the first after %s, the last after %s, %d at one moment", first, took, most)
		c.Check(counted(t, sibling.metrics, "tako_transfer_refused_total", reason.InternalFault.String()) == 0, "the sibling has broken down")
		s.publish(t, "two")
		s.all(time.Minute, 2)
		c.Check(s.hosts[hosts-1].isAt(2), "a change does not come through")
		c.Equal(s.lost, 0, "hosts that count as lost")
		t.Logf("%d hosts were back after %s", hosts, took)
	})
}
