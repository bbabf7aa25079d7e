package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// relaySilence is how long a relay may say nothing: it says at least once a minute that it is there. TCP keepalive finds a lost one sooner.
	relaySilence = 150 * time.Second
	// relayPause is the shortest between two messages of a relay with reports: what its agents say meanwhile is told together.
	relayPause = time.Second
)

// session is the stream of one relay. Each of its agents is a watch like any other to Heads, Presence and the desk, and has a goroutine of
// its own, as the watch of a host has. What there is for them goes out as one: between two messages nothing is kept of an agent but what is
// newest.
//
//	reader     frames of the relay -> inbox of each agent
//	attendant  of one agent: inbox -> Presence; head, questions and answers to reports -> news
//	writer     news of all -> frames to the relay; heartbeats; the end
type session struct {
	server *Server
	q      *request
	nudge  chan struct{} // holds one: there is news
	all    sync.WaitGroup

	mu     sync.Mutex          // guards what follows, and what the agents say that it does
	agents map[uint64]*relayed // by the relay's number
	news   map[*relayed]bool   // those that have some
}

// relayed is one agent of a relay.
type relayed struct {
	number      uint64 // the relay's
	certificate []byte
	vouched     *wire.Vouched // in the place of it, by a server
	seen        chan struct{} // holds one: there is something in the inbox
	leave       context.CancelFunc

	// guarded by session.mu
	who    Identity     // once it was identified
	shown  *shown       // the same
	report *wire.Report // not handed over yet
	asked  bool         // the same
	left   wire.Leaving
	out    wire.RelayedNews // not sent yet
}

// relay serves the stream of a relay until it ends, in whatever way: what that says of its agents is that nobody hears them at the moment.
func (s *Server) relay(q *request) error {
	first, err := q.relayUp()
	if err != nil {
		return err
	}
	if err := speaks(q, first.Protocol); err != nil {
		return err
	}
	if err := s.opts.Serving(); err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	if http.NewResponseController(q.w).Flush() != nil {
		return nil
	}
	s.metrics.relays.Inc()
	defer s.metrics.relays.Dec()
	s.opts.Log.Info("the stream of a relay or server has begun", "of", q.who.words(), "from", q.conn.from)
	x := &session{server: s, q: q, nudge: make(chan struct{}, 1), agents: map[uint64]*relayed{}, news: map[*relayed]bool{}}
	ctx, cancel := context.WithCancel(q.Context())
	defer x.all.Wait()
	defer cancel()
	x.all.Go(func() {
		defer cancel()
		if err := x.read(ctx, first); ctx.Err() == nil {
			s.opts.Log.Info("the stream of a relay or server has ended", "of", q.who.words(), "err", err)
		}
	})
	x.write(ctx)
	// What still reads is not waited for: the body of the request ends with the call.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Now())
	return nil
}

// relayUp reads the next message of a relay.
func (q *request) relayUp() (wire.RelayUp, error) {
	var m wire.RelayUp
	if err := http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(relaySilence)); err != nil {
		return m, err
	}
	if err := wire.ReadFrame(q.Body, &m); err != nil {
		return m, malformed("read "+q.URL.Path, err)
	}
	if err := m.Validate(); err != nil {
		return m, malformed("read "+q.URL.Path, err)
	}
	return m, nil
}

// read takes in what the relay says, at the pace that it may have, until the error that ends it.
func (x *session) read(ctx context.Context, m wire.RelayUp) error {
	for {
		for i := range m.Agents {
			if err := x.take(ctx, &m.Agents[i]); err != nil {
				return err
			}
		}
		if err := x.pace(ctx); err != nil {
			return err
		}
		var err error
		if m, err = x.q.relayUp(); err != nil {
			return err
		}
	}
}

// pace waits until the relay may say more: what it has said meanwhile waits in the connection.
func (x *session) pace(ctx context.Context) error {
	for {
		ok, wait := x.server.allowances.take(x.q.who.caller(), relaying, time.Now())
		if ok {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// take puts what the relay says of one agent into its inbox. Of an agent that is not here any more nothing is taken: that was told, or is
// on its way to the relay.
func (x *session) take(ctx context.Context, m *wire.RelayedAgent) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.agents[m.Number]
	if m.Who != nil && x.q.who.Server == "" {
		return malformed("read "+wire.PathRelay, errors.New("a relay has no word for a host but its certificate"))
	}
	if a == nil {
		if !m.First() {
			return nil
		}
		a = &relayed{number: m.Number, certificate: m.Certificate, vouched: m.Who, seen: make(chan struct{}, 1), out: wire.RelayedNews{Number: m.Number}}
		if x.q.who.Server == "" && len(x.agents) >= x.server.opts.Limits.RelayAgents {
			x.tellLocked(a, func(n *wire.RelayedNews) {
				n.Problem = problem(&reason.Error{Code: reason.TransferBusy, Doing: "serve a host through relay " + x.q.who.Name, Cause: fmt.Errorf("%d are connected through it", len(x.agents)), After: time.Minute})
			})
			return nil
		}
		var attended context.Context
		attended, a.leave = context.WithCancel(ctx)
		x.agents[m.Number] = a
		x.all.Go(func() { x.attend(attended, a) })
	} else if m.First() {
		return malformed("read "+wire.PathRelay, fmt.Errorf("agent %d is begun twice", m.Number))
	}
	a.takeLocked(m)
	return nil
}

// takeLocked keeps the newest of what is said.
func (a *relayed) takeLocked(m *wire.RelayedAgent) {
	if m.Report != nil {
		if a.report != nil && m.Report.Host == nil && m.Report.Session == a.report.Session {
			m.Report.Host = a.report.Host // it is told once, and has not been handed over
		}
		a.report, a.asked = m.Report, false
	}
	a.asked = a.asked || m.Asked
	if m.Left != wire.Here {
		a.left = m.Left
		a.leave()
	}
	select {
	case a.seen <- struct{}{}:
	default:
	}
}

// attend is what the watch of a host is: it lasts until the host leaves its relay, or the server does not serve it any more.
func (x *session) attend(ctx context.Context, a *relayed) {
	defer x.forget(a)
	err := x.serve(ctx, a)
	if err == nil || ctx.Err() != nil {
		return
	}
	e := reason.Of(err)
	x.server.metrics.refused.WithLabelValues(wire.PathRelay, e.Code.String()).Inc()
	x.tell(a, func(n *wire.RelayedNews) { n.Problem = problem(e) })
}

// serve serves one agent. The error is why it is not, or not any more.
func (x *session) serve(ctx context.Context, a *relayed) error {
	s := x.server
	who, seen, err := x.identify(a)
	if err != nil {
		x.audit(who, err)
		return err
	}
	number := s.numbers.Add(1)
	s.metrics.watches.Inc()
	s.opts.Presence.Opened(who, number)
	defer func() {
		s.opts.Presence.Closed(who, number, x.lost(a))
		s.metrics.watches.Dec()
	}()
	x.mu.Lock()
	a.who, a.shown = who, seen
	x.mu.Unlock()
	t := attendant{x: x, a: a, who: who, number: number}
	have := t.hear() // the first word about an agent has a report
	if err := s.opts.Heads.Shown(ctx, who, have.Have); err != nil && who.Server == "" {
		return err // a server has looked into that itself, and knows whether to serve the host
	}
	t.watch = s.desk.open(who, number)
	defer s.desk.close(t.watch)
	x.tell(a, func(n *wire.RelayedNews) { n.Taken = true })
	return t.run(ctx)
}

// identify says who an agent is.
func (x *session) identify(a *relayed) (Identity, *shown, error) {
	if v := a.vouched; v != nil {
		return Identity{Name: v.Name, UID: v.UID, Key: v.Key, Through: v.Through, Server: x.q.who.Server}, nil, nil
	}
	return x.server.relayed(x.q.who, a.certificate, certificate, time.Now())
}

// audit writes down whom a relay has brought that is not let in.
func (x *session) audit(who Identity, err error) {
	s, e := x.server, reason.Of(err)
	if status := e.Entry().HTTP; forAudit(e.Code, status) && s.mayAudit(x.q.conn.from, time.Now()) {
		if who.Name == "" {
			who = x.q.who
		}
		s.opts.Audit.Refused(Refusal{Call: wire.PathRelay, From: x.q.conn.from, Who: who, Code: e.Code, Status: status, Reason: wire.Text(e.Error())})
	}
}

// attendant is what one agent was told, by its own goroutine.
type attendant struct {
	x      *session
	a      *relayed
	who    Identity
	number uint64
	watch  *watch
	head   []byte            // the last that was told
	reply  wire.StatusReply  // the same
	left   map[string][]byte // what the host keeps for others that are away: heads, by the UIDs of their nodes
}

// run keeps an agent up to date.
func (t *attendant) run(ctx context.Context) error {
	s := t.x.server
	beat := time.NewTimer(s.together(s.opts.Times.Heartbeat.draw()))
	defer beat.Stop()
	for {
		head, changed, err := s.opts.Heads.Head(t.who)
		if err != nil {
			return cmp.Or(s.may(t.who, t.a.shown, time.Now()), err)
		}
		if t.who.Server != "" {
			head = nil // its server signs the same
		}
		questions := s.desk.take(t.watch)
		if len(head) > 0 && !bytes.Equal(head, t.head) || len(questions) > 0 {
			t.head = head
			t.x.tell(t.a, func(n *wire.RelayedNews) {
				n.Head = head
				// As many as may be open fit; of those that nobody waits for any more the oldest go first.
				n.Questions = append(n.Questions, questions...)
				n.Questions = n.Questions[max(0, len(n.Questions)-wire.QuestionsMax):]
			})
		}
		select {
		case <-changed:
		case <-t.watch.asked:
		case <-t.a.seen:
			t.hear()
		case <-beat.C:
			t.deposit(ctx)
			beat.Reset(s.together(s.opts.Times.Heartbeat.draw()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deposit leaves with the host what is signed for others that are away, as that of a watch is, and not before what was left there last is on its way.
func (t *attendant) deposit(ctx context.Context) {
	s, x := t.x.server, t.x
	x.mu.Lock()
	waits := len(t.a.out.Deposits) > 0
	x.mu.Unlock()
	if waits || t.who.Server != "" { // its server leaves it by itself
		return
	}
	var fresh []wire.Deposit
	if fresh, t.left = s.deposits(ctx, t.who, t.left, wire.RelayedDepositsMax); len(fresh) == 0 {
		return
	}
	x.tell(t.a, func(n *wire.RelayedNews) { n.Deposits = fresh })
	s.metrics.deposits.Add(float64(len(fresh)))
}

// may is nil as long as a host is a node and its certificate is valid, as far as that can be found out.
func (s *Server) may(who Identity, seen *shown, now time.Time) error {
	if seen == nil {
		return nil // that is for the server that vouches for it
	}
	if err := timely(who, seen, certificate, now); err != nil {
		return err
	}
	if err := s.opts.Members.Remains(who); err != nil && reason.Of(err).Entry().HTTP < http.StatusInternalServerError {
		return err
	}
	return nil
}

// sweep ends agents whose node is gone, or whose certificate has expired.
func (x *session) sweep(now time.Time) {
	x.mu.Lock()
	all := slices.Collect(maps.Values(x.agents))
	x.mu.Unlock()
	for _, a := range all {
		x.mu.Lock()
		who, seen := a.who, a.shown
		x.mu.Unlock()
		if seen == nil {
			continue
		}
		if err := x.server.may(who, seen, now); err != nil {
			x.tell(a, func(n *wire.RelayedNews) { n.Problem = problem(reason.Of(err)) })
			a.leave()
		}
	}
}

// hear hands over what is in the inbox, and returns the report, if there is one.
func (t *attendant) hear() *wire.Report {
	x, a, s := t.x, t.a, t.x.server
	x.mu.Lock()
	report, asked := a.report, a.asked
	a.report, a.asked = nil, false
	x.mu.Unlock()
	if report != nil {
		reply := s.opts.Presence.Heard(t.who, t.number, report)
		if reply != t.reply {
			t.reply = reply
			x.tell(a, func(n *wire.RelayedNews) { n.Status = &reply })
		}
	}
	if asked {
		s.opts.Presence.Asked(t.who, t.number)
	}
	return report
}

// lost says whether the relay has found the host lost.
func (x *session) lost(a *relayed) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return a.left == wire.Lost
}

// forget ends what is kept of an agent, but for news that are still to be sent.
func (x *session) forget(a *relayed) {
	a.leave()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.agents, a.number)
}

// tell notes news for an agent.
func (x *session) tell(a *relayed, change func(*wire.RelayedNews)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tellLocked(a, change)
}

func (x *session) tellLocked(a *relayed, change func(*wire.RelayedNews)) {
	change(&a.out)
	x.news[a] = true
	select {
	case x.nudge <- struct{}{}:
	default:
	}
}

// batch takes news of as many agents as fit into a message, with their deposits; more says that there are others.
func (x *session) batch() (batch []wire.RelayedNews, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	deposits := 0 // bytes
	// By number, so that no agent waits for ever behind others.
	for _, a := range slices.SortedFunc(maps.Keys(x.news), func(a, b *relayed) int { return cmp.Compare(a.number, b.number) }) {
		for i := range a.out.Deposits {
			deposits += len(a.out.Deposits[i].Head) + len(a.out.Deposits[i].List)
		}
		if len(batch) == wire.RelayedMax || deposits > wire.RelayedDepositsBytesMax {
			return batch, true
		}
		batch = append(batch, a.out)
		a.out = wire.RelayedNews{Number: a.number}
		delete(x.news, a)
	}
	return batch, false
}

// write sends news until the stream is to end.
func (x *session) write(ctx context.Context) {
	s, t := x.server, x.server.opts.Times
	beat, end := time.NewTimer(t.Heartbeat.draw()), time.NewTimer(t.Watch.draw())
	sweep := time.NewTicker(t.Sweep)
	defer beat.Stop()
	defer end.Stop()
	defer sweep.Stop()
	pause := uint32(relayPause / time.Millisecond)
	said := wire.RelayDown{Pause: pause, Trust: x.trust(0), Servers: x.servers()}
	trusted, servers := said.Trust, said.Servers
	for {
		var more bool
		if said.Agents, more = x.batch(); len(said.Agents) > 0 || said.Pause > 0 || said.Trust > 0 {
			if !x.send(said) {
				return
			}
		}
		said = wire.RelayDown{}
		if more {
			continue
		}
		select {
		case <-x.nudge:
		case <-sweep.C:
			x.sweep(time.Now())
		case <-beat.C:
			if s.opts.Serving() != nil {
				return
			}
			beat.Reset(t.Heartbeat.draw())
			if all := x.servers(); !slices.Equal(all, servers) {
				said.Servers, servers = all, all
			}
			if highest := x.trust(trusted); highest > trusted {
				said.Trust, trusted = highest, highest
			}
			if !x.send(said) {
				return
			}
			said = wire.RelayDown{}
		case <-end.C:
			x.send(x.again())
			return
		case <-s.stopping:
			x.send(x.again())
			return
		case <-ctx.Done():
			return
		}
	}
}

// trust is the highest number of the trust documents that is known, at least the one that was told.
func (x *session) trust(told uint64) uint64 {
	_, highest, err := x.server.opts.Members.Trust(told)
	if err != nil {
		return told
	}
	return max(told, highest)
}

// servers are the addresses of all servers, where there are others; a server knows them by itself.
func (x *session) servers() []string {
	all := x.server.opts.Servers()
	if len(all) < 2 || x.q.who.isServer() {
		return nil
	}
	return all
}

func (x *session) again() wire.RelayDown { return wire.RelayDown{Again: x.server.again().Again} }

func (x *session) send(m wire.RelayDown) bool {
	var b bytes.Buffer
	err := wire.WriteFrame(&b, m)
	if err != nil {
		x.server.opts.Log.Error("write to a relay", "relay", x.q.who.Name, "err", err)
		return false
	}
	err = x.server.send(x.q, b.Bytes())
	if errors.Is(err, errSlow) {
		x.server.opts.Log.Warn("a relay does not read", "relay", x.q.who.Name)
	}
	return err == nil
}
