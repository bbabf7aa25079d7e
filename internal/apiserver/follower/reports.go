package follower

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// Register is where what is heard is kept by the server that leads. *presence.Register is one. Its methods do not block, and call nothing of
// this package.
type Register interface {
	server.Presence
	// Judged is told whether the store knows the highest state that a host says it has accepted; wrong is why not, empty where it does.
	Judged(who server.Identity, wrong string)
}

// Reports are where hosts' words go, on whichever server leads. Use NewReports. It is safe for concurrent use.
type Reports struct {
	nudge chan struct{} // holds one: there may be something to tell the leader

	// mu guards what follows. The register is told with it, so that it hears in order, and all of what was heard before it was there.
	mu       sync.Mutex
	watches  map[uint64]*watch
	nodes    map[string]*judged // by UID, of those that have a watch here
	register Register           // nil: this server does not lead
	roster   *core.Roster       // nil: there is no stream to the leader
}

// watch is one that is open at this server.
type watch struct {
	who    server.Identity
	report *wire.Report // the newest; nil: none yet
	host   *wire.Host   // what changes seldom, of the newest report that had it
}

// judged is what was found out about what a host has accepted.
type judged struct {
	watches int
	known   bool
	key     string // of the host that it is about
	wrong   string
}

var _ Register = (*Reports)(nil)

// NewReports knows nobody.
func NewReports() *Reports {
	return &Reports{nudge: make(chan struct{}, 1), watches: map[uint64]*watch{}, nodes: map[string]*judged{}}
}

// Lead has all that is heard go to a register, from what is known already on, until stop is called.
func (r *Reports) Lead(register Register) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.register = register
	for _, number := range slices.Sorted(maps.Keys(r.watches)) {
		w := r.watches[number]
		register.Opened(w.who, number)
		if w.report != nil {
			register.Heard(w.who, number, w.whole())
		}
		if n := r.nodes[w.who.UID]; n.known && n.key == w.who.Key {
			register.Judged(w.who, n.wrong)
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.register = nil
	}
}

// whole is the newest report with all that it would have over another connection.
func (w *watch) whole() *wire.Report {
	report := *w.report // what was heard is shared
	report.Host = w.host
	return &report
}

// begin makes a roster of all that a leader is to be told.
func (r *Reports) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roster = core.NewRoster(now)
	r.roster.Begun()
	for _, number := range slices.Sorted(maps.Keys(r.watches)) {
		if w := r.watches[number]; passedOn(w.who) {
			r.roster.Vouched(number, vouched(w.who))
			if w.report != nil {
				r.roster.Heard(number, w.whole())
			}
		}
	}
}

// end lets it go.
func (r *Reports) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roster = nil
}

// passedOn: what another server says of its hosts is for the one that leads. Who does not lead any more passes it on to nobody: that server will
// find out who does.
func passedOn(who server.Identity) bool { return who.Server == "" }

func vouched(who server.Identity) wire.Vouched {
	return wire.Vouched{Name: who.Name, UID: who.UID, Key: who.Key, Through: who.Through}
}

// tell changes what the leader is to be told.
func (r *Reports) tellLocked(who server.Identity, change func(*core.Roster)) {
	if r.roster == nil || !passedOn(who) {
		return
	}
	change(r.roster)
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Opened is part of server.Presence.
func (r *Reports) Opened(who server.Identity, conn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[conn] = &watch{who: who}
	if r.nodes[who.UID] == nil {
		r.nodes[who.UID] = &judged{}
	}
	r.nodes[who.UID].watches++
	if r.register != nil {
		r.register.Opened(who, conn)
	}
	r.tellLocked(who, func(roster *core.Roster) { roster.Vouched(conn, vouched(who)) })
}

// Closed is part of server.Presence.
func (r *Reports) Closed(who server.Identity, conn uint64, dead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watches[conn] != nil {
		delete(r.watches, conn)
		if n := r.nodes[who.UID]; n.watches > 1 {
			n.watches--
		} else {
			delete(r.nodes, who.UID)
		}
	}
	if r.register != nil {
		r.register.Closed(who, conn, dead)
	}
	r.tellLocked(who, func(roster *core.Roster) { roster.Closed(conn, dead) })
}

// Asked is part of server.Presence.
func (r *Reports) Asked(who server.Identity, conn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.register != nil {
		r.register.Asked(who, conn)
	}
	r.tellLocked(who, func(roster *core.Roster) { roster.Asked(conn) })
}

// Heard is part of server.Presence. Where another server leads the answer is what that one has said to the report before.
func (r *Reports) Heard(who server.Identity, conn uint64, report *wire.Report) (reply wire.StatusReply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watches[conn]; w != nil {
		if w.report == nil || w.report.Session != report.Session || report.Number > w.report.Number {
			w.report = report
		}
		if report.Host != nil {
			w.host = report.Host
		}
	}
	if r.register != nil {
		reply = r.register.Heard(who, conn, report)
	}
	r.tellLocked(who, func(roster *core.Roster) { reply = roster.Heard(conn, report) })
	return reply
}

// Judged is part of Register.
func (r *Reports) Judged(who server.Identity, wrong string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[who.UID]; n != nil {
		n.known, n.key, n.wrong = true, who.Key, wrong
	}
	if r.register != nil {
		r.register.Judged(who, wrong)
	}
}

// take is what the leader is to be told now, and when there may be more.
func (r *Reports) take(now time.Time) ([]wire.RelayedAgent, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roster == nil {
		return nil, time.Time{}
	}
	return r.roster.Take(now)
}

// asked is a question to a host that is connected here.
type asked struct {
	node, uid string
	question  wire.Question
}

// came takes in what the leader says, and returns the questions in it.
func (r *Reports) came(down *wire.RelayDown) (all []asked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.roster == nil {
		return nil
	}
	r.roster.Paced(down.Pause)
	for i := range down.Agents {
		n := r.roster.Came(&down.Agents[i])
		if n == nil {
			continue
		}
		for _, q := range down.Agents[i].Questions {
			all = append(all, asked{n.Name, n.UID, q})
		}
	}
	return all
}
