package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// Statement is what a host keeps of the statements of operators about one layer: the highest that it has accepted, which no older one
// comes after, and the one that is applied to what it enforces.
//
//	accepted (Coming) -> its layer is here -> tried (InForce and Open) -> in force
//	                                                                   -> refused: the one before is in force again
//
// One thing changes at a time, a head or one statement, so that a refusal says what was refused.
type Statement struct {
	Layer   string         `cbor:"1,keyasint"` // ID
	Epoch   uint64         `cbor:"2,keyasint"`
	Number  uint64         `cbor:"3,keyasint"` // the highest that was accepted, or that a head has absorbed
	Root    catalog.Digest `cbor:"4,keyasint"` // of that one; zero where it was absorbed unseen
	Issued  int64          `cbor:"5,keyasint"` // seconds since 1970
	Expires int64          `cbor:"6,keyasint"` // the same
	Coming  []byte         `cbor:"7,keyasint,omitempty"`
	InForce []byte         `cbor:"8,keyasint,omitempty"`
	Before  []byte         `cbor:"9,keyasint,omitempty"` // what was in force before InForce
	Open    bool           `cbor:"10,keyasint,omitempty"`
	// State is the head that InForce was tried with, and the root of its catalog with the statement in it.
	State catalog.Mark `cbor:"11,keyasint"`
	// Verdict is why the highest is not in force, where the host has refused it.
	Verdict wire.Verdict `cbor:"12,keyasint"`
}

// StatementsMax is how many layers a host keeps statements about: orders from hand to hand are for when there is no server.
const StatementsMax = wire.StatementsMax

// Mark is the highest statement that was accepted.
func (s *Statement) Mark() catalog.StatementMark {
	return catalog.StatementMark{Epoch: s.Epoch, Number: s.Number, Root: s.Root}
}

// ended tells whether the highest, of this number, is neither in force nor on its way, and was not refused.
func (s *Statement) ended(number uint64) bool {
	return s.Number == number && s.Coming == nil && s.InForce == nil && s.Verdict.Type == wire.Pending
}

// refuse gives up what is in force, for what was before.
func (s *Statement) refuse(v wire.Verdict) {
	if s.Coming == nil {
		s.InForce, s.Before = s.Before, nil
	}
	s.Coming, s.Open, s.State, s.Verdict = nil, false, catalog.Mark{}, v
}

// Blame finds out whether a verdict is on a state that was new for a statement, and returns what is kept then: the one before is in force
// again. false leaves the blame with the head.
func Blame(kept []Statement, v wire.Verdict) ([]Statement, bool) {
	for i := range kept {
		if s := &kept[i]; refuses(v.Type) && s.InForce != nil && of(&v, &s.State) {
			changed := slices.Clone(kept)
			changed[i].refuse(v)
			return changed, true
		}
	}
	return kept, false
}

// parsed reads a statement that was verified before it was kept; false where there is none.
func parsed(signed []byte) (catalog.Statement, bool) {
	if signed == nil {
		return catalog.Statement{}, false
	}
	_, st, err := catalog.DecodeStatement(signed)
	return st, err == nil
}

// orders is how far a machine is with statements.
type orders struct {
	kept    []Statement // by layer
	said    []order     // verified, and not accepted yet: at most one of a layer
	writing []Statement // what is being made durable
	paused  *candidate  // the accepted head that makes room for a statement while it cannot be fetched
	tried   string      // layer of the last that was begun with: another one has its turn after it
	stuck   wire.Verdict
}

type order struct {
	statement catalog.Statement
	signed    []byte
}

// of finds what is kept of a layer; -1 where there is nothing.
func (o *orders) of(layer string) int {
	return slices.IndexFunc(o.kept, func(s Statement) bool { return s.Layer == layer })
}

// statementCame verifies a statement, and has it wait for its turn.
func (m *Machine) statementCame(signed []byte) {
	st, err := m.verifyStatement(signed)
	if err != nil {
		m.count(func(r *wire.Refused) { r.Forged++ })
		m.do(Disbelieve{Doubt: DoubtStatement, Err: err})
		return
	}
	standing, err := m.judgeStatement(&st)
	switch standing {
	case catalog.HeadNews:
		m.orders.said = append(slices.DeleteFunc(m.orders.said, func(o order) bool { return o.statement.Layer == st.Layer }), order{st, signed})
		m.encourage() // it takes a key of an operator to come here
		return
	case catalog.HeadRepeated:
		m.encourage()
		return
	case catalog.HeadOld:
		m.count(func(r *wire.Refused) { r.Old++ })
	case catalog.HeadEquivocation:
		m.count(func(r *wire.Refused) { r.Equivocation++ })
		m.alarmStatement(&st, signed, err)
	}
	m.do(Disbelieve{Doubt: DoubtStatement, Err: err})
}

// encourage has what failed before tried soon.
func (m *Machine) encourage() {
	m.pace.backoff.Reset()
	if soon := m.now.Add(backoffMin); soon.Before(m.pace.retry) {
		m.pace.retry = soon
	}
}

// refusedStatement is the error of a statement that does not count here.
func refusedStatement(st *catalog.Statement, cause error, hint string) error {
	return &reason.Error{Code: reason.StatementRefused, Doing: fmt.Sprintf("take statement %d about layer %s", st.Number, st.Layer), Cause: cause, Hint: hint}
}

// verifyStatement believes a statement, or says why not.
func (m *Machine) verifyStatement(signed []byte) (catalog.Statement, error) {
	s, _, err := catalog.DecodeStatement(signed)
	if err != nil {
		return catalog.Statement{}, err
	}
	st, err := s.Verify(m.chain.KeysOf(trust.RoleOperator, m.time()), m.node.Cluster)
	if err != nil {
		e := *reason.Of(err)
		e.Hint = fmt.Sprintf("this host has the trust documents up to number %d: `tako trust show` lists who has the role operator, and until when", m.chain.Current().Number)
		if st.Cluster == m.node.Cluster && (m.doubt.asked.IsZero() || m.now.Sub(m.doubt.asked) >= trustPause) {
			m.doubt.asked, m.doubt.open = m.now, true
			m.do(AskTrust{}) // whoever brings it again finds them here
		}
		return catalog.Statement{}, &e
	}
	return st, nil
}

// judgeStatement says what a verified statement is to this host, and why it does not count where it is neither news nor known.
func (m *Machine) judgeStatement(st *catalog.Statement) (catalog.Standing, error) {
	refused := func(s catalog.Standing, hint, format string, args ...any) (catalog.Standing, error) {
		return s, refusedStatement(st, fmt.Errorf(format, args...), hint)
	}
	epoch := m.chain.Current().Epoch
	switch {
	case m.active == nil:
		return refused(catalog.HeadUnknown, "bring a head first, with what it names: `tako-agent accept` takes a directory that `tako export heads` has written",
			"this host has no signed state yet that it could be applied to")
	case st.Epoch < epoch:
		return refused(catalog.HeadOld, "sign it again with --epoch and the number of now", "it is of epoch %d, and the root keys have begun epoch %d", st.Epoch, epoch)
	case st.Epoch != m.kept.Mark.Epoch:
		return refused(catalog.HeadUnknown, "sign it with --epoch and the number that `tako-agent status` shows", "it is of epoch %d, and the head of this host of epoch %d", st.Epoch, m.kept.Mark.Epoch)
	case !lists(m.active.plain, st.Layer):
		return refused(catalog.HeadUnknown, "`tako-agent status --json` lists the configs of this host", "this host has no such layer")
	case absorbed(&m.active.head, st.Layer, st.Number):
		return refused(catalog.HeadOld, "what the servers declare has caught up with it: sign the next one with a higher number", "the head of this host has absorbed it")
	}
	var mark catalog.StatementMark
	if at := m.orders.of(st.Layer); at >= 0 {
		mark = m.orders.kept[at].Mark()
	}
	for _, o := range m.orders.said {
		if o.statement.Layer == st.Layer {
			mark = catalog.StatementMark{Epoch: o.statement.Epoch, Number: o.statement.Number, Root: o.statement.Root}
		}
	}
	switch standing := mark.Judge(st, m.time()); standing {
	case catalog.HeadOld:
		return refused(standing, fmt.Sprintf("sign it with --number %d, or a higher one", mark.Number+1), "number %d was accepted before", mark.Number)
	case catalog.HeadEquivocation:
		return refused(standing, "the first one counts. Somebody has signed two: agree, and sign with a higher number", "number %d was accepted before with the root %s, and this one has %s", mark.Number, mark.Root, st.Root)
	case catalog.HeadExpired:
		return refused(standing, "sign it again; if it is not old, look at the clock of this host", "it has expired at %s, and here it is %s",
			time.Unix(st.Expires, 0).UTC().Format(time.RFC3339), m.time().UTC().Format(time.RFC3339))
	case catalog.HeadRepeated:
		if at := m.orders.of(st.Layer); at >= 0 && m.orders.kept[at].ended(st.Number) {
			return refused(catalog.HeadOld, fmt.Sprintf("sign it with --number %d, or a higher one", mark.Number+1), "it has ended on this host: what the servers declared had caught up with it")
		}
		return standing, nil
	}
	if _, err := m.orders.with(order{statement: *st}, m.time()); err != nil {
		return refused(catalog.HeadUnknown, "apply it with a server, which has no such bound", "%w", err)
	}
	return catalog.HeadNews, nil
}

// alarmStatement shows a person the two statements of one number.
func (m *Machine) alarmStatement(st *catalog.Statement, signed []byte, err error) {
	if m.doubt.alarmed == st.Root {
		return
	}
	m.doubt.alarmed = st.Root
	var first []byte
	if at := m.orders.of(st.Layer); at >= 0 {
		s := &m.orders.kept[at]
		for _, have := range [][]byte{s.Coming, s.InForce} {
			if known, ok := parsed(have); ok && known.Number == st.Number {
				first = have
			}
		}
	}
	m.do(Alarm{Err: err, Evidence: [][]byte{first, signed}})
}

func lists(l catalog.List, id string) bool {
	return slices.ContainsFunc(l, func(x catalog.Layer) bool { return x.ID == id && x.Priority != catalog.OwnPriority })
}

// absorbed tells whether the declarations have caught up with a statement.
func absorbed(h *catalog.Head, layer string, number uint64) bool {
	return slices.ContainsFunc(h.Absorbed, func(a catalog.AbsorbedNumber) bool { return a.Layer == layer && number <= a.Number })
}

// errManyStatements is of a host that keeps as many as it may.
var errManyStatements = fmt.Errorf("this host keeps statements about %d layers, and not more", StatementsMax)

// with is what is kept when one more statement is accepted. Of layers that no statement is about any more, those are forgotten whose last
// one has expired: nobody can bring it again.
func (o *orders) with(x order, now time.Time) ([]Statement, error) {
	st := &x.statement
	next := Statement{Layer: st.Layer, Epoch: st.Epoch, Number: st.Number, Root: st.Root, Issued: st.Issued, Expires: st.Expires, Coming: x.signed}
	if at := o.of(st.Layer); at >= 0 {
		changed := slices.Clone(o.kept)
		was := &changed[at]
		next.InForce, next.Before, next.Open, next.State = was.InForce, was.Before, was.Open, was.State
		if was.Open { // it has not been judged, and is not any more
			next.InForce, next.Before, next.Open, next.State = was.Before, nil, false, catalog.Mark{}
		}
		changed[at] = next
		return changed, nil
	}
	changed := o.kept
	if len(changed) >= StatementsMax {
		changed = slices.DeleteFunc(slices.Clone(changed), func(s Statement) bool {
			return s.Coming == nil && s.InForce == nil && now.Unix() >= s.Expires
		})
	}
	if len(changed) >= StatementsMax {
		return nil, errManyStatements
	}
	changed = append(slices.Clone(changed), next)
	slices.SortFunc(changed, func(a, b Statement) int { return strings.Compare(a.Layer, b.Layer) })
	return changed, nil
}

// stands tells whether a statement counts under a head.
func (m *Machine) stands(h *catalog.Head, st *catalog.Statement) bool {
	revoked := slices.ContainsFunc(m.chain.Current().Revoked, func(r trust.Revocation) bool { return r.Key.ID() == st.Key })
	return st.Epoch == h.Epoch && !absorbed(h, st.Layer, st.Number) && !revoked
}

// applied is the statement that a state has about a layer; false where it has none.
func (m *Machine) applied(c *candidate, layer string) (catalog.Statement, bool) {
	at := m.orders.of(layer)
	if at < 0 {
		return catalog.Statement{}, false
	}
	s := &m.orders.kept[at]
	signed := s.InForce
	switch {
	case c.trying == layer && s.Coming != nil:
		signed = s.Coming
	case c.trying != layer && s.Open:
		signed = s.Before
	}
	st, ok := parsed(signed)
	return st, ok && m.stands(&c.head, &st)
}

// arranged is the list of a head with the statements in it, and how many bytes their layers have.
func (m *Machine) arranged(c *candidate) (catalog.List, uint64) {
	list, bytes := c.plain, uint64(0)
	if len(m.orders.kept) == 0 {
		return list, 0
	}
	for i := range c.plain {
		l := &c.plain[i]
		st, ok := m.applied(c, l.ID)
		if !ok || l.Priority == catalog.OwnPriority {
			continue
		}
		bytes += st.Bytes
		if st.Root != l.Root {
			if &list[0] == &c.plain[0] {
				list = slices.Clone(c.plain)
			}
			list[i].Root = st.Root
		}
	}
	return list, bytes
}

// arrange puts the statements into the list of the goal. It reports whether the layers may be fetched: a list has to be held before.
func (m *Machine) arrange() bool {
	g := m.goal
	if g.plain == nil {
		g.plain = g.list
	}
	var extra uint64
	g.list, extra = m.arranged(g)
	g.root, g.size = g.mark.Root, g.head.Bytes+min(extra, ^g.head.Bytes)
	if slices.Equal(g.list, g.plain) {
		return true
	}
	encoded, err := g.list.Encode()
	if err != nil {
		m.local(err)
		return false
	}
	g.root = catalog.ListRoot(encoded)
	have, err := m.held.List(g.root)
	if err != nil {
		m.local(err)
		return false
	}
	if have != nil && catalog.ListRoot(have) == g.root {
		return true
	}
	m.progress.waits = forArrangement
	m.do(PutList{Encoded: encoded})
	return false
}

// trial is the layer whose statement is to be tried next; empty where there is none.
func (m *Machine) trial() string {
	if m.active == nil {
		return ""
	}
	first := ""
	for i := range m.orders.kept {
		s := &m.orders.kept[i]
		signed := s.Coming
		if signed == nil && s.Open {
			signed = s.InForce
		}
		if st, ok := parsed(signed); ok && m.stands(&m.active.head, &st) && lists(m.active.plain, s.Layer) {
			if s.Layer > m.orders.tried {
				return s.Layer
			}
			first = cmp.Or(first, s.Layer)
		}
	}
	return first
}

// ordering tells whether something is to be done about statements before the goal goes on.
func (m *Machine) ordering() bool {
	g := m.goal
	switch {
	case len(m.orders.said) > 0:
		return true
	case g == nil:
		return m.trial() != ""
	case g.trying != "":
		return g.failed && m.orders.paused != nil
	}
	return (g.failed || m.late() || m.now.Before(g.start)) && m.trial() != ""
}

// order does that, and reports whether another decision may follow.
func (m *Machine) order() bool {
	o := &m.orders
	if len(o.said) > 0 {
		next, err := o.with(o.said[0], m.time())
		if err != nil { // there was room when it came
			o.said = o.said[1:]
			return true
		}
		m.write(next, forOrder)
		return false
	}
	if m.goal != nil && m.goal.trying != "" { // its layer does not come: the head has its turn again
		m.leave()
		m.goal, o.paused = o.paused, nil
		m.goal.failed = false
		return true
	}
	if m.goal != nil {
		m.leave()
		o.paused = m.goal
	}
	o.tried = m.trial()
	m.goal = m.active.again(o.tried)
	return true
}

// again is the same head once more, with what has changed in its statements since.
func (c *candidate) again(trying string) *candidate {
	return &candidate{mark: c.mark, head: c.head, signed: c.signed, plain: c.plain, list: c.plain, trying: trying, had: true}
}

func (m *Machine) write(next []Statement, why waiting) {
	m.orders.writing, m.progress.waits = next, why
	m.do(AcceptStatements{Statements: slices.Clone(next)})
}

// written goes on after what is kept of statements has become durable.
func (m *Machine) written(why waiting) {
	o := &m.orders
	o.kept, o.writing = o.writing, nil
	if why == forOrder {
		layer := o.said[0].statement.Layer
		o.said, o.stuck = o.said[1:], wire.Verdict{}
		if m.goal != nil && m.goal.trying == layer { // what it tries was replaced
			m.leave()
			m.goal, o.paused = o.paused, nil
		}
	}
	m.tell()
}

// unwritten is after a statement could not be accepted, because the disk does not take it. It is tried again.
func (m *Machine) unwritten(err error) {
	e := reason.Of(err)
	m.orders.stuck = verdictOn(m.kept.Mark, wire.Rejected, e.Code, e.Error(), m.now)
	m.pause(0)
	m.tell()
}

// note makes what is kept of statements durable that may also be found out again.
func (m *Machine) note(next []Statement) {
	m.orders.kept = next
	m.do(RememberStatements{Statements: slices.Clone(next)})
	m.tell()
}

// openedTrial tells whether it is durable that the statement of the goal is tried. Who dies of it is then known to have died of that.
func (m *Machine) openedTrial() bool {
	g := m.goal
	if g.trying == "" {
		return true
	}
	at := m.orders.of(g.trying)
	state := g.mark
	state.Root = g.root
	if s := &m.orders.kept[at]; s.Open && s.Coming == nil && of(&wire.Verdict{Epoch: state.Epoch, Version: state.Version, Root: state.Root}, &s.State) {
		return true
	}
	next := slices.Clone(m.orders.kept)
	s := &next[at]
	if s.Coming != nil {
		s.Before, s.InForce, s.Coming = s.InForce, s.Coming, nil
	}
	s.Open, s.State = true, state
	m.write(next, forTrial)
	return false
}

// refuseStatement ends with a statement for good: there will be another number.
func (m *Machine) refuseStatement(v wire.Verdict) {
	g := m.goal
	next := slices.Clone(m.orders.kept)
	if at := m.orders.of(g.trying); at >= 0 {
		v.Root = g.root
		next[at].refuse(v)
	}
	m.leave()
	m.goal, m.orders.paused, m.orders.stuck = m.orders.paused, nil, wire.Verdict{}
	if m.goal == nil && m.active == nil {
		m.goal = g.again("")
	}
	m.note(next)
}

// taken notes what the host has taken: the statement that was tried, or a head, under which some do not count any more.
func (m *Machine) taken() {
	a := m.active
	if a.trying != "" {
		m.goal, m.orders.paused, m.orders.stuck = m.orders.paused, nil, wire.Verdict{}
		if g := m.goal; g != nil && g.mark.Epoch == a.mark.Epoch && g.mark.Version == a.mark.Version {
			m.goal = nil // with it the host has the head, too
		}
		next := slices.Clone(m.orders.kept)
		if at := m.orders.of(a.trying); at >= 0 {
			next[at].Open = false
		}
		a.trying = ""
		m.note(next)
	}
	m.prune()
}

// declares tells whether what the servers declare has caught up with a statement: the head says the same of its layer.
func declares(l catalog.List, st *catalog.Statement) bool {
	return slices.ContainsFunc(l, func(x catalog.Layer) bool { return x.ID == st.Layer && x.Root == st.Root })
}

// prune gives up the statements that do not count under the head that is enforced, and those that it says itself.
func (m *Machine) prune() {
	if len(m.orders.kept) == 0 {
		return
	}
	a := m.active
	var next []Statement
	for _, s := range m.orders.kept {
		if s.Epoch < a.head.Epoch {
			continue // nothing of that epoch is accepted again
		}
		counts := func(signed []byte) []byte {
			if st, ok := parsed(signed); ok && m.stands(&a.head, &st) && lists(a.plain, s.Layer) && !declares(a.plain, &st) {
				return signed
			}
			return nil
		}
		s.Coming, s.InForce, s.Before = counts(s.Coming), counts(s.InForce), counts(s.Before)
		if s.InForce == nil {
			s.Before, s.Open, s.State = nil, false, catalog.Mark{}
		}
		for _, by := range a.head.Absorbed {
			if by.Layer == s.Layer && by.Number > s.Number {
				s.Number, s.Root = by.Number, catalog.Digest{}
			}
		}
		next = append(next, s)
	}
	if !slices.EqualFunc(next, m.orders.kept, sameStatement) {
		m.note(next)
	}
}

func sameStatement(a, b Statement) bool {
	return a.Layer == b.Layer && a.Number == b.Number && a.Open == b.Open && string(a.Coming) == string(b.Coming) &&
		string(a.InForce) == string(b.InForce) && string(a.Before) == string(b.Before)
}

// review looks whether what is enforced is still what its head and the statements make: a key may have been revoked.
func (m *Machine) review() {
	if m.active == nil || m.goal != nil {
		return
	}
	if list, _ := m.arranged(m.active); !slices.Equal(list, m.active.list) && !m.quarantined(list) {
		m.prune()
		m.goal = m.active.again("")
	}
}

// quarantined tells whether a list is that of the state which has crashed the host, and which it has under another version too. What is enforced
// has a statement in the place of what does that, and keeps it until there is another state.
func (m *Machine) quarantined(l catalog.List) bool {
	if m.kept.Verdict.Type != wire.Quarantined {
		return false
	}
	encoded, err := l.Encode()
	return err == nil && m.isQuarantined(catalog.ListRoot(encoded))
}

func (m *Machine) isQuarantined(root catalog.Digest) bool {
	return m.kept.Verdict.Type == wire.Quarantined && root == m.kept.Verdict.Root
}

// ground is the head that is enforced while a newer one is refused, or does not come; false where it is not known.
func (m *Machine) ground() (*candidate, bool) {
	h, err := m.verify(m.kept.Ground)
	root, known := h.Root()
	if err != nil || !known {
		return nil, false
	}
	mark := catalog.Mark{Epoch: h.Epoch, Version: h.Version, Root: root, Issued: h.Issued, Expires: h.Expires}
	return &candidate{mark: mark, head: h, signed: m.kept.Ground, had: true}, true
}

// stand takes up the head that is enforced, so that statements can be applied to it.
func (m *Machine) stand() {
	c, known := m.ground()
	if !known {
		return
	}
	if list, err := m.listOf(c.mark.Root); err == nil && list != nil {
		c.plain = list
		c.list, _ = m.arranged(c)
		m.active = c
	}
}

// resumeTrial takes up a trial that the last run has not ended: what is enforced may have it already. Where that does not come, the head
// alone has its turn.
func (m *Machine) resumeTrial() {
	if m.goal == nil {
		return
	}
	for i := range m.orders.kept {
		s := &m.orders.kept[i]
		if !s.Open || s.State.Epoch != m.goal.mark.Epoch || s.State.Version != m.goal.mark.Version {
			continue
		}
		alone := *m.goal
		m.orders.paused = &alone
		m.goal.trying = s.Layer
		return
	}
}

// statements is what is told of them: those in force, and why the highest of a layer is not.
func (m *Machine) statements() (told []wire.Statement, coming []wire.Statement) {
	for i := range m.orders.kept {
		s := &m.orders.kept[i]
		signed := s.InForce
		if s.Open {
			signed = s.Before
		}
		if st, ok := parsed(signed); ok {
			told = append(told, wire.Statement{Layer: s.Layer, Number: st.Number, Root: st.Root})
		}
		if s.Verdict.Type != wire.Pending {
			told = append(told, wire.Statement{Layer: s.Layer, Number: s.Number, Root: s.Root, Code: s.Verdict.Code, Message: s.Verdict.Message})
		}
		if s.Coming != nil || s.Open {
			x := wire.Statement{Layer: s.Layer, Number: s.Number, Root: s.Root}
			if m.goal != nil && m.goal.trying == s.Layer {
				x.Code, x.Message = m.orders.stuck.Code, m.orders.stuck.Message
			}
			coming = append(coming, x)
		}
	}
	for _, x := range m.orders.said {
		coming = append(coming, wire.Statement{Layer: x.statement.Layer, Number: x.statement.Number, Root: x.statement.Root,
			Code: m.orders.stuck.Code, Message: m.orders.stuck.Message})
	}
	return told[:min(len(told), wire.StatementsMax)], coming
}
