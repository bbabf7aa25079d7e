package client_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
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

// What cannot be read is counted, as what is not believed; it costs a pause each time, and whoever sent it is turned away from. The host keeps
// what it has, and goes on when somebody makes sense.
func TestGarbledAnswers(t *testing.T) {
	frame := func(content ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	}
	for name, garbled := range map[string][]byte{
		"too long":       {0xff, 0xff, 0xff, 0xff},
		"no CBOR":        frame('<', 'h', 't', 'm', 'l', '>'),
		"nested":         frame(bytes.Repeat([]byte{0x81}, 1_000)...),
		"a long array":   frame(0xa1, 0x02, 0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"another tag":    frame(0xc1, 0xa0),
		"something more": frame(0xa0, 0x00),
	} {
		for _, path := range []string{wire.PathSync, wire.PathNodes, wire.PathWatch} {
			t.Run(name+" in "+path, func(t *testing.T) {
				play(t, func(t *testing.T, s *scene) {
					s.publish(7, "one")
					s.start()
					pass(5 * time.Second)
					s.wantVersions(7)
					before := s.count(path)
					s.set(func() { s.garble = map[string][]byte{path: garbled} })
					if path == wire.PathWatch {
						s.set(func() { s.cut = true })
					}
					s.publish(8, "two")
					pass(10 * time.Minute)
					calls := s.count(path) - before
					if calls == 0 || calls > 40 {
						t.Errorf("%d calls in ten minutes", calls)
					}
					s.set(func() { s.garble, s.cut = nil, false })
					pass(3 * time.Minute)
					s.wantVersions(7, 8)
					// A watch may have been ended in the middle of the first one.
					if got := s.last().Refused.Content; got+1 < uint64(calls) || got > uint64(calls) {
						t.Errorf("%d are counted of %d", got, calls)
					}
					if log := s.log.String(); !strings.Contains(log, string(core.DoubtContent)) {
						t.Errorf("nobody is told: %s", log)
					}
				})
			})
		}
	}
}
