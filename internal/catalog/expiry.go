package catalog

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Proof is when the control plane of a host was proven to be alive last, and what time it is taken to be now. The zero value is of a host
// that has none: nothing expires there.
type Proof struct {
	Issued time.Time // of the newest head that the host has accepted
	Now    time.Time // not before anything was issued that was verified
}

// Expired reports whether a TTL is over. 0 is none.
func (p Proof) Expired(ttl time.Duration) bool {
	return ttl > 0 && !p.Issued.IsZero() && p.Now.Sub(p.Issued) >= ttl
}

// Expired is an entry that is left out because its TTL is over.
type Expired struct {
	Claim  declare.Claim
	Title  string
	Config string
	// TTL is its own; of what is only for the case that something else fails, that of the other.
	TTL time.Duration
}

// Unheard is the error of what has expired: nothing was heard of the servers for so long. doing is what it keeps from being done.
func (p Proof) Unheard(doing string, ttl time.Duration) *reason.Error {
	return &reason.Error{Code: reason.ResourceExpired, Doing: doing, Hint: "it comes back by itself when a server is heard: `tako-agent status` says what is in the way",
		Cause: fmt.Errorf("its ttl of %s is over: the newest that was heard of the servers is from %s", ttl, p.Issued.UTC().Format(time.RFC3339))}
}

// Living is what is left of layers.
type Living struct {
	Layers  []DecodedLayer
	Expired []Expired       // what was left out, in the order of the layers
	TTLs    []time.Duration // of all that was there, each once, the shortest first
}

// Alive leaves out of layers what has expired, as if it had never been in them: so what a layer of a lower priority wants of the same claim takes
// its place. It shares memory with the layers.
func Alive(layers []DecodedLayer, p Proof) Living {
	out := Living{Layers: layers}
	for i := range layers {
		l := &layers[i]
		gone := over(l.Entries, p, func(d *Desired) (string, time.Duration, []string) {
			ttl := d.Resource.TimeToLive()
			out.notes(ttl)
			return d.Claim, ttl, d.Failure
		})
		if len(gone) == 0 {
			continue
		}
		if len(out.Expired) == 0 {
			out.Layers = slices.Clone(layers)
		}
		kept := make([]Desired, 0, len(l.Entries))
		for j := range l.Entries {
			d := &l.Entries[j]
			if ttl, expired := gone[d.Claim]; expired {
				out.Expired = append(out.Expired, Expired{Claim: claimOf(d.Claim, l.ID), Title: d.title(), Config: l.ID, TTL: ttl})
				continue
			}
			kept = append(kept, *d)
		}
		out.Layers[i].Entries = kept
	}
	out.each()
	return out
}

// Remaining is what is left of entries, where the layers are not at hand that they were resolved from: nothing takes the place of what has expired.
// The Layers of what it returns are none.
func Remaining(entries []Entry, p Proof) ([]Entry, Living) {
	var out Living
	gone := over(entries, p, func(e *Entry) (declare.Claim, time.Duration, []declare.Claim) {
		var failure []declare.Claim
		for _, ref := range e.Failure {
			failure = append(failure, ref.Claim)
		}
		ttl := e.Resource.TimeToLive()
		out.notes(ttl)
		return e.Claim(), ttl, failure
	})
	out.each()
	if len(gone) == 0 {
		return entries, out
	}
	kept := make([]Entry, 0, len(entries))
	for i := range entries {
		e := &entries[i]
		if ttl, expired := gone[e.Claim()]; expired {
			out.Expired = append(out.Expired, Expired{Claim: e.Claim(), Title: e.Title(), Config: e.Config, TTL: ttl})
			continue
		}
		kept = append(kept, *e)
	}
	return kept, out
}

// notes takes a TTL that there is.
func (l *Living) notes(ttl time.Duration) {
	if n := len(l.TTLs); ttl > 0 && (n == 0 || l.TTLs[n-1] != ttl) {
		l.TTLs = append(l.TTLs, ttl)
	}
}

// each leaves each TTL once.
func (l *Living) each() {
	slices.Sort(l.TTLs)
	l.TTLs = slices.Compact(l.TTLs)
}

// over finds what of a list has expired, by its claim, with the TTL. What is wanted only while that has failed goes with it: nobody would say any
// more that it has not, and it would be taken for something that is wanted always.
func over[E any, C comparable](list []E, p Proof, of func(*E) (claim C, ttl time.Duration, failure []C)) map[C]time.Duration {
	gone, more := map[C]time.Duration{}, false
	for i := range list {
		if claim, ttl, failure := of(&list[i]); p.Expired(ttl) {
			gone[claim] = ttl
			more = more || len(failure) > 0
		}
	}
	for more { // each round adds to what is gone, which ends with the list
		more = false
		wanted := map[C]bool{}
		for i := range list {
			claim, _, failure := of(&list[i])
			if _, expired := gone[claim]; expired {
				continue
			}
			for _, f := range failure {
				wanted[f] = true
			}
		}
		for i := range list {
			claim, _, failure := of(&list[i])
			ttl, expired := gone[claim]
			if !expired {
				continue
			}
			for _, f := range failure {
				if _, already := gone[f]; !already && !wanted[f] {
					gone[f], more = ttl, true
				}
			}
		}
	}
	return gone
}

// LeftOut identifies what is left out of a state, beside what was left out of it before; the zero digest is nothing.
func LeftOut(before Digest, expired []Expired) Digest {
	if len(expired) == 0 {
		return before
	}
	h := sha256.New()
	h.Write(before[:])
	for i := range expired {
		for _, text := range []string{expired[i].Config, expired[i].Claim.String()} {
			h.Write([]byte(text))
			h.Write([]byte{0})
		}
	}
	return Digest(h.Sum(nil))
}
