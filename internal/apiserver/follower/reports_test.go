package follower

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// register is what a register knows: of each watch the newest report, of each node what was judged.
type register struct {
	watches map[uint64]*wire.Report
	judged  map[string]string
	asked   int
}

func newRegister() *register {
	return &register{watches: map[uint64]*wire.Report{}, judged: map[string]string{}}
}

func (r *register) Opened(_ server.Identity, conn uint64)         { r.watches[conn] = nil }
func (r *register) Closed(_ server.Identity, conn uint64, _ bool) { delete(r.watches, conn) }
func (r *register) Asked(server.Identity, uint64)                 { r.asked++ }
func (r *register) Judged(who server.Identity, wrong string)      { r.judged[who.UID] = wrong }

// Heard has what changes seldom stay, as the register does.
func (r *register) Heard(_ server.Identity, conn uint64, report *wire.Report) wire.StatusReply {
	host := report.Host
	if old := r.watches[conn]; host == nil && old != nil {
		host = old.Host
	}
	kept := *report
	kept.Host = host
	r.watches[conn] = &kept
	return wire.StatusReply{RetryAfter: 1}
}

func host(name string) server.Identity {
	return server.Identity{Name: name, UID: name, Key: "sha256:" + name}
}

// TestReports: whatever hosts do and whoever leads, a register that is led from now on, and a leader that is told over a new stream, know of each watch
// that is open the newest report with what changes seldom; and one that was there all the time knows the same.
func TestReports(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewReports()
		open, number, reports := map[uint64]server.Identity{}, uint64(0), uint64(0)
		latest, seldom := map[uint64]uint64{}, map[uint64]*wire.Host{}
		var led *register
		stop := func() {}
		pick := func() (uint64, bool) {
			if len(open) == 0 {
				return 0, false
			}
			var all []uint64
			for n := range open {
				all = append(all, n)
			}
			slices.Sort(all)
			return rapid.SampledFrom(all).Draw(t, "watch"), true
		}
		say := func(n uint64) {
			reports++
			report := &wire.Report{Number: reports}
			if seldom[n] == nil || rapid.Bool().Draw(t, "host") {
				report.Host = &wire.Host{CPUs: uint32(reports)}
				seldom[n] = report.Host
			}
			latest[n] = reports
			r.Heard(open[n], n, report)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				number++
				open[number] = host(rapid.SampledFrom([]string{"web-1", "web-2", "web-3"}).Draw(t, "name"))
				r.Opened(open[number], number)
				say(number)
			case 1, 2:
				if n, any := pick(); any {
					say(n)
				}
			case 3:
				if n, any := pick(); any {
					r.Closed(open[n], n, rapid.Bool().Draw(t, "dead"))
					delete(open, n)
				}
			case 4:
				stop()
				led = newRegister()
				stop = r.Lead(led)
			case 5:
				stop()
				led, stop = nil, func() {}
			}
		}
		check := func(what string, got map[uint64]*wire.Report) {
			if len(got) != len(open) {
				t.Fatalf("%s knows %d watches, %d are open", what, len(got), len(open))
			}
			for n := range open {
				if report := got[n]; report == nil || report.Number != latest[n] || report.Host != seldom[n] {
					t.Fatalf("%s knows of watch %d %+v, want report %d", what, n, report, latest[n])
				}
			}
		}
		if led != nil {
			check("who led", led.watches)
		}
		stop()
		fresh := newRegister()
		r.Lead(fresh)()
		check("who leads from now on", fresh.watches)
		r.begin(time.Unix(1_000_000, 0))
		told := map[uint64]*wire.Report{}
		for all, _ := r.take(time.Unix(1_000_001, 0)); len(all) > 0; all, _ = r.take(time.Unix(1_000_002, 0)) {
			if err := (&wire.RelayUp{Protocol: wire.Protocol, Agents: all}).Validate(); err != nil {
				t.Fatal(err)
			}
			for _, a := range all {
				if a.Who == nil || a.Who.Name != open[a.Number].Name {
					t.Fatalf("agent %d is told of as %+v", a.Number, a.Who)
				}
				told[a.Number] = a.Report
			}
		}
		check("the leader", told)
		r.end()
		if len(r.watches) != len(open) || len(r.nodes) > len(open) {
			t.Fatalf("%d watches and %d nodes are kept of %d", len(r.watches), len(r.nodes), len(open))
		}
	})
}

// TestJudged: what was found out about the host of a node is known to who leads from now on, as long as that is the host.
func TestJudged(t *testing.T) {
	r := NewReports()
	web := host("web-1")
	r.Judged(web, "nobody has a watch")
	r.Opened(web, 1)
	r.Judged(web, "wrong")
	led := newRegister()
	stop := r.Lead(led)
	if led.judged["web-1"] != "wrong" {
		t.Errorf("it is judged %v", led.judged)
	}
	if reply := r.Heard(web, 1, &wire.Report{Number: 1}); reply.RetryAfter != 1 {
		t.Errorf("the register's answer comes as %+v", reply)
	}
	stop()
	other := web
	other.Key = "sha256:another"
	r.Opened(other, 2)
	r.Closed(web, 1, false)
	after := newRegister()
	r.Judged(other, "")
	r.Lead(after)()
	if wrong, known := after.judged["web-1"]; !known || wrong != "" {
		t.Errorf("another host in its place is judged %v", after.judged)
	}
}

// TestNotPassedOn: what another server says of its hosts counts while this one leads, and is told to nobody when it does not: two of which each
// takes the other one for the leader would tell it to each other for ever.
func TestNotPassedOn(t *testing.T) {
	r := NewReports()
	theirs := host("web-1")
	theirs.Server = "b"
	r.begin(time.Unix(1_000_000, 0))
	r.Opened(theirs, 1)
	r.Heard(theirs, 1, &wire.Report{Number: 1})
	if told, _ := r.take(time.Unix(1_000_001, 0)); len(told) > 0 {
		t.Errorf("the leader is told %+v", told)
	}
	led := newRegister()
	r.Lead(led)
	if led.watches[1] == nil {
		t.Error("who leads does not know of it")
	}
}
