package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"tako.dev/tako/declare"
	agentcore "tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

// life is what an agent must know of its earlier runs: package agent/held has more of it.
type life struct {
	Enforced catalog.Mark    `cbor:"1,keyasint"`
	Before   catalog.Mark    `cbor:"2,keyasint"`
	Settled  bool            `cbor:"3,keyasint"`
	Trial    agentcore.Trial `cbor:"4,keyasint"`
}

// on is the life when a state is taken on.
func (l life) on(m catalog.Mark, way agentcore.Trial) life {
	if l.Settled {
		l.Before = l.Enforced
	}
	l.Enforced, l.Settled, l.Trial = m, false, way
	return l
}

// active is the file of what is enforced.
type active struct {
	Root    catalog.Digest `cbor:"1,keyasint"`
	Entries []activeEntry  `cbor:"2,keyasint"`
	Without catalog.Digest `cbor:"3,keyasint"` // what is left out, because it has expired
}

// activeEntry is an entry of it.
type activeEntry struct {
	Claim  declare.Claim    `cbor:"1,keyasint"`
	Config string           `cbor:"2,keyasint"`
	Remove declare.OnRemove `cbor:"3,keyasint"`
	After  []declare.Claim  `cbor:"4,keyasint"`
	Digest catalog.Digest   `cbor:"5,keyasint"`
	Body   []byte           `cbor:"6,keyasint"`
	TTL    string           `cbor:"7,keyasint"`
}

// ledger is what must not be forgotten.
type ledger struct {
	Pending  []converge.Pending `cbor:"1,keyasint"`
	Budgets  []budget           `cbor:"2,keyasint"`
	Removals []activeEntry      `cbor:"3,keyasint"`
}

type budget struct {
	Key      converge.Key    `cbor:"1,keyasint"`
	Digest   converge.Digest `cbor:"2,keyasint"`
	Attempts int             `cbor:"3,keyasint"`
	Holds    int             `cbor:"4,keyasint"`
	Wait     time.Duration   `cbor:"5,keyasint"`
}

// host is what an agent enforces, and where: the shell of package agent around the graph.
type host struct {
	a      *agent
	actual map[converge.Key]converge.Digest // how the host is, whoever made it so
	moment int                              // numbers what happens on the host
	owed   map[converge.Key]int             // the moment of the last change that a vertex must be told of

	// of one run
	active   active
	ledger   ledger
	life     life
	coming   agentcore.Trial
	onWay    catalog.Digest // what this run is on its way to, and has noted
	refused  wire.Verdict
	verdict  wire.Verdict
	compiled *agentcore.Compiled
	told     map[converge.ID][]converge.Key // whom an apply has to notify
	engine   *converge.Engine
	met      map[converge.Key]converge.Digest // what was converged; its loss is harmless
	flights  []*flight
	tick     int // which Tick is the one that is waited for
	alarm    int // the same of the next expiry
	expiry
}

// flight is an operation in flight.
type flight struct {
	op      converge.Op
	keys    []converge.Key
	digests []converge.Digest
	targets [][]converge.Key
	began   int
	took    bool
	results []converge.Result
}

func newHost(a *agent) host {
	return host{a: a, actual: map[converge.Key]converge.Digest{}, owed: map[converge.Key]int{}}
}

// lane is the one lane of a host.
const lane = "host"

func laneOf(declare.ResourceType) string { return lane }

// awake takes up what earlier runs have left.
func (h *host) awake() {
	a := h.a
	h.active, h.ledger, h.met = active{}, ledger{}, map[converge.Key]converge.Digest{}
	h.engine, h.compiled, h.flights, h.coming = nil, nil, nil, agentcore.Trial{}
	h.refused, h.verdict, h.onWay, h.expiry = wire.Verdict{}, wire.Verdict{}, catalog.Digest{}, expiry{}
	a.held.load(activeFile, &h.active)
	a.held.load(ledgerFile, &h.ledger)
	a.held.load(comingFile, &h.coming)
	h.voidRemovals()
	v, l := a.held.record.Verdict, a.held.record.Life
	refused := v.Type == wire.Rejected || v.Type == wire.Withheld || v.Type == wire.Quarantined
	if refused {
		h.refused = v
	}
	if m, took := h.took(refused); took && m.Root != l.Enforced.Root {
		l = l.on(m, h.coming) // the last run has died right after it took this on
	}
	if l.Enforced.Version > 0 && !l.Settled {
		trial, poison := l.Trial.Beside(h.coming).Begin(l.Enforced)
		if l.Trial = trial; poison != nil {
			h.quarantine(&l, poison)
		}
	}
	if err := a.held.setLife(l); err == nil && h.coming.Open {
		_ = h.sets(h.coming.Died()) // otherwise it is counted later
	}
	h.life, h.coming = l, h.coming.Died()
}

// took is the state that the last run can have taken on.
func (h *host) took(refused bool) (catalog.Mark, bool) {
	for i := range h.a.held.statements {
		if x := &h.a.held.statements[i]; x.Open && x.State.Root == h.active.Root {
			return x.State, true
		}
	}
	m := h.a.held.record.Mark
	if m.Root != h.active.Root && h.coming.Epoch == m.Epoch && h.coming.Version == m.Version {
		m.Root = h.coming.Root
	}
	return m, !refused && m.Version > 0 && m.Root == h.active.Root
}

// quarantine gives up a state that the agent has died of, for the one before.
func (h *host) quarantine(l *life, poison *reason.Error) {
	if own := h.a.proven.own[l.Enforced.Root]; own < deathsMax {
		h.a.w.broken("A1", "%s gives up version %d after %d deaths of its own, and the others were of another state", h.a.name, l.Enforced.Version, own)
	}
	v := h.verdictOn(l.Enforced, wire.Quarantined, poison)
	if _, blamed := core.Blame(h.a.held.statements, v); !blamed {
		h.refused = v
	}
	_ = h.a.held.remember(v) // it is found out again
	h.a.w.say("%s quarantines version %d", h.a.name, l.Enforced.Version)
	if l.Before.Root == l.Enforced.Root {
		l.Before = catalog.Mark{}
	}
	l.Enforced, l.Before, l.Settled = l.Before, catalog.Mark{}, true
	h.a.proven.active = l.Enforced // this is how one may go back
}

func (h *host) verdictOn(m catalog.Mark, t wire.VerdictType, why *reason.Error) wire.Verdict {
	v := wire.Verdict{Type: t, Epoch: m.Epoch, Version: m.Version, Root: m.Root}
	if why != nil {
		v.Code, v.Message = why.Code, why.Error()
	}
	return v
}

// begin enforces what is to be enforced from the start.
func (h *host) begin() {
	if h.engine != nil { // a state was handed over meanwhile
		h.step(converge.Tick{})
		return
	}
	state, err := h.before()
	if err != nil {
		h.life.Enforced = catalog.Mark{} // it was lost, and is fetched again
		state = &desired{compiled: h.compile(nil, h.ledger.Removals)}
	}
	if err := h.adopt(state); err != nil {
		h.a.crash(false) // it cannot begin: somebody starts it again
	}
}

// desired is a state that can be enforced.
type desired struct {
	root     catalog.Digest
	entries  []activeEntry
	leaving  []activeEntry
	removals []activeEntry
	compiled *agentcore.Compiled
	fresh    bool // it is to become the active one
	without  catalog.Digest
	expired  []catalog.Expired
	expiry   expiry
}

// before is the state that was enforced, from the disk.
func (h *host) before() (*desired, error) {
	root := h.life.Enforced.Root
	if root == (catalog.Digest{}) {
		return &desired{compiled: h.compile(nil, h.ledger.Removals)}, nil
	}
	var last *desired
	if h.active.Root == root {
		if last = h.lastGood(); !last.fresh && !(last.expiry.stands && h.judged()) {
			return last, nil
		}
	}
	layers, err := h.read(root)
	if err == nil {
		var d *desired
		if d, err = h.make(root, layers); err == nil {
			return d, nil
		}
	}
	if last != nil { // what is left of it is better than nothing
		return last, nil
	}
	return nil, err
}

// read reads a catalog: what is acted upon in its layers. Whatever is not what its root says is not there.
func (h *host) read(root catalog.Digest) ([]catalog.DecodedLayer, error) {
	held, w := h.a.held, h.a.w
	lost := &reason.Error{Code: reason.StateCorrupt, Doing: "read a catalog"}
	encoded, err := held.List(root)
	if err != nil || encoded == nil {
		return nil, lost
	}
	list := must(catalog.DecodeList(encoded))
	layers := make([]catalog.DecodedLayer, 0, len(list))
	for _, l := range list {
		have := held.layer(l.Root)
		if have == nil {
			return nil, lost
		}
		content, known := w.truth.parsed[l.Root]
		if !known {
			content = parse(have)
			w.truth.parsed[l.Root] = content
		}
		if content.poison && !w.healed {
			h.a.proven.diesOf(h.a, root)
			panic(dies{})
		}
		layers = append(layers, catalog.DecodedLayer{ID: l.ID, Priority: l.Priority, Entries: content.acting})
	}
	return layers, nil
}

// parse reads a layer.
func parse(l *layer) (c decodedContent) {
	for r, err := range l.trie.From(catalog.Digest{}) {
		must(0, err)
		body := l.bodies[r.Digest]
		if catalog.Delivered(body) {
			continue
		}
		d := must(catalog.DecodeBody(r.Key, body))
		c.acting = append(c.acting, d)
		c.poison = c.poison || d.Resource.File != nil && d.Resource.File.Path == poisonPath
	}
	return c
}

// make makes a state of layers. The error is why it cannot be enforced.
func (h *host) make(root catalog.Digest, layers []catalog.DecodedLayer) (*desired, error) {
	p := h.proof()
	living := catalog.Alive(layers, p)
	entries, conflicts := catalog.ResolveLayers(living.Layers)
	if len(conflicts) > 0 {
		return nil, conflicts[0].Reason()
	}
	d := &desired{root: root, without: catalog.LeftOut(catalog.Digest{}, living.Expired), expired: living.Expired, expiry: expiryOf(living.TTLs, p)}
	h.leave(d, entries)
	return d, nil
}

// leave completes a state of entries that may become the active one: what is to be undone, and the graph.
func (h *host) leave(d *desired, entries []catalog.Entry) {
	d.fresh = true
	stays := map[declare.Claim]bool{}
	for i := range entries {
		stays[entries[i].Claim()] = true
	}
	for _, r := range h.ledger.Removals {
		if !stays[r.Claim] {
			d.removals = append(d.removals, r)
		}
	}
	for _, e := range h.active.Entries {
		if !stays[e.Claim] && e.Remove != declare.OnRemoveKeep {
			d.leaving = append(d.leaving, e)
		}
	}
	d.removals = append(d.removals, d.leaving...)
	d.compiled = h.compile(entries, d.removals)
	for i := range entries {
		it := &d.compiled.Items[i]
		d.entries = append(d.entries, activeEntry{Claim: it.Claim, Config: entries[i].Config, Remove: it.OnRemove, After: it.After,
			Digest: catalog.Digest(d.compiled.Graph.Vertices[i].Digest), Body: must(entries[i].Encode()), TTL: entries[i].Resource.TTL})
	}
}

// compile makes the graph.
func (h *host) compile(entries []catalog.Entry, removals []activeEntry) *agentcore.Compiled {
	in := agentcore.Input{Entries: entries, Lookup: declare.Scope{NodeName: h.a.node}.Lookup, Lane: laneOf}
	for _, r := range removals {
		e := must(catalog.Decode(r.Body))
		in.Removals = append(in.Removals, agentcore.Removal{Claim: r.Claim, Title: r.Claim.String(), Config: r.Config, Type: e.Resource.Type(),
			Digest: converge.Digest(r.Digest), OnRemove: r.Remove, After: r.After, Resource: e.Resource})
	}
	compiled, faults := agentcore.Compile(in)
	if len(faults) > 0 {
		h.a.w.broken("A2", "%s cannot compile what was signed: %v", h.a.name, faults)
	}
	return compiled
}

// saveLedger makes the ledger durable.
func (h *host) saveLedger(l ledger) error {
	err := h.a.held.keep(ledgerFile, &l)
	if err == nil {
		h.ledger = l
	}
	return err
}

// voidRemovals takes back the removals of what is active.
func (h *host) voidRemovals() {
	left := slices.DeleteFunc(slices.Clone(h.ledger.Removals), func(r activeEntry) bool {
		return slices.ContainsFunc(h.active.Entries, func(e activeEntry) bool { return e.Claim == r.Claim })
	})
	if len(left) < len(h.ledger.Removals) {
		next := h.ledger
		next.Removals = left
		if h.saveLedger(next) != nil {
			h.ledger = next // they are void at the next start, too
		}
	}
}

// adopt makes a state the one that is enforced: first what has to be undone because of it is durable, then the state itself.
func (h *host) adopt(d *desired) error {
	a := h.a
	if d.fresh && (d.root != h.active.Root || d.without != h.active.Without) {
		next := h.ledger
		next.Removals = append(slices.Clip(next.Removals), d.leaving...)
		if err := h.saveLedger(next); err != nil {
			return err
		}
		state := active{Root: d.root, Entries: d.entries, Without: d.without}
		if err := a.held.keep(activeFile, &state); err != nil {
			return err
		}
		h.active = state
		a.w.seen.Removals += len(d.leaving)
		h.voidRemovals()
	}
	h.compiled, h.expiry = d.compiled, d.expiry
	h.await()
	g := d.compiled.Graph
	h.told = map[converge.ID][]converge.Key{}
	for id := range g.Vertices {
		if g.Vertices[id].NotApplicable {
			continue
		}
		for _, e := range g.Before(converge.ID(id)) {
			if e.Kind == converge.Notify {
				h.told[e.From] = append(h.told[e.From], g.Vertices[id].Key)
			}
		}
	}
	maps.DeleteFunc(h.owed, func(k converge.Key, _ int) bool { return g.ID(k) == converge.None })
	for _, f := range h.flights {
		for i := range f.targets {
			f.targets[i] = slices.DeleteFunc(f.targets[i], func(k converge.Key) bool { return g.ID(k) == converge.None })
		}
	}
	if h.engine != nil {
		out, err := h.engine.Swap(a.time(), g)
		must(0, err)
		h.carryOut(out)
		return nil
	}
	resume := converge.Resume{Converged: h.met, Pending: h.ledger.Pending, Budgets: map[converge.Key]converge.Budget{}}
	for _, b := range h.ledger.Budgets {
		resume.Budgets[b.Key] = converge.Budget{Digest: b.Digest, Attempts: b.Attempts, Holds: b.Holds, Wait: b.Wait}
	}
	h.engine = must(converge.New(g, converge.Options{Lanes: []converge.Lane{{Name: lane, Parallel: 4, Batch: 4}}}, a.w.random, resume))
	h.step(converge.Tick{})
	return nil
}

// activate is what the agent makes of a state that is handed over.
func (h *host) activate(s core.State) (wire.Verdict, error) {
	a, m := h.a, s.Enforces()
	if v := h.refused; v.Epoch == m.Epoch && v.Version == m.Version && v.Root == m.Root && v.Type != wire.Withheld && v.Type != wire.Pending {
		return v, nil
	}
	same := m.Root == h.life.Enforced.Root
	if !same {
		trial, poison := h.coming.Begin(m)
		if err := h.sets(trial); err != nil {
			return wire.Verdict{}, err
		}
		if poison != nil {
			return h.refuse(&s, h.verdictOn(m, wire.Quarantined, poison)), nil
		}
	}
	layers, err := h.read(m.Root)
	if err != nil {
		return wire.Verdict{}, err
	}
	a.checkState(&s)
	if same {
		return h.again(&s, m, layers)
	}
	d, err := h.make(m.Root, layers)
	var refusal *reason.Error
	if err != nil {
		refusal = reason.Of(err)
	} else {
		refusal = agentcore.Guard(claims(h.active.Entries), d.claims, s.Head.Consent)
	}
	if refusal != nil {
		if err := h.sets(agentcore.Trial{}); err != nil {
			return wire.Verdict{}, err
		}
		t := wire.Rejected
		if refusal.Code == reason.DeletionsWithheld {
			t = wire.Withheld
		}
		return h.refuse(&s, h.verdictOn(m, t, refusal)), nil
	}
	return h.enforce(&s, m, d)
}

func claims(entries []activeEntry) func(func(declare.Claim) bool) {
	return func(yield func(declare.Claim) bool) {
		for i := range entries {
			if !yield(entries[i].Claim) {
				return
			}
		}
	}
}

func (h *host) refuse(s *core.State, v wire.Verdict) wire.Verdict {
	if s.Trying == "" {
		h.refused = v
	}
	return v
}

// sets notes what the agent is on its way to.
func (h *host) sets(t agentcore.Trial) error {
	var data []byte
	if t != (agentcore.Trial{}) {
		data = twice(must(wire.Encode(&t)))
	}
	if err := h.a.held.disk.loose(comingFile, data); err != nil {
		return err
	}
	h.coming, h.onWay = t.End(), catalog.Digest{}
	if t.Open {
		h.onWay = t.Root
	}
	return nil
}

// again takes a later head of the state that is enforced.
func (h *host) again(s *core.State, m catalog.Mark, layers []catalog.DecodedLayer) (wire.Verdict, error) {
	next := h.life
	next.Enforced = m
	if next != h.life {
		if err := h.a.held.setLife(next); err != nil {
			return wire.Verdict{}, err
		}
		h.life = next
	}
	if h.active.Root != m.Root { // it was lost, and has been fetched again
		d, err := h.make(m.Root, layers)
		if err == nil {
			h.a.checkDesired(s, d)
			err = h.adopt(d)
		}
		if err != nil {
			return wire.Verdict{}, err
		}
	}
	if s.Trying == "" {
		h.refused = wire.Verdict{}
	}
	h.outlive()
	h.verdict = h.verdictOn(m, wire.Pending, nil)
	h.a.proven.active = m
	return h.verdict, nil
}

// enforce takes a state on.
func (h *host) enforce(s *core.State, m catalog.Mark, d *desired) (wire.Verdict, error) {
	way := h.coming
	way.Open = true
	was, next := h.life, h.life.on(m, way)
	h.a.checkDesired(s, d)
	if err := h.adopt(d); err != nil {
		return wire.Verdict{}, errors.Join(err, h.a.held.setLife(was))
	}
	h.life, h.a.proven.active = next, m
	// Whoever finds the active state without this note knows, see awake.
	_ = h.a.held.setLife(next)
	_ = h.sets(agentcore.Trial{})
	if s.Trying == "" {
		h.refused = wire.Verdict{}
	}
	h.verdict = h.verdictOn(m, wire.Pending, nil)
	return h.verdict, nil
}
