package agent

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// part is one vertex of the graph as the loop knows it. There may be 100,000, so it keeps no declaration, and what few have is apart.
type part struct {
	vertex  *converge.Vertex
	config  string
	kind    declare.ResourceType
	err     *reason.Error // why it could not be bound; it is tried again at each check
	res     host.Resource // nil until it is bound
	found   *host.Plan    // of the last check, until it is applied; then its changes, until they are told; nil for nothing
	sound   int64         // when the last look at it began that found it as declared, nanoseconds since 1970; 0 is never
	removal *removal      // not nil for what has left the declaration
	*rare                 // never nil, and shared: it is changed by replacing it
	unfit   bool          // err stands as long as the state is not compiled anew
	restore bool          // what was there before the first change is kept
}

// rare is what few parts have, and no operation looks at: those run beside the loop.
type rare struct {
	when string        // why it is not applicable; empty where it is
	hold *catalog.Hold // it is looked at and not changed
	note string        // of the last operation
}

// common is the rare of a part that has nothing of it.
var common rare

// removal is what is still to be undone.
type removal struct {
	how      declare.OnRemove
	done     bool
	resource declare.Resource // what was declared
}

func newPart(it *core.Item, v *converge.Vertex) part {
	p := part{vertex: v, config: it.Config, kind: it.Type, err: it.Err, unfit: it.Unfit, restore: it.OnRemove == declare.OnRemoveRestore, rare: &common}
	p.set(rare{when: it.When, hold: it.Hold})
	return p
}

// set replaces what is rare of a part.
func (p *part) set(r rare) {
	if r == common {
		p.rare = &common
		return
	}
	own := r // r itself would be on the heap each time
	p.rare = &own
}

func (p *part) setHold(h *catalog.Hold) {
	r := *p.rare
	r.hold = h
	p.set(r)
}

func (p *part) setNote(note string) {
	r := *p.rare
	r.note = note
	p.set(r)
}

// plan is what the last check found, or has been done about it and is not told yet.
func (p *part) plan() host.Plan {
	if p.found == nil {
		return host.Plan{}
	}
	return *p.found
}

// setPlan keeps a plan that has something to do, or has done something.
func (p *part) setPlan(plan host.Plan) {
	p.found = nil
	if plan.Err != nil || !plan.Empty() {
		p.found = &plan
	}
}

// Key is the part's in the graph.
func (p *part) Key() converge.Key { return p.vertex.Key }

func (p *part) title() string { return p.vertex.Title }

// claim is what the part is about.
func (p *part) claim() declare.Claim {
	c, _ := declare.ParseClaim(string(p.vertex.Key))
	return c
}

// Watches lists what tells about a part. What is being undone, or is not applicable, is not watched.
func (p *part) Watches() []host.Watch {
	if p.res == nil || p.removal != nil || p.when != "" {
		return nil
	}
	return p.res.Watches()
}
