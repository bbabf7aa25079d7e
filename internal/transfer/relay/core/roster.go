package core

import (
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

const (
	// gather is the shortest between two messages to the server: agents that come or go together are told of together.
	gather = 20 * time.Millisecond
	// reportPause is the shortest between two messages with reports, unless the server says another one.
	reportPause = time.Second
	// readyShare is the part of the pause between reports that one waits in which something else is ready than was said: names and rollouts wait for
	// it, and with what else is on that way it is to be known within a second.
	readyShare = 5
	// reportPauseMax is the longest that a server may say.
	reportPauseMax = time.Minute
	// AwayMax is how long a relay without a server keeps its agents: after that they are better with another relay. A server that restarts
	// is back by then.
	AwayMax = 30 * time.Second
)

// Roster is which agents are here. It is not safe for concurrent use. Use NewRoster.
type Roster struct {
	agents map[uint64]*agent // by the number of their watch
	nodes  map[string]*Node  // by UID, of those that have an agent here

	streaming bool
	away      time.Time     // since when no server has answered; zero: one has
	pause     time.Duration // between messages with reports
	sent      time.Time     // the last message
	reported  time.Time     // the last one with reports that were not in a hurry
	hastened  time.Time     // the last one with some that were
}

// agent is one watch.
type agent struct {
	number      uint64
	node        *Node
	certificate []byte        // what it has shown; or, where a server vouches for it:
	who         *wire.Vouched // who it is

	report *wire.Report // the newest; nil: none yet
	host   *wire.Host   // what changes seldom, of the newest report that had it

	ready uint64 // hash of what is ready by the newest report
	shown uint64 // the same of the one that the server was told last

	told   bool           // the server knows of it, over this stream
	fresh  bool           // it does not know the report
	seldom bool           // it does not know host
	asked  bool           // it does not know that a heartbeat was written
	kept   []wire.Deposit // what it is to keep for others, and was not given yet
	left   wire.Leaving
}

// Node is what the server has said of a node.
type Node struct {
	Name, UID string
	// Taken says that the server has taken an agent of it over this stream.
	Taken bool
	// Head is the newest; nil: there was none yet.
	Head []byte
	// Status is the answer to its reports.
	Status wire.StatusReply
	// Problem is why it is not served; nil as long as it is.
	Problem *wire.Problem
	watches int
}

// NewRoster makes an empty one of a relay that has no server yet.
func NewRoster(now time.Time) *Roster {
	return &Roster{agents: map[uint64]*agent{}, nodes: map[string]*Node{}, away: now, pause: reportPause}
}

// Agents is how many are here.
func (r *Roster) Agents() int {
	here := 0
	for _, a := range r.agents {
		if a.left == wire.Here {
			here++
		}
	}
	return here
}

// Node is what the server has said of a node; nil when no agent of it is here. It is valid until the next call.
func (r *Roster) Node(uid string) *Node { return r.nodes[uid] }

// Opened notes the watch of an agent, which has shown a certificate.
func (r *Roster) Opened(number uint64, name, uid string, certificate []byte) {
	r.agents[number] = &agent{number: number, node: r.open(name, uid), certificate: certificate}
}

// Vouched notes the watch of an agent that a server has identified.
func (r *Roster) Vouched(number uint64, who wire.Vouched) {
	r.agents[number] = &agent{number: number, node: r.open(who.Name, who.UID), who: &who}
}

// open counts a watch of a node.
func (r *Roster) open(name, uid string) *Node {
	n := r.nodes[uid]
	if n == nil {
		n = &Node{Name: name, UID: uid}
		r.nodes[uid] = n
	}
	n.watches++
	return n
}

// Heard notes a report, and returns what the server has said to the one before.
func (r *Roster) Heard(number uint64, report *wire.Report) wire.StatusReply {
	a := r.agents[number]
	if a == nil {
		return wire.StatusReply{}
	}
	if report.Host != nil {
		a.host, a.seldom = report.Host, true
	}
	if a.report != nil && a.report.Session == report.Session && report.Number <= a.report.Number {
		return a.node.Status // it was overtaken
	}
	a.report, a.ready, a.fresh, a.asked = report, readyOf(report), true, false
	return a.node.Status
}

// readyOf is a hash of what is ready. Where something else has the same, by chance, its report is in no hurry.
func readyOf(report *wire.Report) uint64 {
	all := fnv.New64a()
	for i := range report.Instances {
		if report.Instances[i].Ready {
			_, _ = all.Write(append([]byte(report.Instances[i].UID), 0)) // a hash takes everything
		}
	}
	return all.Sum64()
}

// hurries tells whether the server does not know yet what is ready.
func (a *agent) hurries() bool { return a.told && a.fresh && a.ready != a.shown && a.left == wire.Here }

// Asked notes that a heartbeat was written to an agent.
func (r *Roster) Asked(number uint64) {
	if a := r.agents[number]; a != nil {
		a.asked = true
	}
}

// Closed notes that a watch has ended; lost says that the host or its link was found lost.
func (r *Roster) Closed(number uint64, lost bool) {
	a := r.agents[number]
	if a == nil || a.left != wire.Here {
		return
	}
	if a.left = wire.Ended; lost {
		a.left = wire.Lost
	}
	if a.node.watches--; a.node.watches == 0 {
		delete(r.nodes, a.node.UID)
	}
	if !a.told {
		delete(r.agents, number)
	}
}

// Begun notes that a stream begins: whoever is at its other end knows nothing yet.
func (r *Roster) Begun() {
	r.streaming, r.pause, r.sent, r.reported, r.hastened = true, reportPause, time.Time{}, time.Time{}, time.Time{}
	for number, a := range r.agents {
		if a.left != wire.Here {
			delete(r.agents, number)
			continue
		}
		a.told = false
	}
	for _, n := range r.nodes {
		n.Taken = false
	}
}

// Answered notes that a server has answered.
func (r *Roster) Answered() { r.away = time.Time{} }

// Ended notes that the stream has ended.
func (r *Roster) Ended(now time.Time) {
	if r.streaming = false; r.away.IsZero() {
		r.away = now
	}
}

// Abandoned says whether the relay has been without a server for so long that it serves nobody, and when that will be; the zero time where
// it has one.
func (r *Roster) Abandoned(now time.Time) (abandoned bool, at time.Time) {
	if r.away.IsZero() {
		return false, time.Time{}
	}
	at = r.away.Add(AwayMax)
	return !now.Before(at), at
}

// Paced notes how the server wants reports to be spaced.
func (r *Roster) Paced(milliseconds uint32) {
	r.pause = min(max(time.Duration(milliseconds)*time.Millisecond, reportPause), reportPauseMax)
}

// Came takes in what the server says of an agent, and returns the node that it is of; nil when it is not here any more.
func (r *Roster) Came(news *wire.RelayedNews) *Node {
	a := r.agents[news.Number]
	if a == nil || a.left != wire.Here {
		return nil
	}
	n := a.node
	n.Taken = n.Taken || news.Taken
	if len(news.Deposits) > 0 {
		a.kept = news.Deposits // a host that does not take those before has been silent for a heartbeat of the server
	}
	if news.Head != nil {
		n.Head = news.Head
	}
	if news.Status != nil {
		n.Status = *news.Status
	}
	if news.Problem != nil {
		// The server has forgotten the agent. Its watch ends here too, and with that what is kept of it.
		n.Problem, a.told = news.Problem, false
	}
	return n
}

// Carried takes what an agent is to keep for others.
func (r *Roster) Carried(number uint64) (all []wire.Deposit) {
	if a := r.agents[number]; a != nil {
		all, a.kept = a.kept, nil
	}
	return all
}

// Take is what the server is to be told now, and when there may be more; the zero time is when something else happens.
func (r *Roster) Take(now time.Time) (say []wire.RelayedAgent, next time.Time) {
	if !r.streaming {
		return nil, time.Time{}
	}
	soon, report := r.sent.Add(gather), r.reported.Add(r.pause)
	haste := r.hastened.Add(r.pause / readyShare)
	if haste.Before(soon) {
		haste = soon
	}
	said, hurried := false, false // a report
	for _, number := range slices.Sorted(maps.Keys(r.agents)) {
		a := r.agents[number]
		due := a.due(soon, haste, report)
		switch {
		case due.IsZero():
		case due.After(now):
			next = earlier(next, due)
		case len(say) == wire.RelayedMax:
			next = earlier(next, now.Add(gather))
		default:
			hurried = hurried || a.hurries()
			said = said || a.told && a.fresh && a.left == wire.Here && !a.hurries()
			say = append(say, a.say())
			if a.left != wire.Here {
				delete(r.agents, number)
			}
		}
	}
	if len(say) > 0 {
		r.sent = now
	}
	if said {
		r.reported = now
	}
	if hurried {
		r.hastened = now
	}
	return say, next
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// due is when to tell of an agent; the zero time when there is nothing to tell. The first word about one waits for its report.
func (a *agent) due(soon, haste, report time.Time) time.Time {
	switch {
	case a.node.Problem != nil && !a.told:
		return time.Time{} // the server does not want to hear of it
	case !a.told && a.report == nil:
		return time.Time{}
	case !a.told, a.left != wire.Here:
		return soon
	case a.hurries() && haste.Before(report):
		return haste
	case a.fresh, a.asked:
		return report
	}
	return time.Time{}
}

// say is what the server is told of an agent, and notes that it was.
func (a *agent) say() wire.RelayedAgent {
	said := wire.RelayedAgent{Number: a.number, Asked: a.asked, Left: a.left}
	if !a.told {
		said.Certificate, said.Who = a.certificate, a.who
	}
	if a.fresh || !a.told {
		report := *a.report // what was heard is shared
		if report.Host = nil; a.seldom || !a.told {
			report.Host = a.host
		}
		said.Report = &report
	}
	a.told, a.shown, a.fresh, a.seldom, a.asked = true, a.ready, false, false, false
	return said
}
