package agent

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// part is one vertex of the graph as the loop knows it. There may be 100,000: it keeps no declaration.
type part struct {
	claim   declare.Claim
	title   string
	config  string
	place   string
	kind    declare.ResourceType
	when    string        // why it is not applicable; empty where it is
	err     *reason.Error // why it could not be bound; it is tried again at each check
	unfit   bool          // err stands as long as the state is not compiled anew
	res     host.Resource // nil until it is bound
	digest  converge.Digest
	restore bool          // what was there before the first change is kept
	hold    *catalog.Hold // it is looked at and not changed
	removal *removal      // not nil for what has left the declaration
	plan    host.Plan     // of the last check, until it is applied; then its changes, until they are told
	note    string        // of the last operation
	sound   int64         // when the last look at it began that found it as declared, nanoseconds since 1970; 0 is never
}

// removal is what is still to be undone.
type removal struct {
	how      declare.OnRemove
	done     bool
	resource declare.Resource // what was declared
}

func newPart(it *core.Item, digest converge.Digest) *part {
	return &part{claim: it.Claim, title: it.Title, config: it.Config, place: it.Place.String(), kind: it.Type, when: it.When, err: it.Err, unfit: it.Unfit,
		digest: digest, restore: it.OnRemove == declare.OnRemoveRestore, hold: it.Hold}
}

// Key is the part's in the graph.
func (p *part) Key() converge.Key { return core.Key(p.claim) }

// Watches lists what tells about a part. What is being undone, or is not applicable, is not watched.
func (p *part) Watches() []host.Watch {
	if p.res == nil || p.removal != nil || p.when != "" {
		return nil
	}
	return p.res.Watches()
}
