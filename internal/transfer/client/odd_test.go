package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// A server that ends each watch at once, and says to come again at once, is not asked in a loop.
func TestHastyServer(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.set(func() { s.hasty = true })
		s.start()
		pass(time.Hour)
		if n := s.count(wire.PathWatch); n < 60 || n > 200 {
			t.Errorf("%d watches in an hour", n)
		}
		s.set(func() { s.hasty = false })
		s.publish(7, "one")
		pass(90 * time.Second)
		s.wantVersions(7)
	})
}

// What a host is called can be any bytes, at any length: that does not cut it off.
func TestOddFacts(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		s.host.facts = map[string]string{"hostname": "caf\xe9", "os.name": strings.Repeat("x", 8<<10), "arch": "amd64"}
		s.host.disks = []wire.Disk{{Name: "sda", Model: strings.Repeat("caf\xe9", 1<<10)}}
		s.host.interfaces = []wire.Interface{{Name: "eth\xff", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.7"}}}
		s.publish(7, "one")
		s.start()
		pass(5 * time.Second)
		r := s.last()
		if d, n := r.Host.Disks, r.Host.Interfaces; len(d) != 1 || !strings.HasPrefix(d[0].Model, "caf\uFFFD") || len(n) != 1 || n[0].Name != "eth\uFFFD" {
			t.Errorf("the server reads %+v", r.Host)
		}
		if err := r.Validate(); err != nil || r.Host.Facts["arch"] != "amd64" || r.Host.Facts["hostname"] != "caf\uFFFD" {
			t.Errorf("the server reads %+v (%v)", r.Host, err)
		}
	})
}

// Why a server refuses is said once, and kept for who asks until a server has something to say.
func TestRefusalIsSaidOnce(t *testing.T) {
	play(t, func(t *testing.T, s *scene) {
		refusal := &reason.Error{Code: reason.IdentityGone, Doing: "identify node web-1", Cause: errors.New("the node was deleted")}
		s.set(func() { s.refuse = refusal })
		s.start()
		pass(5 * time.Second)
		if title := refusal.Entry().Title; strings.Count(s.log.String(), title) != 1 || !strings.Contains(s.log.String(), title+": the node was deleted") {
			t.Errorf("it says: %s", s.log.String())
		}
		if l := s.links.State(); l.Trouble == nil || l.Trouble.Code != reason.IdentityGone || !strings.Contains(l.Trouble.Message, "the node was deleted") {
			t.Errorf("the trouble of %+v is %+v", l, l.Trouble)
		}
		s.set(func() { s.refuse = nil })
		s.publish(7, "one")
		pass(2 * time.Minute)
		if l := s.links.State(); l.Trouble != nil {
			t.Errorf("it is over, and the trouble is %+v", l.Trouble)
		}
	})
}
