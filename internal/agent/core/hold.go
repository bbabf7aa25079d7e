package core

import (
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// Held returns the hold that keeps what a config wants of a claim from being changed now: of several the one that ends last; nil if
// there is none.
func Held(holds []catalog.Hold, config string, claim declare.Claim, now time.Time) *catalog.Hold {
	var longest *catalog.Hold
	for i := range holds {
		if h := &holds[i]; h.Covers(config, claim, now) && (longest == nil || h.Until > longest.Until) {
			longest = h
		}
	}
	return longest
}

// HoldEnds is when the first of the holds ends that have not; false if none has still to end.
func HoldEnds(holds []catalog.Hold, now time.Time) (time.Time, bool) {
	first := int64(0)
	for i := range holds {
		if u := holds[i].Until; u > now.Unix() && (first == 0 || u < first) {
			first = u
		}
	}
	return time.Unix(first, 0), first != 0
}

// Hold notes in each item by what it is held now. The graph is the same with holds and without.
func (c *Compiled) Hold(holds []catalog.Hold, now time.Time) {
	for i := range c.Items {
		it := &c.Items[i]
		it.Hold = Held(holds, it.Config, it.Claim, now)
	}
}
