package sim

import (
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// watchSilence is how long a watch may be silent: two and a half of the longest heartbeat.
	watchSilence = heartbeatMax * 5 / 2
	// watchLong is how long a watch must have been open for its end not to count as another failure.
	watchLong = time.Minute
	// frozenAfter is how long one is listened to whose heads have expired, when there is another one.
	frozenAfter = 2 * time.Minute
	// reportEvery is the pause between two reports.
	reportEvery = 250 * time.Millisecond
	// auditEvery is how often all that is held is looked through.
	auditEvery = 4 * time.Minute
	// backoffLeast is the shortest pause after something that failed.
	backoffLeast = 500 * time.Millisecond
)

// agent is the agent of a host, with its disk: the shells of transfer/client and agent around the machine, the graph and the guards.
type agent struct {
	end
	w      *world
	node   string
	from   []source
	disk   *disk
	clock  time.Duration // by how much the clock of the host is ahead
	shown  time.Time     // of that clock, when the run was fed last: it does not go back within a run
	chain  *trust.Chain  // on the disk, too
	hand   []catalog.Digest
	host   host
	proven proof

	running
}

// running is what an agent has in one run.
type running struct {
	held    *held
	machine *core.Machine
	wake    time.Time // when Ticked comes
	request uint64    // that is open
	with    *core.Sticky
	backoff core.Backoff
	watch   watching
	asking  bool // for trust documents
	telling bool // a report is due
	reports uint64
}

// watching is the watch of an agent.
type watching struct {
	id      uint64
	session *session
	source  source
	open    bool
	began   time.Time
	heard   time.Time
}

func newAgent(w *world, name string, number int) *agent {
	a := &agent{end: end{name: name}, w: w, node: name, disk: newDisk(w), chain: w.by.chain}
	a.host = newHost(a)
	a.proven = newProof()
	for i := range w.servers {
		a.from = append(a.from, w.servers[(number+i)%len(w.servers)])
	}
	relays := []source{w.relays[number%2], w.relays[(number+1)%2]}
	switch number % 5 {
	case 2, 3:
		a.from = relays
	case 4:
		a.from = append(relays[:1:1], a.from[0])
	}
	return a
}

// time is what the clock of the host shows. A machine is told a time that does not go back within a run.
func (a *agent) time() time.Time {
	if at := a.w.now.Add(a.clock); at.After(a.shown) {
		a.shown = at
	}
	return a.shown
}

// boot starts the agent.
func (a *agent) boot() {
	if a.up {
		return
	}
	a.run, a.up = a.run+1, true
	a.shown = time.Time{}
	a.proven.begins(a.w.now)
	a.running = running{with: core.NewSticky(len(a.from)), watch: watching{id: a.watch.id}, held: openHeld(a.disk)}
	a.w.say("%s starts, run %d, with version %d", a.name, a.run, a.held.record.Mark.Version)
	a.checkMark()
	a.guarded(func() {
		a.host.awake()
		a.machine = core.New(core.Options{
			Node: nodeOf(a.node), Chain: a.chain, Kept: a.held.kept(), Held: a.held, Sources: len(a.from), Random: a.w.random,
		})
		a.step(core.Began{})
		a.host.begin()
	})
	a.every(a.w.within(time.Second), a.open)
	a.every(a.w.within(auditEvery), a.audit)
}

// crash ends the run; the next one begins in a moment.
func (a *agent) crash(power bool) {
	if !a.up {
		return
	}
	a.w.seen.Crashes++
	a.proven.dies(&a.host)
	a.up, a.machine = false, nil
	a.disk.fuse = 0
	a.w.say("%s dies, power %t", a.name, power)
	a.host.ends()
	if power {
		a.disk.cutPower()
		a.proven.deaths = nil // they are noted for the next process, and not made durable
	}
	a.w.after(time.Second+a.w.within(10*time.Second), a.boot)
}

// guarded does something in which the agent may be killed.
func (a *agent) guarded(do func()) {
	defer func() {
		if p := recover(); p != nil {
			death, killed := p.(dies)
			if !killed {
				panic(p)
			}
			a.crash(death.power)
		}
	}()
	do()
}

// every does something later in this run.
func (a *agent) every(pause time.Duration, do func()) {
	run := a.run
	a.w.after(pause, func() {
		if a.up && a.run == run {
			a.guarded(do)
		}
	})
}

// feed feeds the machine from outside.
func (a *agent) feed(e core.Event) {
	if a.up {
		a.guarded(func() { a.step(e) })
	}
}

// step feeds the machine with an event, and with what becomes of its effects.
func (a *agent) step(e core.Event) {
	for e != nil {
		e = a.perform(a.machine.Step(a.time(), e))
	}
	a.checkMark()
	a.checkHost()
	a.arm()
}

// arm has the machine woken when it wants to be.
func (a *agent) arm() {
	at, due := a.machine.Wake()
	if !due || at.Equal(a.wake) {
		return
	}
	a.wake = at
	a.every(max(at.Sub(a.time()), time.Millisecond), func() {
		if !a.wake.Equal(at) {
			return
		}
		a.wake = time.Time{}
		requests := a.proven.requests
		a.step(core.Ticked{})
		if at, due := a.machine.Wake(); due && !at.After(a.time()) && a.proven.requests == requests {
			a.w.broken("T3", "%s wants to be woken at %s, and it is %s", a.name, at, a.time())
		}
	})
}

// perform does effects, and returns the answer to the last one; nil when there is none, or it comes later.
func (a *agent) perform(effects []core.Effect) core.Event {
	for i, e := range effects {
		answer, err := a.do(e)
		if err != nil {
			return core.Stored{Err: err}
		}
		if answer != nil {
			if i < len(effects)-1 {
				a.w.broken("core", "effect %T of %s is answered and is not the last: %T follows", e, a.name, effects[i+1])
			}
			return answer
		}
	}
	return nil
}

// do does one effect.
func (a *agent) do(e core.Effect) (core.Event, error) {
	switch e := e.(type) {
	case core.Accept:
		err := a.held.accept(e.Mark, e.Signed)
		if err == nil {
			a.w.say("%s accepts version %d of epoch %d", a.name, e.Mark.Version, e.Mark.Epoch)
			a.checkMark()
			a.host.heard()
		}
		return core.Stored{}, err
	case core.AcceptStatements:
		return core.Stored{}, a.held.setStatements(e.Statements)
	case core.PutList:
		return core.Stored{}, a.held.putList(e.Encoded)
	case core.Begin:
		staged, err := a.held.begin(e.Fetch)
		return core.Stored{Staged: staged}, err
	case core.Commit:
		return core.Stored{}, a.held.commit(e.Target)
	case core.Append:
		err := a.held.append(e.Changes)
		a.checkStage()
		return nil, err
	case core.Settle:
		return core.Stored{}, nil
	case core.Drop:
		a.held.drop()
		return nil, nil
	case core.Activate:
		return a.activate(e.State), nil
	}
	a.tell(e)
	return nil, nil
}

// tell does an effect that has no answer, and no error that changes anything.
func (a *agent) tell(e core.Effect) {
	switch e := e.(type) {
	case core.Prolong:
		_ = a.held.accept(e.Mark, e.Signed) // it comes again
		a.host.heard()
	case core.Remember:
		a.w.seen.Refused++
		a.checkRefusal(&e.Verdict)
		a.w.say("%s refuses version %d: %s %s", a.name, e.Verdict.Version, e.Verdict.Type, e.Verdict.Code)
		_ = a.held.remember(e.Verdict) // it is found out again
		a.host.heard()
	case core.RememberStatements:
		_ = a.held.setStatements(e.Statements) // it is found out again
	case core.Count:
		a.held.record.Refused = e.Refused
	case core.Sync:
		a.sync(e)
	case core.Nodes:
		a.ask(e)
	case core.Cancel:
		a.request = 0
	case core.AskTrust:
		a.askTrust()
	case core.Disbelieve:
		if e.Err == nil {
			a.w.broken("core", "%s: %s, and not why", a.name, e.Doubt)
		}
		a.w.seen.Doubts++
		a.w.say("%s does not believe %s: %v", a.name, e.Doubt, e.Err)
	case core.Alarm:
		a.w.seen.Alarms++
		if len(e.Evidence) != 2 {
			a.w.broken("core", "%s alarms with %d pieces of evidence", a.name, len(e.Evidence))
		}
	case core.Tell:
		a.w.seen.Tells++
		a.tells()
	default:
		a.w.broken("core", "nobody does %T", e)
	}
}

// asks checks what must hold of a request, and notes it as the one that is open.
func (a *agent) asks(id uint64, source int, head []byte, what string) {
	version := a.checkRequest(head)
	a.request = id
	a.w.say("%s asks %s for %s of version %d", a.name, a.from[source].machine().name, what, version)
}

// answered tells whether a request is still open, and ends it if that was its end.
func (a *agent) answered(id uint64, ends bool) bool {
	open := a.request == id
	if open && ends {
		a.request = 0
	}
	return open
}

func (a *agent) failed(id uint64, err error) {
	if !a.answered(id, true) {
		return
	}
	a.w.seen.Failed++
	a.proven.failedAt = a.time()
	a.w.say("%s fails to fetch: %v", a.name, err)
	e := reason.Of(err)
	a.feed(core.Failed{ID: id, Err: err, After: e.After})
}

// sync asks for a difference. What a person has brought with a statement is at hand.
func (a *agent) sync(e core.Sync) {
	a.asks(e.ID, e.Source, e.Request.Head, "layer "+e.Request.Layer)
	if l := a.atHand(e.Request.Target); l != nil {
		a.every(time.Millisecond, func() { a.parts(e.ID, partsOf(wire.SyncSnapshot, catalog.Trie{}, l, e.Request.Cursor)) })
		return
	}
	from := a.from[e.Source]
	call(a.w, &a.end, from.machine(), func(answer answers[[]wire.SyncPart]) { from.sync(a.node, e.Request, answer) }, func(parts []wire.SyncPart, err error) {
		if err != nil {
			a.failed(e.ID, err)
			return
		}
		a.parts(e.ID, parts)
	})
}

func (a *agent) atHand(root catalog.Digest) *layer {
	for _, r := range a.hand {
		if r == root {
			return a.w.truth.layers[root]
		}
	}
	return nil
}

var errBrokenOff = errors.New("the answer has ended before its last part")

// parts brings the parts of an answer in, one after the other. A line may break in the middle, or bring something twice.
func (a *agent) parts(id uint64, parts []wire.SyncPart) {
	cut := len(parts)
	if a.w.chance(a.w.faults) {
		cut = a.w.random.IntN(len(parts) + 1)
	}
	var next func(i int)
	next = func(i int) {
		switch {
		case !a.answered(id, false):
		case i == cut:
			a.failed(id, &reason.Error{Code: reason.ServerUnreachable, Doing: "fetch", Cause: errBrokenOff})
		default:
			a.answered(id, parts[i].Last || parts[i].Kind == wire.SyncUnknownBase)
			e := core.PartCame{ID: id, Part: parts[i]}
			a.feed(e)
			if a.w.chance(a.w.faults / 4) {
				a.every(a.w.within(time.Second), func() { a.step(e) })
			}
			a.every(a.w.within(20*time.Millisecond), func() { next(i + 1) })
		}
	}
	next(0)
}

// ask asks for what has certain hashes.
func (a *agent) ask(e core.Nodes) {
	a.asks(e.ID, e.Source, e.Request.Head, fmt.Sprintf("%d parts of %s", len(e.Request.Hashes), e.Request.Layer))
	from := a.from[e.Source]
	call(a.w, &a.end, from.machine(), func(answer answers[wire.NodesReply]) { from.nodes(a.node, e.Request, answer) }, func(reply wire.NodesReply, err error) {
		switch {
		case err != nil:
			a.failed(e.ID, err)
		case a.answered(e.ID, true):
			a.feed(core.NodesCame{ID: e.ID, Reply: reply})
		}
	})
}

// askTrust asks whom the watch is with for later trust documents.
func (a *agent) askTrust() {
	if a.asking {
		return
	}
	a.asking = true
	from := a.from[a.with.Current()]
	call(a.w, &a.end, from.machine(), func(answer answers[[]trust.Signed]) { answer(from.trust(a.chain.Current().Number), nil) }, func(later []trust.Signed, err error) {
		a.asking = false
		if err != nil {
			return // it is asked for again, for as long as somebody tells of it
		}
		if longer, err := a.w.truth.extend(a.chain, later); err == nil && len(later) > 0 {
			a.chain = longer
			a.w.say("%s has trust document %d", a.name, longer.Current().Number)
		}
		a.feed(core.Trusted{Chain: a.chain})
	})
}

// open opens a watch.
func (a *agent) open() {
	id := a.watch.id + 1
	from := a.from[a.with.Current()]
	s := &session{agent: a, run: a.run, id: id}
	a.watch = watching{id: id, session: s, source: from, began: a.w.now, heard: a.w.now}
	a.proven.opens(a)
	report := a.says()
	call(a.w, &a.end, from.machine(), func(answer answers[struct{}]) { from.watch(s, report, answer) }, func(_ struct{}, err error) {
		switch {
		case a.watch.id != id:
		case err != nil:
			a.lost(id, err)
		default:
			a.watch.open, a.watch.heard = true, a.w.now
		}
	})
	a.listen(id)
}

// listen gives a watch up that is silent.
func (a *agent) listen(id uint64) {
	a.every(a.watch.heard.Add(watchSilence).Sub(a.w.now), func() {
		switch {
		case a.watch.id != id:
		case a.w.now.Sub(a.watch.heard) >= watchSilence:
			a.lost(id, errSilent)
		default:
			a.listen(id)
		}
	})
}

// lost ends a watch, and has another one opened after a while.
func (a *agent) lost(id uint64, err error) {
	if a.watch.id != id {
		return
	}
	a.w.say("%s loses its watch: %v", a.name, err)
	if a.w.now.Sub(a.watch.began) >= watchLong {
		a.backoff.Reset()
	}
	a.watch.id++
	a.watch.open = false
	a.with.Failed(a.w.now)
	a.every(max(a.backoff.Next(a.w.random), min(reason.Of(err).After, time.Minute)), a.open)
}

// frame takes in what a watch says.
func (a *agent) frame(id uint64, f wire.Frame) {
	if a.watch.id != id {
		return
	}
	a.watch.heard = a.w.now
	if f.Trust > a.chain.Current().Number {
		a.askTrust()
	}
	if f.Head == nil {
		return
	}
	if len(a.from) > 1 && a.machine.Status().Stale && a.w.now.Sub(a.watch.began) >= frozenAfter {
		a.lost(id, &reason.Error{Code: reason.ServerUnreachable, Doing: "listen to a head that has expired"})
		return
	}
	a.feed(core.HeadCame{Signed: f.Head})
	a.tells()
}

// says is the report of this moment.
func (a *agent) says() wire.Report {
	a.reports++
	return wire.Report{
		Session: wire.Session{ID: fmt.Sprint(a.run), Start: uint64(a.run)}, Number: a.reports,
		Have: a.machine.Status().Have, Enforced: a.held.record.Life.Enforced,
	}
}

// tells sends a report in a moment.
func (a *agent) tells() {
	if a.telling {
		return
	}
	a.telling = true
	a.every(reportEvery, func() {
		a.telling = false
		x := a.watch
		if !x.open {
			return
		}
		report := a.says()
		a.w.send(&a.end, x.source.machine(), func() { x.source.report(x.session, report) })
	})
}

// audit looks through what is held.
func (a *agent) audit() {
	if !a.held.check() {
		a.w.say("%s finds damage", a.name)
		a.step(core.Reread{})
	}
	a.every(auditEvery, a.audit)
}

// activate hands a state over to the host.
func (a *agent) activate(s core.State) core.Event {
	v, err := a.host.activate(s)
	if err != nil {
		a.w.say("%s cannot take version %d now: %v", a.name, s.Mark.Version, err)
		if reason.Is(err, reason.StateCorrupt) {
			a.every(time.Millisecond, func() { a.step(core.Reread{}) })
		}
		return core.Judged{Err: err}
	}
	a.w.say("%s takes version %d, trying %q: %s %s", a.name, s.Mark.Version, s.Trying, v.Type, v.Code)
	return core.Judged{Verdict: v}
}

// bring is when a person brings a statement with its layer.
func (a *agent) bring(o *orderOf) {
	a.hand = append(a.hand, o.Root)
	a.w.say("%s is brought statement %d about %s", a.name, o.Number, o.Layer)
	a.feed(core.StatementCame{Signed: o.signed})
}

func (a *agent) String() string {
	s := a.machine.Status()
	return fmt.Sprintf("%s (version %d, verdict %s %s %s)", a.name, s.Have.Version, s.Verdict.Type, s.Verdict.Code, s.Verdict.Message)
}
