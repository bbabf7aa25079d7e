package election

import (
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"
)

// world is an etcd in the memory of a test, with a clock of its own: leases that end, and one key that says who leads.
type world struct {
	now      time.Time
	revision int64
	last     clientv3.LeaseID
	leases   map[clientv3.LeaseID]time.Time // until when
	leader   Holder
	at       int64 // the revision at which the leader was another one last
	written  []int64
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	for id, until := range w.leases {
		if !w.now.Before(until) {
			delete(w.leases, id)
			if w.leader.Lease == id {
				w.revision++
				w.leader, w.at = Holder{}, w.revision
			}
		}
	}
}

// write is a write of a leader, as the fence has it: done while its term is the newest.
func (w *world) write(term int64) bool {
	if w.leader.Term != term {
		return false
	}
	w.revision++
	w.written = append(w.written, term)
	return true
}

// player is a server.
type player struct {
	state
	seen seen
	cut  bool          // from etcd
	skew time.Duration // its clock before that of etcd
	ran  time.Time     // when it looked last, by its clock
}

const length = 8 * time.Second

func (p *player) now(w *world) time.Time { return w.now.Add(p.skew) }

// run does what a server does in one moment, and reports a term in which it begins to lead.
func (p *player) run(w *world) {
	p.ran = p.now(w)
	if !p.cut {
		p.seen.lead(w.leader, w.at)
		p.seen.known = true
	}
	if p.seen.known {
		p.saw(p.seen.leader)
	}
	for range 10 {
		todo, _ := p.next(p.now(w))
		if p.cut && todo != lead && todo != resign && todo != wait {
			p.failed(p.now(w))
			continue
		}
		switch todo {
		case wait:
			return
		case lead:
			p.led()
		case resign:
			p.left()
		case obtain:
			p.lost()
			w.last++
			w.leases[w.last] = w.now.Add(length)
			p.obtained(w.last, p.now(w))
		case renew:
			if w.leases[p.lease.id].IsZero() {
				p.lost()
				continue
			}
			w.leases[p.lease.id] = w.now.Add(length)
			p.kept(p.now(w))
		case campaign:
			if w.leader.Term == p.leader.Term {
				w.revision++
				w.leader, w.at = Holder{Server: p.self, Lease: p.lease.id, Term: w.revision}, w.revision
			}
			p.seen.lead(w.leader, w.at)
			p.saw(p.seen.leader)
		}
	}
}

// TestOneLeads: however servers are cut off, stopped and late, no two lead at one moment whose clocks are looked at, terms ascend, nothing is
// written in a term after a later one, and when all is well somebody leads within 15 s.
func TestOneLeads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: time.Unix(1_000_000, 0), leases: map[clientv3.LeaseID]time.Time{}}
		all := make([]*player, rapid.IntRange(1, 3).Draw(t, "servers"))
		for i := range all {
			all[i] = &player{
				state: state{self: Server{ID: fmt.Sprint(i)}, length: length},
				skew:  time.Duration(rapid.IntRange(-100, 100).Draw(t, "skew")) * time.Second,
			}
		}
		check := func() {
			leading := 0
			for _, p := range all {
				if p.term != 0 && p.now(w).Before(p.until()) {
					leading++
				}
			}
			if leading > 1 {
				t.Fatal("two lead")
			}
			for i := 1; i < len(w.written); i++ {
				if w.written[i] < w.written[i-1] {
					t.Fatalf("written in the terms %v", w.written)
				}
			}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			w.tick(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			p := rapid.SampledFrom(all).Draw(t, "server")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				p.cut = !p.cut
			case 1: // another process on the same directory: the one before is gone
				*p = player{state: state{self: p.self, length: length}, skew: p.skew}
			case 2, 3:
				if p.term != 0 {
					w.write(p.term) // also when its time is over: nobody looks at the clock at each write
				}
			default:
				p.run(w)
			}
			check()
		}
		for _, p := range all {
			p.cut = false
		}
		for range 150 {
			w.tick(100 * time.Millisecond)
			for _, p := range all {
				p.run(w)
			}
			check()
		}
		for _, p := range all {
			if p.term != 0 && p.term == w.leader.Term {
				return
			}
		}
		t.Fatal("nobody leads 15 s after all is well")
	})
}

// TestAgain: a process that takes the place of one that was killed leads at once; a copy of its data directory does so once, and then the two are
// servers like any others.
func TestAgain(t *testing.T) {
	w := &world{now: time.Unix(1_000_000, 0), leases: map[clientv3.LeaseID]time.Time{}}
	fresh := func() *player { return &player{state: state{self: Server{ID: "a"}, length: length}} }
	first := fresh()
	first.run(w)
	if first.term == 0 {
		t.Fatal("one alone does not lead")
	}
	w.tick(time.Second)
	second := fresh()
	second.run(w)
	if second.term == 0 || second.term == first.term {
		t.Fatalf("the next process has term %d, the one before %d", second.term, first.term)
	}
	if w.write(first.term) || !w.write(second.term) {
		t.Error("the process before can write, or this one cannot")
	}
	for range 100 {
		w.tick(100 * time.Millisecond)
		first.run(w)
		second.run(w)
	}
	if first.term != 0 || second.term == 0 || second.term != w.leader.Term {
		t.Errorf("a copy takes the lead back: %d, %d", first.term, second.term)
	}
}

// TestLateWatch: what a watch tells of the time before this server became the leader ends nothing.
func TestLateWatch(t *testing.T) {
	s := seen{servers: map[string]Server{}}
	s.lead(Holder{Server: Server{ID: "a"}, Term: 100}, 100)
	s.lead(Holder{}, 99)
	if s.leader.Term != 100 {
		t.Errorf("%+v", s.leader)
	}
	if s.lead(Holder{}, 101); s.leader.Term != 0 {
		t.Errorf("%+v", s.leader)
	}
}

func keyValue(value []byte) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(leaderKey), Value: value, ModRevision: 7, Lease: 1}
}
