package wire

import (
	"fmt"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// Bounds of a report that are of nobody else's interest.
const (
	sessionMax    = 64 // bytes of Session.ID
	factsMax      = 256
	factMax       = 4 << 10  // bytes of a fact
	factsBytesMax = 64 << 10 // of all facts and their names: they are stored with the Node; a host has some hundred bytes
	nameMax       = 256      // bytes of the name of a fact, of a version, of an outcome
	titleMax      = declare.ClaimBytesMax + nameMax
)

// Validate says what of a report is above its bounds. The host that sends it has cut it; one that has not wants to fill the server's
// memory. What is unknown in it, because the host is of a later version, is none of that.
func (r *Report) Validate() error {
	b := bounds{}
	b.text("session", r.Session.ID, sessionMax)
	b.text("verdict", r.Verdict.Message, MessageMax)
	b.count("configs", len(r.Configs), catalog.LayersMax+1)
	for i := range r.Configs {
		c := &r.Configs[i]
		b.text("id of a config", c.ID, declare.ClaimBytesMax)
		b.text("message of a config", c.Message, MessageMax)
	}
	b.count("problems", len(r.Problems), ProblemsMax)
	for i := range r.Problems {
		p := &r.Problems[i]
		b.text("title", p.Title, titleMax)
		b.text("claim", p.Claim, declare.ClaimBytesMax)
		b.text("config", p.Config, declare.ClaimBytesMax)
		b.text("outcome", p.Outcome, nameMax)
		b.text("message", p.Message, MessageMax)
	}
	if h := r.Host; h != nil {
		b.text("version", h.Version, nameMax)
		b.count("facts", len(h.Facts), factsMax)
		sum := 0
		for name, value := range h.Facts {
			b.text("name of a fact", name, nameMax)
			b.text("fact", value, factMax)
			sum += len(name) + len(value)
		}
		b.count("bytes of facts", sum, factsBytesMax)
	}
	return b.err
}

// bounds keeps the first thing that is out of them.
type bounds struct{ err error }

func (b *bounds) text(what, s string, most int) {
	if b.err == nil && len(s) > most {
		b.err = fmt.Errorf("its %s has %d bytes, at most %d are allowed", what, len(s), most)
	}
}

func (b *bounds) count(what string, n, most int) {
	if b.err == nil && n > most {
		b.err = fmt.Errorf("it has %d %s, at most %d are allowed", n, what, most)
	}
}
