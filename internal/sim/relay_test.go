package sim

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	relaycore "tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// takenMax is how long a watch waits for the word of the server.
	takenMax = 10 * time.Second
	// streamSilence is how long a stream may stand still before it is given up.
	streamSilence = 30 * time.Second
	// signEvery is how often each end of a stream says that it is there.
	signEvery = 10 * time.Second
	// shelfMax is so small that answers are let go in every run.
	shelfMax = 64 << 10
)

// relay serves hosts over one stream to one server. What it decides is of package relay/core.
type relay struct {
	end
	w       *world
	evil    *liar // nil: it is honest
	chain   *trust.Chain
	roster  *relaycore.Roster
	shelf   *relaycore.Shelf
	answers map[string][]wire.SyncPart
	parts   map[string][]byte

	number   uint64
	sessions map[uint64]*session // by the number of their watch
	waiting  map[uint64]answers[struct{}]
	with     *core.Sticky
	backoff  core.Backoff
	stream   *stream
	pumping  time.Time // when the next word goes to the server
}

func newRelay(w *world, name string) *relay { return &relay{end: end{name: name}, w: w} }

func (r *relay) machine() *end { return &r.end }

func (r *relay) start() {
	r.run, r.up = r.run+1, true
	if r.answers == nil || r.w.chance(0.3) { // the disk of a relay is nothing that anybody needs
		r.shelf, r.answers, r.parts = relaycore.NewShelf(shelfMax), map[string][]wire.SyncPart{}, map[string][]byte{}
	}
	if r.chain == nil {
		r.chain = r.w.by.chain
	}
	r.roster, r.sessions, r.waiting = relaycore.NewRoster(r.w.now), map[uint64]*session{}, map[uint64]answers[struct{}]{}
	r.with, r.backoff, r.pumping = core.NewSticky(len(r.w.servers)), core.Backoff{}, time.Time{}
	r.w.say("%s starts", r.name)
	r.connect()
}

func (r *relay) stop() {
	r.up = false
	r.w.say("%s stops", r.name)
	for _, number := range slices.Sorted(maps.Keys(r.sessions)) {
		r.w.resets(&r.end, r.sessions[number])
	}
	if r.stream != nil {
		r.stream.dead = true
	}
	r.stream, r.sessions = nil, nil
}

func (r *relay) every(pause time.Duration, do func()) {
	run := r.run
	r.w.after(pause, func() {
		if r.up && r.run == run {
			do()
		}
	})
}

// stream is the connection of a relay to a server: what is sent comes in order, or the connection is dead.
type stream struct {
	relay  *relay
	server *server
	run    int // of the relay
	dead   bool
	up     time.Time // when the last message comes to the server
	down   time.Time // and to the relay
	heard  time.Time // by the relay
	agents map[uint64]*relayedAgent
	trust  uint64
}

// relayedAgent is what a server knows of an agent of a relay.
type relayedAgent struct {
	node  string
	taken bool
	told  string
}

// flow sends a message over the stream.
func (x *stream) flow(from, to *end, last *time.Time, deliver func()) {
	w := x.relay.w
	if x.dead || w.net.cut[way{from.name, to.name}] || w.chance(w.faults/20) {
		x.dead = true // a gap ends a connection
		return
	}
	at := w.now.Add(time.Millisecond + w.within(30*time.Millisecond))
	if at.Before(*last) {
		at = *last
	}
	*last = at
	run := to.run
	w.after(at.Sub(w.now), func() {
		if !x.dead && to.up && to.run == run {
			deliver()
		}
	})
}

func (r *relay) connect() {
	s := r.w.servers[r.with.Current()]
	x := &stream{relay: r, server: s, run: r.run, agents: map[uint64]*relayedAgent{}, heard: r.w.now}
	r.stream, r.pumping = x, time.Time{}
	r.roster.Begun()
	if !s.up {
		x.dead = true
	} else {
		x.flow(&r.end, &s.end, &x.up, func() { s.relayed[r.name] = x; x.sign() })
	}
	r.listen(x)
	r.pump()
}

// listen gives a stream up that stands still.
func (r *relay) listen(x *stream) {
	r.every(streamSilence/3, func() {
		switch {
		case r.stream != x:
		case r.w.now.Sub(x.heard) < streamSilence:
			r.listen(x)
		default:
			r.hangUp(x)
		}
	})
}

func (r *relay) hangUp(x *stream) {
	x.dead, r.stream = true, nil
	r.roster.Ended(r.w.now)
	r.with.Failed(r.w.now)
	r.every(r.backoff.Next(r.w.random), r.connect)
}

// reset tells the relay that its server has ended.
func (x *stream) reset() {
	x.dead = true
	r := x.relay
	if r.w.chance(0.7) {
		r.every(r.w.within(100*time.Millisecond), func() {
			if r.stream == x {
				r.hangUp(x)
			}
		})
	}
}

// sign says that the server is there, again and again.
func (x *stream) sign() {
	s := x.server
	if x.dead || s.relayed[x.relay.name] != x {
		return
	}
	down := &wire.RelayDown{}
	if s.chain != nil && s.chain.Current().Number > x.trust {
		x.trust = s.chain.Current().Number
		down.Trust = x.trust
	}
	x.say(down)
	s.every(signEvery, x.sign)
}

func (x *stream) say(down *wire.RelayDown) {
	must(0, down.Validate())
	x.flow(&x.server.end, &x.relay.end, &x.down, func() { x.relay.came(x, down) })
}

// pump tells the server what there is to tell, when that is due.
func (r *relay) pump() {
	x := r.stream
	if x == nil {
		return
	}
	say, next := r.roster.Take(r.w.now)
	if len(say) > 0 {
		up := &wire.RelayUp{Protocol: wire.Protocol, Agents: say}
		must(0, up.Validate())
		x.flow(&r.end, &x.server.end, &x.up, func() { x.hears(up) })
		next = r.w.now.Add(20 * time.Millisecond)
	}
	if next.IsZero() || r.pumping.After(r.w.now) && !next.Before(r.pumping) {
		return
	}
	r.pumping = next
	r.every(next.Sub(r.w.now), func() {
		if r.stream == x {
			r.pump()
		}
	})
}

// hears is what a server makes of the word of a relay.
func (x *stream) hears(up *wire.RelayUp) {
	s := x.server
	for i := range up.Agents {
		said := &up.Agents[i]
		switch {
		case said.Left != wire.Here:
			delete(x.agents, said.Number)
		case len(said.Certificate) > 0:
			a := &relayedAgent{node: string(said.Certificate)}
			x.agents[said.Number] = a
			x.take(said.Number, a, said.Report)
		default: // a word of an agent is when it is looked whether its head was signed again
			if a := x.agents[said.Number]; a != nil {
				x.show(a.node)
			}
		}
	}
	if most := 3 * len(s.w.agents); len(x.agents) > most {
		s.w.broken("T2", "%s knows %d agents of %s", s.name, len(x.agents), x.relay.name)
	}
}

// take looks whether an agent is one to be served.
func (x *stream) take(number uint64, a *relayedAgent, report *wire.Report) {
	s := x.server
	s.shown(a.node, report.Have, func(_ struct{}, err error) {
		switch {
		case x.agents[number] != a:
		case err != nil:
			delete(x.agents, number)
			e := reason.Of(err)
			x.say(&wire.RelayDown{Agents: []wire.RelayedNews{{Number: number, Problem: &wire.Problem{Code: e.Code.String(), Message: e.Error(),
				RetryAfter: uint32(e.After.Milliseconds())}}}})
		default:
			a.taken = true
			head := s.head(a.node)
			a.told = string(head)
			x.say(&wire.RelayDown{Agents: []wire.RelayedNews{{Number: number, Taken: true, Head: head}}})
		}
	})
}

// show tells the relay of the newest head of a node.
func (x *stream) show(node string) {
	if x.dead {
		return
	}
	down := &wire.RelayDown{}
	for _, number := range slices.Sorted(maps.Keys(x.agents)) {
		a := x.agents[number]
		if a.node != node || !a.taken {
			continue
		}
		if head := x.server.head(node); head != nil && string(head) != a.told {
			a.told = string(head)
			down.Agents = append(down.Agents, wire.RelayedNews{Number: number, Head: head})
		}
	}
	if len(down.Agents) > 0 {
		x.say(down)
	}
}

// came is what a relay makes of the word of its server.
func (r *relay) came(x *stream, down *wire.RelayDown) {
	if r.stream != x {
		return
	}
	x.heard = r.w.now
	r.roster.Answered()
	r.roster.Paced(down.Pause)
	r.backoff.Reset()
	if down.Trust > r.chain.Current().Number {
		if longer, err := r.chain.Extend(x.server.trust(r.chain.Current().Number)); err == nil {
			r.chain = longer
		}
	}
	for i := range down.Agents {
		news := &down.Agents[i]
		n := r.roster.Came(news)
		if n == nil {
			continue
		}
		r.w.seen.Relayed++
		for _, number := range slices.Sorted(maps.Keys(r.sessions)) {
			if s := r.sessions[number]; uidOf(s.agent.node) == n.UID {
				r.word(number, s, n)
			}
		}
	}
	if len(r.sessions) < r.roster.Agents() {
		r.w.broken("T2", "%s has %d watches, and its roster %d", r.name, len(r.sessions), r.roster.Agents())
	}
}

// word passes on to an agent what the server has said of its node.
func (r *relay) word(number uint64, s *session, n *relaycore.Node) {
	if answer := r.waiting[number]; answer != nil && (n.Taken || n.Problem != nil) {
		delete(r.waiting, number)
		if n.Problem != nil {
			r.close(number)
			answer(struct{}{}, problemOf(n.Problem))
			return
		}
		answer(struct{}{}, nil)
	} else if n.Problem != nil {
		r.w.resets(&r.end, s)
		r.close(number)
		return
	}
	r.show(s, n.Head)
}

func problemOf(p *wire.Problem) error {
	return &reason.Error{Code: reason.ServerUnreachable, Doing: p.Message, After: time.Duration(p.RetryAfter) * time.Millisecond}
}

func (r *relay) close(number uint64) {
	delete(r.sessions, number)
	delete(r.waiting, number)
	r.roster.Closed(number, false)
}

// show sends a head to an agent.
func (r *relay) show(s *session, head []byte) {
	if r.evil != nil {
		head = r.evil.head(s.agent.node, head)
	}
	f := wire.Frame{Head: head}
	if number := r.chain.Current().Number; number > s.trust {
		s.trust, f.Trust = number, number
	}
	if f.Head != nil || f.Trust != 0 {
		r.w.send(&r.end, &s.agent.end, func() { s.agent.frame(s.id, f) })
	}
}

// watch is part of source.
func (r *relay) watch(s *session, report wire.Report, answer answers[struct{}]) {
	if abandoned, _ := r.roster.Abandoned(r.w.now); abandoned {
		answer(struct{}{}, errRefused)
		return
	}
	for _, number := range slices.Sorted(maps.Keys(r.sessions)) {
		if r.sessions[number].agent == s.agent {
			r.close(number)
		}
	}
	r.number++
	number := r.number
	r.sessions[number], r.waiting[number] = s, answer
	r.roster.Opened(number, s.agent.node, uidOf(s.agent.node), []byte(s.agent.node))
	r.roster.Heard(number, &report)
	r.pump()
	r.every(takenMax, func() {
		if r.waiting[number] != nil {
			r.close(number)
			answer(struct{}{}, errSilent)
		}
	})
	r.beat(number, s)
}

func (r *relay) beat(number uint64, s *session) {
	r.every(heartbeatMin+r.w.within(heartbeatMax-heartbeatMin), func() {
		n := r.roster.Node(uidOf(s.agent.node))
		abandoned, _ := r.roster.Abandoned(r.w.now)
		switch {
		case r.sessions[number] != s:
			return
		case s.agent.run != s.run || !s.agent.up:
			r.close(number)
			r.pump()
			return
		case abandoned && r.evil == nil:
			r.w.resets(&r.end, s)
			r.close(number)
			return
		}
		r.roster.Asked(number)
		if n != nil {
			r.show(s, n.Head)
		}
		r.beat(number, s)
	})
}

// report is part of source.
func (r *relay) report(s *session, report wire.Report) {
	for _, number := range slices.Sorted(maps.Keys(r.sessions)) {
		if r.sessions[number] == s {
			r.roster.Heard(number, &report)
			r.pump()
		}
	}
}

// trust is part of source.
func (r *relay) trust(after uint64) []trust.Signed {
	if r.evil != nil {
		return nil // it keeps them back
	}
	return r.chain.After(after)
}

// upstream is whom content is asked of.
func (r *relay) upstream() *server {
	if r.stream != nil {
		return r.stream.server
	}
	return r.w.servers[r.with.Current()]
}

// allowed verifies the head that a host shows. What the server has said itself needs no other look.
func (r *relay) allowed(node string, head []byte) error {
	if n := r.roster.Node(uidOf(node)); n != nil && bytes.Equal(n.Head, head) {
		return nil
	}
	signed, _, err := catalog.DecodeHead(head)
	if err == nil {
		_, err = signed.Verify(r.chain.KeysOf(trust.RoleHeads, r.w.now), nodeOf(node))
	}
	return err
}

// sync is part of source.
func (r *relay) sync(node string, q wire.SyncRequest, answer answers[[]wire.SyncPart]) {
	if err := r.allowed(node, q.Head); err != nil {
		answer(nil, err)
		return
	}
	if evil := r.evil; evil != nil {
		honest := answer
		answer = func(parts []wire.SyncPart, err error) { honest(evil.parts(q, parts), err) }
	}
	name := relaycore.SyncName(q.Layer, q.Base, q.Target)
	if r.shelf.Want(name) {
		r.w.seen.Kept++
		answer(cut(r.answers[name], q.Cursor), nil)
		return
	}
	cursor := q.Cursor
	q.Cursor = catalog.Digest{}
	up := r.upstream()
	call(r.w, &r.end, &up.end, func(a answers[[]wire.SyncPart]) { up.sync(node, q, a) }, func(parts []wire.SyncPart, err error) {
		if err == nil && parts[0].Kind != wire.SyncUnknownBase {
			r.keep(name, parts)
		}
		answer(cut(parts, cursor), err)
	})
}

// keep keeps an answer, for the next who asks the same.
func (r *relay) keep(name string, parts []wire.SyncPart) {
	size := int64(0)
	for i := range parts {
		for j := range parts[i].Changes {
			size += int64(len(parts[i].Changes[j].Body)) + sha256.Size
		}
	}
	r.answers[name] = parts
	r.letGo(r.shelf.Put(name, size))
}

func (r *relay) letGo(names []string) {
	for _, name := range names {
		delete(r.answers, name)
		delete(r.parts, name)
	}
}

// cut leaves out what stands before a key.
func cut(parts []wire.SyncPart, from catalog.Digest) []wire.SyncPart {
	if from == (catalog.Digest{}) {
		return parts
	}
	var rest []wire.SyncPart
	for _, p := range parts {
		at := 0
		for at < len(p.Changes) && slices.Compare(p.Changes[at].Key[:], from[:]) < 0 {
			at++
		}
		if p.Changes = p.Changes[at:]; len(p.Changes) > 0 || p.Last {
			rest = append(rest, p)
		}
	}
	return rest
}

// nodes is part of source.
func (r *relay) nodes(node string, q wire.NodesRequest, answer answers[wire.NodesReply]) {
	if err := r.allowed(node, q.Head); err != nil {
		answer(wire.NodesReply{}, err)
		return
	}
	if evil := r.evil; evil != nil {
		honest := answer
		answer = func(reply wire.NodesReply, err error) { honest(evil.items(q, reply), err) }
	}
	reply := wire.NodesReply{Items: make([][]byte, len(q.Hashes))}
	names, missing := make([]string, len(q.Hashes)), q
	missing.Hashes = nil
	for i, h := range q.Hashes {
		if names[i] = relaycore.PartName(q.Layer, uidOf(node), h); q.Layer == wire.CatalogLayer {
			names[i] = relaycore.ListName(h)
		}
		if r.shelf.Want(names[i]) {
			reply.Items[i] = r.parts[names[i]]
			r.w.seen.Kept++
		} else {
			missing.Hashes = append(missing.Hashes, h)
		}
	}
	if len(missing.Hashes) == 0 {
		answer(reply, nil)
		return
	}
	up := r.upstream()
	call(r.w, &r.end, &up.end, func(a answers[wire.NodesReply]) { up.nodes(node, missing, a) }, func(came wire.NodesReply, err error) {
		for i, h := range q.Hashes {
			at := slices.Index(missing.Hashes, h)
			if reply.Items[i] != nil || at < 0 || at >= len(came.Items) || len(came.Items[at]) == 0 {
				continue
			}
			item := came.Items[at]
			if good := sha256.Sum256(item) == h || q.Layer == wire.CatalogLayer && catalog.ListRoot(item) == h; !good {
				continue
			}
			reply.Items[i] = item
			r.parts[names[i]] = item
			r.letGo(r.shelf.Put(names[i], int64(len(item))))
		}
		answer(reply, err)
	})
}

// sortedKeys are the keys of a map, in the one order that there is.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// sortedOf are the keys of a map by what is on a host.
func sortedOf[V any](m map[converge.Key]V) []converge.Key { return slices.Sorted(maps.Keys(m)) }
