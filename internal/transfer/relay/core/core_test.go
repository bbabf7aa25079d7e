package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// TestShelf: it keeps what was wanted last, within its bound, against a list that is searched.
func TestShelf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 100
		s, sizes := NewShelf(most), map[string]int64{}
		var order []string // the last that was wanted comes last
		forget := func(name string) {
			delete(sizes, name)
			order = slices.DeleteFunc(order, func(o string) bool { return o == name })
		}
		sum := func() (n int64) {
			for _, size := range sizes {
				n += size
			}
			return n
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			name := fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "name"))
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				size := rapid.Int64Range(0, 150).Draw(t, "size")
				drop := s.Put(name, size)
				forget(name)
				order, sizes[name] = append(order, name), size
				var want []string
				for sum() > most && len(order) > 1 {
					want = append(want, order[0])
					forget(order[0])
				}
				if !slices.Equal(drop, want) {
					t.Fatalf("it lets go %v, want %v", drop, want)
				}
			case 1:
				_, want := sizes[name]
				if got := s.Want(name); got != want {
					t.Fatalf("%s is kept: %t", name, got)
				}
				if want {
					order = append(slices.DeleteFunc(order, func(o string) bool { return o == name }), name)
				}
			case 2:
				s.Drop(name)
				forget(name)
			}
			if s.Used() != sum() {
				t.Fatalf("it counts %d bytes of %d", s.Used(), sum())
			}
		}
	})
}

// TestNames: nothing that is asked for in another way has the same name; the own layers of two nodes are two by hash.
func TestNames(t *testing.T) {
	a, b := catalog.Digest{1}, catalog.Digest{2}
	names := []string{
		SyncName("x", a, b), SyncName("x", b, a), SyncName("xx", a, b), SyncName(wire.OwnLayer, a, b),
		PartName("x", "1", a), PartName("x", "1", b), PartName("y", "1", a), PartName(wire.OwnLayer, "1", a), PartName(wire.OwnLayer, "2", a),
		PartsName("x", "1", []catalog.Digest{a}), PartsName("x", "1", []catalog.Digest{a, b}), PartsName(wire.OwnLayer, "1", []catalog.Digest{a}),
		PartsName(wire.OwnLayer, "2", []catalog.Digest{a}), ListName(a), ListName(b), ObjectName("sha256:1"), ObjectName("sha256:2"),
	}
	seen := map[string]bool{}
	for i, n := range names {
		if seen[n] {
			t.Errorf("name %d is that of another thing", i)
		}
		seen[n] = true
	}
	if PartName("x", "1", a) != PartName("x", "2", a) || PartsName("x", "1", []catalog.Digest{a}) != PartsName("x", "2", []catalog.Digest{a}) {
		t.Error("what all nodes share is kept for each")
	}
}

// server is what a server knows of the agents of one stream, and checks what it is told.
type server struct {
	t      *rapid.T
	agents map[uint64]*known
}

type known struct {
	report *wire.Report
	host   *wire.Host
}

func (s *server) hear(say []wire.RelayedAgent) {
	up := wire.RelayUp{Protocol: wire.Protocol, Agents: say}
	if err := up.Validate(); err != nil {
		s.t.Fatal(err)
	}
	for _, a := range say {
		k := s.agents[a.Number]
		if first := len(a.Certificate) > 0; first != (k == nil) {
			s.t.Fatalf("agent %d: first word %t, known %t", a.Number, first, k != nil)
		}
		if k == nil {
			k = &known{}
			s.agents[a.Number] = k
		}
		if a.Report != nil {
			k.report = a.Report
			if a.Report.Host != nil {
				k.host = a.Report.Host
			}
		}
		if a.Left != wire.Here {
			delete(s.agents, a.Number)
		}
	}
}

// TestRoster: whatever agents do, and however often streams end, a server that has heard all that there is to say over the last stream knows just
// the agents that are here, and of each the newest report and what changes seldom. No more is kept than of who is here.
func TestRoster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_000_000, 0)
		r, s := NewRoster(now), &server{t: t, agents: map[uint64]*known{}}
		here := map[uint64]*known{}
		next, number, reports := uint64(1), uint64(0), uint64(0)
		some := func() (uint64, bool) {
			if len(here) == 0 {
				return 0, false
			}
			numbers := []uint64{}
			for n := range here {
				numbers = append(numbers, n)
			}
			slices.Sort(numbers)
			return rapid.SampledFrom(numbers).Draw(t, "agent"), true
		}
		report := func(n uint64) {
			reports++
			rep := &wire.Report{Number: reports}
			if here[n].host == nil || rapid.Bool().Draw(t, "host") {
				rep.Host = &wire.Host{Version: fmt.Sprint(reports)}
				here[n].host = rep.Host
			}
			here[n].report = rep
			r.Heard(n, rep)
		}
		r.Begun()
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				number = next
				next++
				here[number] = &known{}
				r.Opened(number, "web", fmt.Sprint("uid-", number%5), []byte{1})
				report(number)
			case 1, 2:
				if n, any := some(); any {
					report(n)
				}
			case 3:
				if n, any := some(); any {
					r.Asked(n)
				}
			case 4:
				if n, any := some(); any {
					r.Closed(n, rapid.Bool().Draw(t, "lost"))
					delete(here, n)
				}
			case 5:
				r.Ended(now)
				r.Begun()
				s.agents = map[uint64]*known{}
			case 6:
				say, _ := r.Take(now)
				s.hear(say)
			}
		}
		// All that there is to say is said, within a bounded number of messages.
		for i := 0; ; i++ {
			say, at := r.Take(now)
			s.hear(say)
			if len(say) == 0 && at.IsZero() {
				break
			}
			if i > 10 {
				t.Fatal("it does not come to an end")
			}
			if at.After(now) {
				now = at
			}
		}
		if len(s.agents) != len(here) || r.Agents() != len(here) || len(r.agents) != len(here) {
			t.Fatalf("%d are here; the server knows %d, the roster %d and keeps %d", len(here), len(s.agents), r.Agents(), len(r.agents))
		}
		for n, want := range here {
			got := s.agents[n]
			if got == nil || got.report.Number != want.report.Number || got.host != want.host {
				t.Fatalf("agent %d: the server knows %+v, and it is %+v", n, got, want)
			}
		}
		if len(r.nodes) > 5 || len(here) == 0 && len(r.nodes) > 0 {
			t.Fatalf("%d nodes are kept", len(r.nodes))
		}
	})
}

// TestRosterPaces: reports go together, at the pace that the server wants; who comes or goes is told of at once.
func TestRosterPaces(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := NewRoster(now)
	r.Begun()
	r.Paced(5_000)
	for n := uint64(1); n <= 3; n++ {
		r.Opened(n, "web", fmt.Sprint(n), []byte{1})
		r.Heard(n, &wire.Report{Number: 1})
	}
	if say, _ := r.Take(now); len(say) != 3 {
		t.Fatalf("%d agents are told of at once", len(say))
	}
	now = now.Add(time.Minute)
	r.Heard(1, &wire.Report{Number: 2})
	if say, _ := r.Take(now); len(say) != 1 {
		t.Fatalf("after a long time %d reports go", len(say))
	}
	r.Heard(2, &wire.Report{Number: 2})
	r.Heard(3, &wire.Report{Number: 2})
	now = now.Add(time.Second)
	say, at := r.Take(now)
	if len(say) != 0 || at.Sub(now) != 4*time.Second {
		t.Fatalf("%d reports go at once, and the next after %s", len(say), at.Sub(now))
	}
	r.Closed(3, true)
	if say, _ = r.Take(now); len(say) != 1 || say[0].Left != wire.Lost || say[0].Report == nil {
		t.Fatalf("who goes is told of as %+v", say)
	}
	if say, _ = r.Take(at); len(say) != 1 || say[0].Number != 2 {
		t.Fatalf("at its time goes %+v", say)
	}
}

// TestRosterHurries: by which something else is ready goes before the others, which keep their pace; and so often only.
func TestRosterHurries(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	now := start
	r := NewRoster(now)
	r.Begun()
	number := uint64(0)
	hear := func(agent uint64, ready bool) {
		number++
		r.Heard(agent, &wire.Report{Number: number, Instances: []wire.Instance{{UID: "uid-other"}, {UID: "uid-web", Ready: ready}}})
	}
	for n := uint64(1); n <= 3; n++ {
		r.Opened(n, "web", fmt.Sprint(n), []byte{1})
		hear(n, false)
	}
	wants := func(after time.Duration, next time.Duration, want ...uint64) {
		t.Helper()
		now = start.Add(after)
		say, at := r.Take(now)
		var is []uint64
		for _, a := range say {
			is = append(is, a.Number)
		}
		if !slices.Equal(is, want) || !at.IsZero() && at.Sub(start) != next || at.IsZero() && next != 0 {
			t.Fatalf("after %s go %v, and the next after %s; want %v and %s", after, is, at.Sub(start), want, next)
		}
	}
	wants(0, 0, 1, 2, 3)
	hear(1, false)
	wants(10*time.Second, 0, 1)
	hear(1, false)
	hear(2, true)
	wants(10*time.Second, 10*time.Second+gather) // for who comes with it
	wants(10*time.Second+gather, 11*time.Second, 2)
	hear(2, false)
	hear(3, true)
	wants(10100*time.Millisecond, 10220*time.Millisecond)
	wants(10220*time.Millisecond, 11*time.Second, 2, 3)
	hear(3, true) // as it was told
	wants(11*time.Second, 0, 1, 3)
}

// TestRosterHears: what the server says counts for the node, and the first word of a stream is waited for anew.
func TestRosterHears(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := NewRoster(now)
	r.Begun()
	r.Answered()
	r.Opened(1, "web", "uid", []byte{1})
	r.Heard(1, &wire.Report{Number: 1})
	r.Take(now)
	if n := r.Came(&wire.RelayedNews{Number: 1, Taken: true, Head: []byte("head"), Status: &wire.StatusReply{RetryAfter: 7}}); n == nil || !n.Taken || string(n.Head) != "head" {
		t.Fatalf("%+v", n)
	}
	if reply := r.Heard(1, &wire.Report{Number: 2}); reply.RetryAfter != 7 {
		t.Errorf("the agent is told %+v", reply)
	}
	if r.Came(&wire.RelayedNews{Number: 2, Taken: true}) != nil {
		t.Error("news of nobody are taken")
	}
	r.Came(&wire.RelayedNews{Number: 1, Deposits: []wire.Deposit{{Head: []byte("of another")}}})
	if all := r.Carried(1); len(all) != 1 || string(all[0].Head) != "of another" || r.Carried(1) != nil || r.Carried(2) != nil {
		t.Errorf("what the agent is to keep for others: %+v, and then there is more", all)
	}
	r.Ended(now)
	if gone, at := r.Abandoned(now.Add(AwayMax - 1)); gone || at != now.Add(AwayMax) {
		t.Errorf("%t, %s", gone, at)
	}
	if gone, _ := r.Abandoned(now.Add(AwayMax)); !gone {
		t.Error("without a server for long it still serves")
	}
	r.Begun()
	if n := r.Node("uid"); n.Taken || string(n.Head) != "head" {
		t.Errorf("over another stream it has %+v", n)
	}
	r.Take(now)
	r.Came(&wire.RelayedNews{Number: 1, Problem: &wire.Problem{Code: "TK1031"}})
	if r.Node("uid").Problem == nil {
		t.Error("a refusal is not kept")
	}
	r.Heard(1, &wire.Report{Number: 3})
	if say, at := r.Take(now.Add(time.Hour)); len(say) != 0 || !at.IsZero() {
		t.Errorf("of who is refused it says %+v, and more at %s", say, at)
	}
	if r.Closed(1, false); r.Node("uid") != nil || len(r.agents) != 0 {
		t.Error("who has gone is kept")
	}
}
