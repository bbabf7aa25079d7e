package client_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Watches that are opened, and over which nothing ever comes, for an hour: each is given up after two and a half heartbeats, and no sooner;
// what is there then is taken up at once.
func TestTransferCase2_SilentForAnHour(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		watches, fetches := s.count(wire.PathWatch), s.count(wire.PathSync)
		s.set(func() { s.mute = true })
		s.swallow()
		for v := range uint64(60) {
			s.publish(8+v, "one", "two")
			pass(time.Minute)
		}
		c.Equal(s.host.versions(), []uint64{7}, "what came in that hour")
		n := s.count(wire.PathWatch) - watches
		c.Check(n >= 20 && n <= 24, "%d watches in an hour of silence, of which each lasts two and a half minutes", n)
		s.set(func() { s.mute = false })
		pass(150*time.Second + time.Minute)
		c.Equal(s.host.versions(), []uint64{7, 67}, "what came afterwards")
		c.Equal(s.count(wire.PathSync)-fetches, 1, "fetches")
		c.Equal(s.last().Enforced.Version, uint64(67), "what the server knows")
		c.Check(!strings.Contains(s.log.String(), "ERROR"), "an alarm")
	})
}

// TestTransferCase26_OtherSources: whoever repeats one head for ever is left for another source when that head has expired.
func TestTransferCase26_OtherSources(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		const relay, server = "relay.test:6444", "tako.test:6444"
		s.identity.servers = []string{relay, server}
		s.publish(7, "one")
		s.set(func() { s.frozen = map[string][]byte{relay: s.head} })
		s.start()
		pass(23 * time.Hour)
		s.publish(8, "two")
		c.Equal(s.count(wire.PathWatch), 1, "watches while the head is valid")
		c.Equal(s.last().Stale, false, "whether the host says that it is stale")
		pass(time.Hour + 6*time.Minute)
		c.Check(slices.ContainsFunc(s.reports, func(r wire.Report) bool { return r.Stale && r.Enforced.Version == 7 }), "it has not said that it is stale")
		c.Equal(s.host.versions(), []uint64{7, 8}, "what the host was handed")
		c.Equal(s.last().Stale, false, "whether it is stale then")
		watches := s.count(wire.PathWatch)
		pass(time.Hour)
		c.Equal(s.count(wire.PathWatch), watches, "watches once all is well")

		// Where no source has anything better, they are not asked in a loop.
		s.set(func() { s.frozen[server] = s.head })
		pass(24 * time.Hour)
		watches = s.count(wire.PathWatch)
		pass(time.Hour)
		n := s.count(wire.PathWatch) - watches
		c.Check(n >= 15 && n <= 30, "%d watches in an hour of two frozen sources", n)
		lines := strings.Count(s.log.String(), "leave a server whose head has expired")
		c.Check(lines >= 2 && lines <= 5, "%d lines about it, one an hour", lines)
		c.Equal(s.host.versions(), []uint64{7, 8}, "what the host was handed")
	})
}

// TestLearnedServers: a host that has joined with one server is told of another one, and when the first one is gone for good it watches and fetches
// at that.
func TestLearnedServers(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		const first, second = "tako.test:6444", "other.test:6444"
		var dead atomic.Bool
		s.dialing = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == first && dead.Load() {
				return nil, errors.New("connection refused")
			}
			return s.dial(ctx, network, address)
		}
		s.set(func() { s.others = []string{second, first} })
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		if got := s.identity.Servers(); !slices.Equal(got, []string{first, second}) {
			t.Errorf("it knows %v", got)
		}
		dead.Store(true)
		s.set(func() { s.cut = true })
		s.publish(8, "two")
		pass(100 * time.Millisecond)
		s.set(func() { s.cut = false })
		s.hangUp()
		pass(30 * time.Second)
		s.wantVersions(7, 8)
		s.publish(9, "three")
		pass(time.Second)
		s.wantVersions(7, 8, 9)
	})
}

// TestTransferCase28_Alarm: a person finds both heads in the log of the host, and the number of them in what it reports.
func TestTransferCase28_Alarm(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		first := s.head
		s.start()
		pass(5 * time.Second)
		s.publish(7, "another")
		second := s.head
		pass(10 * time.Minute)
		c.Equal(s.host.versions(), []uint64{7}, "what the host was handed")
		c.Equal(strings.Count(s.log.String(), "level=ERROR"), 1, "alarms, of as many heartbeats")
		for _, head := range [][]byte{first, second} {
			c.Check(strings.Contains(s.log.String(), base64.StdEncoding.EncodeToString(head)), "the log has not %x", head)
			_, h, err := catalog.DecodeHead(head)
			c.Check(err == nil && h.Version == 7, "%+v, %v", h, err)
		}
		c.Check(s.last().Refused.Equivocation >= 1, "it reports %+v", s.last().Refused)
		c.Equal(s.count(wire.PathSync), 1, "fetches")
	})
}

// TestTransferCase30_OfflineForMonths: a host that was off for half a year, in which its certificate has expired, and the authority, a root key
// and the heads key were replaced one after the other, walks the documents, renews, and takes the newest state.
func TestTransferCase30_OfflineForMonths(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(t *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		s.halt()
		k := s.cluster
		for month := range 6 {
			pass(30 * 24 * time.Hour)
			heads, root := trust.NewSigningKey(), trust.NewSigningKey()
			edits := []trust.Edit{trust.Revoke(k.heads.Public().ID()), trust.SetKey(trust.RoleHeads, heads.Public(), time.Now().Add(90*24*time.Hour)), trust.RotateRoot(k.root.Public().ID(), root.Public())}
			if month == 2 {
				ca, err := trust.NewCA(k.id, time.Now())
				c.NoError(err, "make another authority")
				edits, k.ca = append(edits, trust.SetCAs(string(ca.CertificatePEM()))), ca
			}
			next, err := k.chain.Next(time.Now(), edits...)
			if err == nil {
				next, err = next.Sign(k.root)
			}
			if err == nil {
				next, err = next.Sign(root)
			}
			c.NoError(err, "sign a document")
			k.chain, err = k.chain.Extend([]trust.Signed{next})
			c.NoError(err, "extend the chain")
			k.heads, k.root = heads, root
		}
		credential, err := k.ca.IssueServer(trust.ServerRequest{DNSNames: []string{"localhost"}}, time.Now())
		c.NoError(err, "issue a certificate")
		s.set(func() { s.certs = credential.TLS() })
		old := s.head // of a key that was revoked
		s.start()
		pass(2 * time.Minute)
		c.Equal(s.identity.Trust().Current().Number, uint64(7), "the number of the documents that the host trusts")
		c.Equal(s.identity.renewed, 1, "renewals")
		c.Equal(s.host.versions(), []uint64{7, 7}, "what the host was handed; what it has stays")
		c.Check(s.last().Stale, "it does not say that it is stale")
		s.publish(9, "two")
		pass(2 * time.Minute)
		c.Equal(s.host.versions(), []uint64{7, 7, 9}, "what the host was handed")
		c.Check(!s.last().Stale, "it says that it is stale")
		refused := s.last().Refused
		s.set(func() { s.head = old })
		pass(5 * time.Minute)
		c.Equal(s.host.versions(), []uint64{7, 7, 9}, "what the host was handed, after a head of a revoked key")
		c.Check(s.last().Refused.Forged > refused.Forged, "it is not counted: %+v", s.last().Refused)
	})
}

// TestTransferCase53_NothingComesAnyMore: an address translation that has forgotten the connection drops packets of both directions, or the server stands
// still and its kernel alone answers. The host asks when nothing has come for longer than a heartbeat, and is connected again within a minute and a half.
func TestTransferCase53_NothingComesAnyMore(t *testing.T) {
	c := casetest.Start(t)
	play(t, func(_ *testing.T, s *scene) {
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		watches := s.count(wire.PathWatch)
		s.cutOff()
		s.publish(8, "two")
		pass(time.Minute)
		c.Equal(s.host.versions(), []uint64{7}, "what came through")
		pass(30 * time.Second)
		c.Equal(s.host.versions(), []uint64{7, 8}, "what came after the host has asked, and its first pause")
		c.Equal(s.count(wire.PathWatch)-watches, 1, "watches")
		pass(30 * time.Minute)
		c.Equal(s.count(wire.PathWatch)-watches, 1, "watches afterwards")
		c.Equal(s.last().Enforced.Version, uint64(8), "what the server knows")
	})
}
