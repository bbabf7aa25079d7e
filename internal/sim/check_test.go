package sim

import (
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
	"tako.dev/tako/internal/trust"
)

// What one agent may do in a minute, however bad the minute is. A watch that fails at once is opened anew after half a second and more, and a
// request after as much.
const (
	requestsMax = 400
	watchesMax  = 60
	// stagedMax is above what a host stages of what a source sends, who may go on without end: the 4 MiB that it allows above the size of a state.
	stagedMax = 6 << 20
	// deathsMax is how often one state may kill an agent before it is quarantined.
	deathsMax = 3
)

// proof is what the invariants remember of an agent, beside everything that can be lost.
type proof struct {
	mark     catalog.Mark            // the highest that was accepted durably
	active   catalog.Mark            // what is enforced
	roots    map[catalog.Digest]bool // that were found right before they were enforced
	failedAt time.Time               // the last failed request of this run, on the clock of the host
	requests int
	minute   time.Time // in which the next two are counted
	asked    int
	watched  int
	// lateSince is since when something is enforced that has expired; zero where nothing is.
	lateSince time.Time
	first     firstToGo              // of what is active
	deaths    map[catalog.Digest]int // of the version that is accepted now, by what was read
	own       map[catalog.Digest]int // while that was enforced and not settled, and the agent was on its way to nothing else
}

func newProof() proof {
	return proof{roots: map[catalog.Digest]bool{{}: true}, own: map[catalog.Digest]int{}}
}

// clone is a copy that shares nothing.
func (p *proof) clone() proof {
	c := *p
	c.roots, c.own, c.deaths = maps.Clone(p.roots), maps.Clone(p.own), maps.Clone(p.deaths)
	return c
}

// dies notes what an agent has died of.
func (p *proof) dies(h *host) {
	if h.onWay == (catalog.Digest{}) || h.onWay == h.life.Enforced.Root {
		p.own[h.life.Enforced.Root]++
	} else {
		p.own[h.onWay]++ // it may have become the active one, and nobody has noted that
	}
}

// begins notes that a run begins: it may be asked for at once.
func (p *proof) begins(now time.Time) {
	p.failedAt, p.minute, p.asked, p.watched = time.Time{}, now, 0, 0
}

// counts notes one more request or watch.
func (p *proof) counts(a *agent, count *int, most int, what string) {
	if a.w.now.Sub(p.minute) >= time.Minute {
		p.minute, p.asked, p.watched = a.w.now, 0, 0
	}
	if *count++; *count > most {
		a.w.broken("T3", "%s makes %d %s within a minute", a.name, *count, what)
	}
}

// diesOf is T3: a state that kills the agent is not tried for ever. A later version of it is another one.
func (p *proof) diesOf(a *agent, root catalog.Digest) {
	if p.deaths == nil {
		p.deaths = map[catalog.Digest]int{}
	}
	if p.deaths[root]++; p.deaths[root] > deathsMax {
		a.w.broken("T3", "%s dies of one state for the %dth time", a.name, p.deaths[root])
	}
}

func (p *proof) opens(a *agent) { p.counts(a, &p.watched, watchesMax, "watches") }

// checkMark is A1: the mark is that of a head which was signed for this host, and never goes back, over whatever crash.
func (a *agent) checkMark() {
	if a.held == nil {
		return
	}
	mark := a.held.record.Mark
	if before(mark, a.proven.mark) {
		a.w.broken("A1", "the mark of %s goes back from %d/%d to %d/%d", a.name, a.proven.mark.Epoch, a.proven.mark.Version, mark.Epoch, mark.Version)
	}
	if !a.w.truth.signed[signedRoot{a.node, mark.Epoch, mark.Version, mark.Root}] && mark.Version > 0 {
		a.w.broken("A1", "%s accepts version %d of epoch %d with root %s, which nobody has signed for it", a.name, mark.Version, mark.Epoch, short(mark.Root))
	}
	if a.proven.mark.Version != mark.Version || a.proven.mark.Epoch != mark.Epoch {
		a.proven.deaths = nil
	}
	a.proven.mark = mark
}

// checkRequest is T3: between failed requests there is a pause, and nothing is asked for that was refused, or is not durably accepted.
func (a *agent) checkRequest(head []byte) (version uint64) {
	_, h, err := catalog.DecodeHead(head)
	must(0, err)
	r, p := &a.held.record, &a.proven
	switch v := r.Verdict; {
	case a.request != 0:
		a.w.broken("core", "%s makes a request while %d is open", a.name, a.request)
	case h.Epoch == r.Mark.Epoch && h.Version > r.Mark.Version:
		a.w.broken("A1", "%s fetches version %d, and its mark is at %d", a.name, h.Version, r.Mark.Version)
	case refuses(v.Type) && h.Version == v.Version && h.Epoch == v.Epoch:
		a.w.broken("T3", "%s fetches version %d, which it has refused", a.name, h.Version)
	case !p.failedAt.IsZero() && a.time().Sub(p.failedAt) < backoffLeast:
		a.w.broken("T3", "%s makes a request %s after one that failed", a.name, a.time().Sub(p.failedAt))
	}
	a.w.seen.Requests++
	p.requests++
	p.counts(a, &p.asked, requestsMax, "requests")
	return h.Version
}

// checkRefusal is T1: what a host refuses for good is wrong in itself, and not for what a source has made of it.
func (a *agent) checkRefusal(v *wire.Verdict) {
	if v.Code != reason.PriorityConflict && v.Code != reason.DeletionsWithheld && v.Code != reason.StateQuarantined {
		a.w.broken("T1", "%s refuses version %d for good: %s %s", a.name, v.Version, v.Code, v.Message)
	}
}

// checkStage is T2 of a host: a source that sends without end fills no disk.
func (a *agent) checkStage() {
	if data, _ := a.disk.read(stageFile); len(data) > stagedMax {
		a.w.broken("T2", "%s has staged %d bytes", a.name, len(data))
	}
}

// checkState is A1: what is handed over was signed for this host, its root is that of what is on the disk, and nothing older than what is
// enforced is handed over.
func (a *agent) checkState(s *core.State) {
	w := a.w
	w.seen.Activated++
	if !w.truth.signed[signedRoot{a.node, s.Mark.Epoch, s.Mark.Version, s.Mark.Root}] {
		w.broken("A1", "%s is handed version %d with root %s, which nobody has signed for it", a.name, s.Mark.Version, short(s.Mark.Root))
	}
	if before(s.Mark, a.proven.active) {
		w.broken("A1", "the state of %s goes back from version %d to %d", a.name, a.proven.active.Version, s.Mark.Version)
	}
	encoded, err := a.held.List(s.Root)
	must(0, err)
	if list, err := catalog.DecodeList(encoded); err != nil || !slices.Equal(list, s.List) {
		w.broken("A1", "%s is handed version %d with a list that it does not hold", a.name, s.Mark.Version)
	}
	signed := w.truth.lists[s.Mark.Root]
	if len(signed) != len(s.List) {
		w.broken("A1", "%s is handed version %d with %d layers of %d", a.name, s.Mark.Version, len(s.List), len(signed))
	}
	for i, l := range s.List {
		if l.ID != signed[i].ID || l.Priority != signed[i].Priority {
			w.broken("A1", "%s is handed version %d with layer %s in place of %s", a.name, s.Mark.Version, l.ID, signed[i].ID)
		}
		if l.Root != signed[i].Root {
			a.checkOrder(s, &l)
		}
		if have := a.held.layer(l.Root); have == nil || have.trie.Root() != w.truth.layers[l.Root].trie.Root() {
			w.broken("A1", "%s is handed version %d without all of layer %s", a.name, s.Mark.Version, l.ID)
		}
	}
	if s.Trying != "" {
		w.seen.Trials++
	}
}

// checkOrder is A1 of a layer whose root no head names: an operator's statement does, of this epoch, which no head has absorbed, whose key was not
// revoked, and which is durable.
func (a *agent) checkOrder(s *core.State, l *catalog.Layer) {
	document := a.chain.Current()
	for _, o := range a.w.truth.told[l.Root] {
		absorbed := slices.ContainsFunc(s.Head.Absorbed, func(x catalog.AbsorbedNumber) bool { return x.Layer == l.ID && o.Number <= x.Number })
		revoked := slices.ContainsFunc(document.Revoked, func(r trust.Revocation) bool { return r.Key.ID() == o.Key })
		known := slices.ContainsFunc(document.Keys, func(k trust.RoleKey) bool { return k.Role == trust.RoleOperator && k.Key.ID() == o.Key })
		durable := slices.ContainsFunc(a.held.statements, func(x core.Statement) bool { return x.Layer == l.ID && x.Number >= o.Number })
		if o.Layer == l.ID && o.Epoch == s.Mark.Epoch && !absorbed && !revoked && known && durable {
			return
		}
	}
	a.w.broken("A1", "%s is handed version %d with layer %s at %s, which neither the head nor a statement that counts names", a.name, s.Mark.Version, l.ID, short(l.Root))
}

// checkDesired is A2: what is going to be enforced is all that the layers say: of each claim what the highest priority wants.
func (a *agent) checkDesired(s *core.State, d *desired) {
	w := a.w
	if d.root != s.Root {
		w.broken("A2", "%s is to enforce root %s, and version %d has %s", a.name, short(d.root), s.Mark.Version, short(s.Root))
	}
	a.checkEntries(s.List, d.entries)
	a.checkDeletions(s, d)
	a.proven.roots[d.root] = true
}

// checkDeletions is A2 of the blast guard: what deletes more than half, and more than a handful, has consent.
func (a *agent) checkDeletions(s *core.State, d *desired) {
	stays := map[declare.Claim]bool{}
	for i := range d.entries {
		stays[d.entries[i].Claim] = true
	}
	for i := range d.expired { // that was declared so
		stays[d.expired[i].Claim] = true
	}
	had, deleted := len(a.host.active.Entries), 0
	for i := range a.host.active.Entries {
		if !stays[a.host.active.Entries[i].Claim] {
			deleted++
		}
	}
	if deleted > 5 && deleted*100 > had*max(50, int(s.Head.Consent)) {
		a.w.broken("A2", "%s is to delete %d of %d without consent", a.name, deleted, had)
	}
}

// checkHost is A2 and A3: what is on the disk as the active state was found right before, and whoever must be told of a change is in the ledger.
func (a *agent) checkHost() {
	h := &a.host
	if !a.proven.roots[h.active.Root] {
		a.w.broken("A2", "the active state of %s has the root %s", a.name, short(h.active.Root))
	}
	a.checkTTL()
	for k := range h.owed {
		if !slices.ContainsFunc(h.ledger.Pending, func(p converge.Pending) bool { return p.Target == k }) {
			a.w.broken("A3", "something that %s comes after was changed on %s, and nothing durable says that it must be told", k, a.name)
		}
	}
}

// settled is T1: every host is where it should be, or says with a code why it is not.
func (w *world) settled() {
	w.say("the world has settled")
	for _, a := range w.agents {
		if !a.up {
			w.broken("T1", "%s does not run", a.name)
		}
		want := w.store.present[a.node]
		status, e := a.machine.Status(), a.held.record.Life.Enforced
		v := status.Verdict
		withheld := status.Open && v.Type == wire.Withheld && v.Code != 0 && v.Version == want.version && want.consent == 0
		if (e.Epoch != w.by.epoch() || e.Version != want.version) && !withheld {
			w.broken("T1", "%s enforces version %d of epoch %d, and version %d of epoch %d is assigned to it", a, e.Version, e.Epoch, want.version, w.by.epoch())
		}
		if withheld {
			w.seen.Faults["still withheld"]++
		} else if root := a.arranged(want.list, status.Statements); root != e.Root {
			w.broken("T1", "%s enforces the root %s, and with its statements version %d has %s", a, short(e.Root), want.version, short(root))
		}
		a.host.check()
		a.proven.requests = 0
	}
}

// arranged is the root of a list with the statements that the agent says are in force.
func (a *agent) arranged(list catalog.List, statements []wire.Statement) catalog.Digest {
	changed := slices.Clone(list)
	for i := range changed {
		for _, s := range statements {
			if s.Layer == changed[i].ID && s.Code == 0 {
				changed[i].Root = s.Root
			}
		}
	}
	return catalog.ListRoot(must(changed.Encode()))
}

// check is T1, A2 and A3 of a host that has come to rest: it is as declared, nothing that has left is there, and nobody waits to be told.
func (h *host) check() {
	a := h.a
	if h.active.Root != h.life.Enforced.Root {
		a.w.broken("A2", "%s says that it enforces %s, and %s is active", a.name, short(h.life.Enforced.Root), short(h.active.Root))
	}
	if list := must(catalog.DecodeList(must(a.held.List(h.active.Root)))); h.judged() && a.whole(list) {
		a.checkEntries(list, h.active.Entries)
	}
	declared := map[converge.Key]bool{}
	for _, e := range h.active.Entries {
		k := agentcore.Key(e.Claim)
		declared[k] = true
		if h.actual[k] != converge.Digest(e.Digest) {
			a.w.broken("T1", "%s is not as declared on %s: %+v", k, a.name, h.engine.Status(h.compiled.Graph.ID(k)))
		}
	}
	for _, k := range sortedOf(h.actual) {
		if claim, ok := declare.ParseClaim(string(k)); ok && claim.Kind == declare.ClaimPath && !declared[k] {
			a.w.broken("A3", "%s was to be removed from %s, and is there", k, a.name)
		}
	}
	if len(h.owed) > 0 || len(h.ledger.Pending) > 0 || len(h.ledger.Removals) > 0 {
		a.w.broken("A3", "%s is at rest, and %v are owed, %v pending, %d removals", a.name, sortedOf(h.owed), h.ledger.Pending, len(h.ledger.Removals))
	}
}

// rested is T3: who has what is assigned asks for nothing.
func (w *world) rested() {
	for _, a := range w.agents {
		if a.proven.requests > 0 {
			w.broken("T3", "%s makes %d requests for what it has", a, a.proven.requests)
		}
	}
	w.say("the world ends: %d activated, %d refused, %d requests", w.seen.Activated, w.seen.Refused, w.seen.Requests)
}

// refuses tells whether a verdict is that a host will not have something.
func refuses(t wire.VerdictType) bool {
	return t == wire.Rejected || t == wire.Withheld || t == wire.Quarantined
}
