package sim

import (
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

const (
	// The TTLs of what people declare: longer than a signature is repeated and takes to come around, and short enough for a clock that is ahead, or a
	// host that hears nothing.
	ttlShort = "5m"
	ttlLong  = "8m"
	// roomEvery is how often it is tried whether there is room again on a disk.
	roomEvery = 10 * time.Second
	// outliveMax is how long after its time something may be enforced while there is room: until that is tried, and it is written down.
	outliveMax = roomEvery + 2*time.Second
)

// expiry is what may expire of a state: package agent/load.
type expiry struct {
	ttls   []time.Duration
	over   int
	stands bool
}

func expiryOf(ttls []time.Duration, p catalog.Proof) expiry {
	return expiry{ttls: ttls, over: over(ttls, p)}
}

func over(ttls []time.Duration, p catalog.Proof) (n int) {
	for n < len(ttls) && p.Expired(ttls[n]) {
		n++
	}
	return n
}

// proof is when the servers were proven to be alive last: package agent/held.
func (h *host) proof() catalog.Proof {
	held := h.a.held
	p := catalog.Proof{Issued: time.Unix(held.record.Mark.Issued, 0), Now: h.a.time()}
	last := held.record.Mark.Issued
	for i := range held.statements {
		last = max(last, held.statements[i].Issued)
	}
	if at := time.Unix(last, 0); at.After(p.Now) {
		p.Now = at
	}
	return p
}

// judged tells whether the host has decided about the newest head.
func (h *host) judged() bool {
	r := &h.a.held.record
	return refuses(r.Verdict.Type) || r.Mark.Epoch == r.Life.Enforced.Epoch && r.Mark.Version == r.Life.Enforced.Version
}

// lastGood is the active state without what of it has expired.
func (h *host) lastGood() *desired {
	var entries []catalog.Entry
	for i := range h.active.Entries {
		e := must(catalog.Decode(h.active.Entries[i].Body))
		e.Config = h.active.Entries[i].Config
		entries = append(entries, e)
	}
	p := h.proof()
	kept, living := catalog.Remaining(entries, p)
	d := &desired{root: h.active.Root, without: catalog.LeftOut(h.active.Without, living.Expired), expired: living.Expired, expiry: expiryOf(living.TTLs, p)}
	d.expiry.stands = h.active.Without != catalog.Digest{}
	if len(living.Expired) > 0 {
		h.leave(d, kept)
		return d
	}
	d.entries, d.removals, d.compiled = h.active.Entries, h.ledger.Removals, h.compile(entries, h.ledger.Removals)
	return d
}

// claims are what a state has, and what of it has expired.
func (d *desired) claims(yield func(declare.Claim) bool) {
	for i := range d.entries {
		if !yield(d.entries[i].Claim) {
			return
		}
	}
	for i := range d.expired {
		if !yield(d.expired[i].Claim) {
			return
		}
	}
}

// await has the host woken when the next thing expires.
func (h *host) await() {
	p := h.proof()
	if n := over(h.ttls, p); n < len(h.ttls) {
		h.alarm++
		alarm := h.alarm
		h.a.every(max(p.Issued.Add(h.ttls[n]).Sub(h.a.time()), time.Millisecond), func() {
			if h.alarm == alarm {
				h.outlive()
			}
		})
	}
}

// heard is when a head was accepted or judged.
func (h *host) heard() { h.a.every(time.Millisecond, h.outlive) }

// outlive makes the enforced state anew where something has expired, or is back.
func (h *host) outlive() {
	if h.engine == nil {
		return
	}
	n := over(h.ttls, h.proof())
	if n <= h.over && !(h.judged() && (n < h.over || h.stands)) {
		h.await()
		return
	}
	d, err := h.before()
	if err == nil {
		if h.active.Root != d.root || h.active.Without != d.without {
			h.a.w.say("%s has %d entries of version %d, %d have expired", h.a.name, len(d.entries), h.life.Enforced.Version, len(d.expired))
			h.a.w.seen.Expiries++
		}
		h.a.checkLiving(d)
		err = h.adopt(d)
	}
	if err != nil {
		h.a.every(roomEvery, h.outlive)
	}
}

// expired tells whether a resource has, by the words of the specification: it does not ask the code that decides.
func (a *agent) expired(r *declare.Resource) bool {
	p := a.host.proof()
	return r.TTL != "" && p.Now.Sub(p.Issued) >= must(time.ParseDuration(r.TTL))
}

// living are the configs that win each claim in a list, of what has not expired.
func (a *agent) living(list catalog.List) map[declare.Claim]string {
	wants := map[declare.Claim]string{}
	for _, l := range list { // the highest priority first
		acting := a.w.truth.parsed[l.Root].acting
		for i := range acting {
			if claim := acting[i].Resource.Claim().Of(l.ID); wants[claim] == "" && !a.expired(&acting[i].Resource) {
				wants[claim] = l.ID
			}
		}
	}
	return wants
}

// checkLiving is A2 of a state that was made anew because of the time: it has all that has not expired. Of layers that are lost it has what is left.
func (a *agent) checkLiving(d *desired) {
	if encoded, err := a.held.List(d.root); err == nil && encoded != nil && d.fresh && !d.expiry.stands && a.whole(must(catalog.DecodeList(encoded))) {
		a.checkEntries(must(catalog.DecodeList(encoded)), d.entries)
	}
}

// whole tells whether all layers of a list can be read, and nothing in them contradicts.
func (a *agent) whole(list catalog.List) bool {
	var layers []catalog.DecodedLayer
	for _, l := range list {
		content, known := a.w.truth.parsed[l.Root]
		if a.held.layer(l.Root) == nil || !known {
			return false
		}
		layers = append(layers, catalog.DecodedLayer{ID: l.ID, Priority: l.Priority, Entries: content.acting})
	}
	_, conflicts := catalog.ResolveLayers(catalog.Alive(layers, a.host.proof()).Layers)
	return len(conflicts) == 0
}

// checkEntries is A2: what is enforced is all that a list says and has not expired, of each claim what the highest priority wants.
func (a *agent) checkEntries(list catalog.List, entries []activeEntry) {
	wants := a.living(list)
	if len(wants) != len(entries) {
		a.w.broken("A2", "%s is to enforce %d entries of version %d, and of what has not expired there are %d", a.name, len(entries), a.host.life.Enforced.Version, len(wants))
	}
	for i := range entries {
		if e := &entries[i]; wants[e.Claim] != e.Config {
			a.w.broken("A2", "%s is to enforce %s of %s, and %s has won it", a.name, e.Claim, e.Config, wants[e.Claim])
		}
	}
}

// checkTTL is A2 of time: nothing is enforced any more that has expired, but for as long as it takes to write that down.
func (a *agent) checkTTL() {
	since := &a.proven.lateSince
	if !a.up || a.host.engine == nil || a.disk.full {
		*since = time.Time{}
		return
	}
	active := &a.host.active
	if first := &a.proven.first; first.root != active.Root || first.without != active.Without {
		*first = firstToGo{root: active.Root, without: active.Without}
		for i := range active.Entries {
			if e := &active.Entries[i]; e.TTL != "" && (first.ttl == "" || must(time.ParseDuration(e.TTL)) < must(time.ParseDuration(first.ttl))) {
				first.ttl, first.claim = e.TTL, e.Claim
			}
		}
	}
	first := &a.proven.first
	if first.ttl == "" || !a.expired(&declare.Resource{TTL: first.ttl}) {
		*since = time.Time{}
		return
	}
	if since.IsZero() {
		*since = a.w.now
	}
	if a.w.now.Sub(*since) > outliveMax {
		a.w.broken("A2", "%s enforces %s for %s after its TTL of %s was over", a.name, first.claim, a.w.now.Sub(*since), first.ttl)
	}
}

// firstToGo is the entry of an active state that expires first.
type firstToGo struct {
	root, without catalog.Digest
	ttl           string
	claim         declare.Claim
}
