package workloads

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// wayOfRelay is how long a message of a relay is on its way: they come in order.
	wayOfRelay = 30 * time.Millisecond
	// silenceMax is how long a relay takes for there what is not.
	silenceMax = 150 * time.Second
	// relayCutMax is how long one is cut off from the servers, and relays is how many there are.
	relayCutMax, relays = 5 * time.Minute, 2
)

// relay stands between hosts and the server that leads: it knows of its hosts what the product's does. While it is cut off it answers them.
type relay struct {
	w      *world
	name   string
	linked bool // the servers reach it
	roster *core.Roster
	to     *server // nil: it has no stream
	stream int     // counts
	agents map[uint64]*host
	keys   map[uint64]int    // of the hosts, as their connections have them
	conns  map[uint64]uint64 // of the server, by the relay's
	states map[types.UID]*state
}

func newRelay(w *world, name string) *relay {
	r := &relay{w: w, name: name, linked: true, roster: core.NewRoster(w.now), agents: map[uint64]*host{}, keys: map[uint64]int{}, states: map[types.UID]*state{}}
	r.seek(0)
	w.after(w.between(heartbeatMin, heartbeatMax), r.beat)
	return r
}

// seek looks for a server, until there is one.
func (r *relay) seek(d time.Duration) {
	stream := r.stream
	r.w.after(d, func() {
		var leads []*server
		for _, s := range r.w.servers {
			if s.leads() && !s.killed {
				leads = append(leads, s)
			}
		}
		switch {
		case r.stream != stream || r.to != nil:
		case !r.linked || len(leads) == 0:
			r.seek(r.w.between(time.Second, reconnectMax))
		default:
			r.to, r.conns = one(r.w, leads), map[uint64]uint64{}
			r.stream++
			r.roster.Begun()
			r.roster.Answered()
			r.pump()
		}
	})
}

// lost is that its stream has ended.
func (r *relay) lost() {
	if r.to == nil {
		return
	}
	r.to = nil
	r.stream++
	r.roster.Ended(r.w.now)
	r.seek(r.w.between(time.Second, reconnectMax))
	r.w.after(core.AwayMax+time.Second, r.abandon)
}

// abandon has its hosts go elsewhere, where it has been without a server for too long.
func (r *relay) abandon() {
	if abandoned, _ := r.roster.Abandoned(r.w.now); !abandoned {
		return
	}
	for _, h := range r.here() {
		r.w.did("left by its relay")
		h.close(false)
	}
}

// here are its hosts.
func (r *relay) here() (all []*host) {
	for _, number := range slices.Sorted(maps.Keys(r.agents)) {
		if h := r.agents[number]; h.via == r && h.conn == number {
			all = append(all, h)
		}
	}
	return all
}

// unlink cuts it off from the servers, and link ends that.
func (r *relay) unlink() {
	if !r.linked || r.w.healed {
		return
	}
	r.w.say("%s is cut off", r.name)
	r.linked = false
	s, stream, conns := r.to, r.stream, r.conns
	if s == nil {
		return
	}
	s.later(r.w.between(deadAfter-time.Second, deadAfter+3*time.Second), func() {
		for _, number := range slices.Sorted(maps.Keys(conns)) {
			s.closed(r.agents[number], conns[number], false)
		}
	})
	r.w.after(r.w.within(silenceMax), func() {
		if r.stream == stream {
			r.lost()
		}
	})
}

func (r *relay) link() {
	if r.linked {
		return
	}
	r.w.say("%s is reached again", r.name)
	r.linked = true
	r.lost()
}

// opened is the watch of a host; false: it serves nobody.
func (r *relay) opened(h *host, number uint64) bool {
	if abandoned, _ := r.roster.Abandoned(r.w.now); abandoned {
		return false
	}
	r.roster.Opened(number, h.name, string(h.uid), []byte(h.name))
	r.agents[number], r.keys[number] = h, h.key
	return true
}

// closed is the end of one.
func (r *relay) closed(number uint64, dead bool) {
	r.roster.Closed(number, dead)
	r.pump()
}

// heard is a report of a host. The answer is to an earlier one.
func (r *relay) heard(number uint64, report *wire.Report) wire.StatusReply {
	reply := r.roster.Heard(number, report)
	if r.w.did("answered by a relay"); !r.linked {
		r.w.did("answered by a relay that is cut off")
	}
	r.pump()
	return reply
}

// pump tells the server what there is to tell.
func (r *relay) pump() {
	say, next := r.roster.Take(r.w.now)
	s, stream := r.to, r.stream
	if len(say) > 0 {
		r.w.after(wayOfRelay, func() {
			for i := range say {
				if r.stream == stream && r.linked && s.leads() {
					r.arrives(s, &say[i])
				}
			}
		})
	}
	if next.After(r.w.now) {
		r.w.after(next.Sub(r.w.now), r.pump)
	}
}

// arrives is that the server is told of a host. One that has joined anew since has another certificate, and the one before counts no more.
func (r *relay) arrives(s *server, said *wire.RelayedAgent) {
	h, number, stream := r.agents[said.Number], said.Number, r.stream
	if n := s.sights[h.uid]; n != nil && r.keys[number] < n.key {
		return
	}
	if said.First() {
		r.w.conns++
		r.conns[number] = r.w.conns
		s.opened(h, r.keys[number], r.conns[number])
		r.bring(h)
	}
	conn := r.conns[number]
	if conn == 0 {
		return
	}
	if said.Asked {
		s.asked(h, conn)
	}
	if said.Report != nil {
		reply := s.heard(h, conn, said.Report)
		r.w.after(wayOfRelay, func() {
			if r.stream == stream && r.linked {
				r.roster.Came(&wire.RelayedNews{Number: number, Taken: true, Status: &reply})
			}
		})
	}
	if said.Left != wire.Here {
		s.closed(h, conn, said.Left == wire.Lost)
		delete(r.conns, number)
	}
}

// bring brings what a host is to have, as its server knows it now.
func (r *relay) bring(h *host) {
	s, stream := r.to, r.stream
	now := s.state(h.uid)
	is := &state{version: now.version, wanted: maps.Clone(now.wanted)}
	r.w.after(wayOfRelay, func() {
		if r.stream == stream && r.linked {
			r.states[h.uid] = is
			r.show(h)
		}
	})
}

// show says to a host what is newest here.
func (r *relay) show(h *host) {
	is := r.states[h.uid]
	if is == nil || h.via != r {
		return
	}
	conn := h.conn
	r.w.after(r.w.within(answerMax), func() {
		if h.via == r && h.conn == conn && h.linked {
			h.frame(is.version)
		}
	})
}

// beat asks all hosts whether they are there.
func (r *relay) beat() {
	for _, h := range r.here() {
		r.roster.Asked(h.conn)
		r.show(h)
	}
	r.pump()
	r.w.after(r.w.between(heartbeatMin, heartbeatMax), r.beat)
}
