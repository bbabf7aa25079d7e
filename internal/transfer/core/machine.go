package core

import (
	"math/rand/v2"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// supersededMax is how many states in a row may be passed over, when they are complete and a newer head waits. One more is handed
	// over although it is not the newest, so that a host which heads come to faster than it fetches moves on all the same.
	supersededMax = 2
	// supersededPause is from the beginning of a fetch that was overtaken to that of the next one; it doubles with each one. So a burst
	// of heads costs three fetches, and one head alone waits for nothing.
	supersededPause = 500 * time.Millisecond
	// rejectedPause is the shortest after a layer came wrong in all three ways. It doubles up to rejectedMax; a newer version waits for
	// the shortest alone.
	rejectedPause = time.Minute
	rejectedMax   = time.Hour
	// trustPause is the shortest between two questions for trust documents that heads give rise to: anybody can send heads.
	trustPause = time.Minute
	// doubtsMax bounds the heads that are looked at again with later trust documents: more than come while these are asked for. Of more, the
	// oldest is counted as forged.
	doubtsMax = 8
	// lacksMin is how often in a row a layer is not to be had by hash before it is asked for as a whole, however few sources there are: one that
	// has just started, or has let go what it kept, has it in a moment.
	lacksMin = 3
	// lackingMax bounds the layers of which that is known.
	lackingMax = 64
	// descentRowsMax bounds a descent: what has come stays in memory until all has, and to ask for more by hash is slower than a snapshot.
	descentRowsMax = 50_000
)

// Options are what a Machine needs. All are required.
type Options struct {
	Node    catalog.Node
	Chain   *trust.Chain
	Kept    Kept
	Held    Held
	Sources int // how many there are to ask; they are named by numbers from 0
	Random  *rand.Rand
}

// Machine decides. Use New; feed it with Step from one goroutine, Began first.
type Machine struct {
	node    catalog.Node
	chain   *trust.Chain
	held    Held
	random  *rand.Rand
	sources sources

	kept     Kept
	next     *candidate // newest head that was verified, and is not accepted yet
	goal     *candidate // accepted, and not handed over yet
	active   *candidate // handed over last, and taken
	mend     bool       // something of active may be damaged
	progress progress
	tries    map[catalog.Digest]catalog.Trie // layers that this run has verified
	pace     pace
	doubt    doubt
	verdict  wire.Verdict           // of the machine itself, on what it could not fetch
	lacking  map[catalog.Digest]int // how often in a row sources that answer had nothing of a layer by hash, by its root
	orders   orders

	now time.Time
	out []Effect
}

// candidate is a head on its way to the host.
type candidate struct {
	mark   catalog.Mark
	head   catalog.Head
	signed []byte
	plain  catalog.List   // as the head says; nil as long as it is not arranged
	list   catalog.List   // with statements, where it is arranged; nil as long as it is not there
	root   catalog.Digest // of list
	size   uint64         // of the bodies of its layers
	trying string         // the layer whose statement is new; empty where the head is
	had    bool           // the host enforces it, or may have when it was started: it is nothing new
	begun  bool           // something was asked for
	failed bool           // and did not come
	bytes  uint64         // of the bodies of layers that were committed for it
	rounds uint           // how often a layer came wrong in all ways
	start  time.Time      // not to begin, or to begin again, before
}

// pace keeps the machine from asking too often.
type pace struct {
	retry      time.Time // nothing is asked before
	backoff    Backoff
	began      time.Time // the last fetch
	superseded uint      // states in a row that were passed over
}

// doubt is what to do about heads that are not believed.
type doubt struct {
	heads   []doubtful // that later trust documents may make good: the newest, at most doubtsMax
	asked   time.Time  // when they were asked for
	open    bool       // and nothing has come of that yet
	alarmed catalog.Digest
	stale   bool
}

// doubtful is a head that is not verified.
type doubtful struct {
	signed  []byte
	kind    Doubt
	err     error
	counted bool
}

// waiting is what a Machine waits for.
type waiting uint8

const (
	forNothing waiting = iota
	forAccept
	forList
	forBegin
	forSettle
	forCommit
	forJudgement
	forArrangement // of a list with statements
	forOrder       // a statement is accepted
	forTrial       // it is noted that one is tried
	forAnswer      // of a source
)

// New makes a Machine.
func New(o Options) *Machine {
	return &Machine{
		node: o.Node, chain: o.Chain, held: o.Held, random: o.Random, kept: o.Kept,
		sources: sources{blamed: make([]time.Time, max(o.Sources, 1))}, tries: map[catalog.Digest]catalog.Trie{}, lacking: map[catalog.Digest]int{},
		orders: orders{kept: o.Kept.Statements},
	}
}

// Step takes an event in and returns what is to be done. now never goes back, as a monotonic clock says.
func (m *Machine) Step(now time.Time, e Event) []Effect {
	m.now, m.out = now, nil
	switch e := e.(type) {
	case Began:
		m.began()
	case Trusted:
		m.trusted(e.Chain)
	case HeadCame:
		m.headCame(e.Signed)
	case StatementCame:
		m.statementCame(e.Signed)
	case Stored:
		m.stored(e)
	case Judged:
		m.judged(e)
	case PartCame:
		m.partCame(e)
	case NodesCame:
		m.nodesCame(e)
	case Failed:
		m.unanswering(&e)
	case Garbled:
		m.nonsense(e.Err)
	case Reread:
		m.reread()
	case SourcesKnown:
		m.sources.resize(e.Count)
	case Ticked:
	}
	m.unanswered()
	for m.progress.waits == forNothing && m.proceed() {
	}
	if stale := m.kept.Mark.Stale(m.time()); stale != m.doubt.stale {
		m.doubt.stale = stale
		m.tell()
	}
	return m.out
}

func (m *Machine) do(e ...Effect) { m.out = append(m.out, e...) }

// tell asks for one report in a Step. It goes to the front: an effect that is answered has to be the last.
func (m *Machine) tell() {
	if !slices.Contains(m.out, Effect(Tell{})) {
		m.out = slices.Insert(m.out, 0, Effect(Tell{}))
	}
}

// time is what the machine takes the time to be: not before anything that it has verified was issued, nor before the program was built.
func (m *Machine) time() time.Time {
	at := m.chain.Time(m.now)
	last := m.kept.Mark.Issued
	for i := range m.orders.kept {
		last = max(last, m.orders.kept[i].Issued)
	}
	if issued := time.Unix(last, 0); issued.After(at) {
		return issued
	}
	return at
}

// Wake is when Ticked is due; false when only other events matter. It may lie in the past.
func (m *Machine) Wake() (time.Time, bool) {
	var at time.Time
	if m.kept.Mark.Version > 0 && !m.doubt.stale {
		at = time.Unix(m.kept.Mark.Expires, 0)
	}
	if due := m.doubt.asked.Add(trustPause); m.doubt.open && (at.IsZero() || due.Before(at)) {
		at = due
	}
	if m.progress.waits == forNothing && (m.goal != nil && !m.late() || m.next != nil || m.ordering() || m.mending()) {
		if due := m.due(); at.IsZero() || due.Before(at) {
			at = due
		}
	}
	return at, !at.IsZero()
}

// due is when the goal, or else the next head, may go on.
func (m *Machine) due() time.Time {
	at := m.pace.retry
	later := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	switch {
	case m.overtaken(), m.ordering():
		return at
	case m.goal != nil:
		later(m.goal.start)
		return at
	}
	if m.pace.superseded > 0 {
		later(m.pace.began.Add(supersededPause << (m.pace.superseded - 1)))
	}
	return at
}

// proceed takes one decision, and reports whether another one may follow.
func (m *Machine) proceed() bool {
	switch {
	case m.overtaken() && !m.now.Before(m.pace.retry):
		if !m.goal.begun && m.next.head.Window > 0 {
			m.next.start = m.goal.start // a draw counts once: who draws again and again comes early
		}
		return m.accept()
	case m.now.Before(m.due()):
		return false
	case m.mending():
		m.repair()
		return true
	case m.ordering():
		return m.order()
	case m.goal != nil && m.late():
		return false
	case m.goal != nil:
		m.goal.failed = false
		return (m.goal.list == nil || m.arrange()) && m.fetch()
	case m.next != nil:
		return m.accept()
	}
	return false
}

// overtaken tells whether the next head takes the place of the goal, which is not being fetched.
func (m *Machine) overtaken() bool {
	return m.next != nil && m.goal != nil && (!m.goal.begun || m.goal.failed || m.late())
}

// late tells whether the head of the goal has expired on the way, or a clock that was set says so. Then it is not begun with any more; a later
// issue of it may come, and the clock may be set right. What the host has is not ended by that, and statements are applied to it.
func (m *Machine) late() bool {
	g := m.goal
	return g != nil && g.trying == "" && !g.had && m.time().Unix() >= g.mark.Expires
}

// accept makes the next head the goal, as soon as that is durable.
func (m *Machine) accept() bool {
	m.progress.waits = forAccept
	m.do(Accept{Mark: m.next.mark, Signed: m.next.signed})
	return false
}

func (m *Machine) accepted() {
	c := m.next
	m.next = nil
	m.kept.Mark, m.kept.Head = c.mark, c.signed
	if !of(&m.kept.Verdict, &c.mark) {
		m.kept.Verdict = wire.Verdict{}
	}
	m.verdict = wire.Verdict{}
	if c.start.IsZero() && c.head.Window > 0 && m.active != nil && m.active.mark.Root != c.mark.Root {
		c.start = m.now.Add(time.Duration(m.random.Int64N(int64(c.head.Window) * int64(time.Second))))
	}
	m.goal, m.orders.paused = c, nil
	m.leave()
	m.tell()
}

// stored goes on after a durable effect.
func (m *Machine) stored(e Stored) {
	was := m.progress.waits
	if was == forAnswer {
		m.do(Cancel{ID: m.progress.request})
	}
	m.progress.waits = forNothing
	switch {
	case was == forCommit && reason.Is(e.Err, reason.StateCorrupt):
		m.unread(e.Err)
	case e.Err != nil && was == forOrder:
		m.unwritten(e.Err)
	case e.Err != nil:
		m.local(e.Err)
	case was == forAccept:
		m.accepted()
	case was == forList:
		m.goal.list = m.progress.list
	case was == forBegin:
		m.opened(e.Staged)
	case was == forSettle:
		m.finish()
	case was == forCommit:
		m.committed()
	case was == forOrder, was == forTrial:
		m.written(was)
	}
}

// unread is after what is staged, or the base, could not be read. What the disk has changed is not read again.
func (m *Machine) unread(err error) {
	if !reason.Is(err, reason.StateCorrupt) {
		m.local(err)
		return
	}
	clear(m.tries)
	m.otherwise(err)
}

// local is after something that this host itself could not do. Once is nothing to tell: it may have been busy.
func (m *Machine) local(err error) {
	if m.pace.backoff.Failing() {
		e := reason.Of(err)
		m.reject(e.Code, e.Error())
	}
	m.pause(0)
	m.leave()
	if m.goal != nil {
		m.goal.failed = true
	}
}

// reject says why the goal is not there yet. It is tried again.
func (m *Machine) reject(code reason.Code, message string) {
	mark := m.kept.Mark
	switch {
	case m.goal != nil:
		mark = m.goal.mark
	case m.next != nil:
		mark = m.next.mark
	}
	v := verdictOn(mark, wire.Rejected, code, message, m.now)
	if m.goal != nil && m.goal.trying != "" {
		m.orders.stuck = v
		m.tell()
		return
	}
	if m.goal != nil && m.refused() {
		return // it is what is enforced that is mended: why the newest is not there is told already
	}
	if of(&m.verdict, &mark) && m.verdict.Code == code {
		v.Since = m.verdict.Since
	}
	m.verdict = v
	m.tell()
}

// refuse ends with the goal for good: there will be another version.
func (m *Machine) refuse(v wire.Verdict) {
	if m.goal.trying != "" {
		m.refuseStatement(v)
		return
	}
	m.leave()
	m.goal, m.pace.superseded = nil, 0
	if m.refused() { // it was what is enforced, once more: the verdict on the newest stands
		m.mend = false
		return
	}
	m.kept.Verdict, m.verdict = v, wire.Verdict{}
	m.do(Remember{Verdict: v})
	m.tell()
}

func verdictOn(mark catalog.Mark, t wire.VerdictType, code reason.Code, message string, now time.Time) wire.Verdict {
	return wire.Verdict{Type: t, Epoch: mark.Epoch, Version: mark.Version, Root: mark.Root, Code: code, Message: wire.Text(message), Since: now.UnixMilli()}
}

// of tells whether a verdict is on a mark.
func of(v *wire.Verdict, m *catalog.Mark) bool {
	return v.Epoch == m.Epoch && v.Version == m.Version && v.Root == m.Root
}

// refused tells whether the host will not have what the mark names.
func (m *Machine) refused() bool {
	return refuses(m.kept.Verdict.Type) && of(&m.kept.Verdict, &m.kept.Mark)
}

func refuses(t wire.VerdictType) bool {
	return t == wire.Rejected || t == wire.Withheld || t == wire.Quarantined
}

// hand gives the goal to the host, if it is not overtaken.
func (m *Machine) hand() bool {
	if m.next != nil && m.pace.superseded < supersededMax && m.goal.begun && m.goal.trying == "" {
		m.pace.superseded++
		m.goal = nil
		return true
	}
	if !m.openedTrial() {
		return false
	}
	m.progress.waits = forJudgement
	m.do(Activate{State: State{
		Mark: m.goal.mark, Head: m.goal.head, Signed: m.goal.signed, List: slices.Clone(m.goal.list), Root: m.goal.root, Trying: m.goal.trying,
	}})
	return false
}

func (m *Machine) judged(e Judged) {
	m.progress.waits = forNothing
	if e.Err != nil {
		clear(m.tries) // whatever it could not read is looked at anew
		m.local(e.Err)
		return
	}
	m.pace.backoff.Reset()
	m.pace.superseded = 0
	v := e.Verdict
	v.Epoch, v.Version, v.Root = m.goal.mark.Epoch, m.goal.mark.Version, m.goal.mark.Root
	if refuses(v.Type) {
		m.refuse(v)
		return
	}
	m.active, m.goal, m.verdict, m.mend = m.goal, nil, wire.Verdict{}, false
	m.taken()
	m.forget()
	m.tell()
}

// Status is what the machine knows for the report of its host.
type Status struct {
	Have    catalog.Mark
	Refused wire.Refused
	Stale   bool
	Trust   uint64 // highest number of the trust documents
	// Verdict is on a head that the host does not have yet, or has refused. Open is false when there is none: the host's own counts.
	Verdict wire.Verdict
	Open    bool
	Stuck   bool // Verdict is of the machine: it could not fetch the state
	// Statements are those that are in force, and those that the host has refused; Coming are accepted, and on their way.
	Statements, Coming []wire.Statement
}

// Status says how the machine stands.
func (m *Machine) Status() Status {
	s := Status{Have: m.kept.Mark, Refused: m.kept.Refused, Stale: m.doubt.stale, Trust: m.chain.Current().Number, Open: true}
	switch {
	case m.verdict.Type != wire.Pending:
		s.Verdict, s.Stuck = m.verdict, true
	case m.refused():
		s.Verdict = m.kept.Verdict
	case m.goal != nil && m.goal.trying == "":
		s.Verdict = wire.Verdict{Type: wire.Pending, Epoch: m.goal.mark.Epoch, Version: m.goal.mark.Version, Root: m.goal.mark.Root}
	default:
		s.Open = false
	}
	s.Statements, s.Coming = m.statements()
	return s
}
