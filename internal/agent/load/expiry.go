package load

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// ExpiredShown is how many of the entries that have expired are told by their names; the rest is counted. It is as many as a report lists.
const ExpiredShown = 1000

// Expiry is what of a state has expired, and when more of it does.
type Expiry struct {
	TTLs []time.Duration // that its entries have, each once, the shortest first
	Over int             // how many of those were over when it was made
	// Stands says that more may be left out than has expired: it was before, and is until the newest head was judged.
	Stands bool
	Count  int               // entries that are left out
	First  []catalog.Expired // of those, at most ExpiredShown

	proof catalog.Proof // by which it was made
}

// expire notes what is left out of the state, beside what was before.
func (d *State) expire(l catalog.Living, p catalog.Proof, before catalog.Digest) {
	d.without, d.expired = catalog.LeftOut(before, l.Expired), l.Expired
	d.Expiry = Expiry{TTLs: l.TTLs, Over: over(l.TTLs, p), Count: len(l.Expired), First: shown(l.Expired), proof: p}
}

func shown(list []catalog.Expired) []catalog.Expired {
	return slices.Clone(list[:min(len(list), ExpiredShown)]) // all of them may be 100,000
}

// After is what is known of a state when it takes the place of another one: where more may be left out of it than was found out, that is what was left
// out before.
func (e Expiry) After(was Expiry) Expiry {
	if !e.Stands {
		return e
	}
	e.TTLs = slices.Concat(was.TTLs, e.TTLs)
	slices.Sort(e.TTLs)
	e.TTLs = slices.Compact(e.TTLs)
	e.Over, e.Count, e.First = over(e.TTLs, e.proof), was.Count+e.Count, shown(slices.Concat(was.First, e.First))
	return e
}

// Heard is when the newest head was issued.
func (e *Expiry) Heard() time.Time { return e.proof.Issued }

// Earliest is the one that has expired first, and when; nil where none has.
func (e *Expiry) Earliest() (*catalog.Expired, time.Time) {
	if e.Count == 0 {
		return nil, time.Time{}
	}
	first := &e.First[0]
	for i := range e.First {
		if e.First[i].TTL < first.TTL {
			first = &e.First[i]
		}
	}
	return first, e.proof.Issued.Add(first.TTL)
}

// over counts the TTLs that are.
func over(ttls []time.Duration, p catalog.Proof) int {
	n := 0
	for n < len(ttls) && p.Expired(ttls[n]) {
		n++
	}
	return n
}

// Due reports whether the state is to be made anew, by what is proven now: something has expired; or something has not any more, and the
// newest head was judged. Before, it is the newest state that says what comes back.
func (e *Expiry) Due(p catalog.Proof, judged bool) bool {
	n := over(e.TTLs, p)
	return n > e.Over || judged && (n < e.Over || e.Stands)
}

// far is later than any TTL, and what an alarm is set to that is to ring only when clocks are set: 50 years.
const far = 50 * 365 * 24 * time.Hour

// Next is when the next of the state expires, unless something is heard before. Where all of it has, it is a time that does not come: a clock that is
// set back rings an alarm that is set. It is false where there are no TTLs.
func (e *Expiry) Next(p catalog.Proof) (time.Time, bool) {
	n := over(e.TTLs, p)
	switch {
	case len(e.TTLs) == 0, p.Issued.IsZero():
		return time.Time{}, false
	case n == len(e.TTLs):
		return p.Issued.Add(far), true
	}
	return p.Issued.Add(e.TTLs[n]), true
}

// Reason says of an entry why it is left out.
func (e *Expiry) Reason(x *catalog.Expired) *reason.Error {
	return e.proof.Unheard(fmt.Sprintf("keep %s of %s", x.Title, x.Config), x.TTL)
}

// changed reports whether something else is left out than before.
func (e *Expiry) changed(was *Expiry) bool {
	return e.Count != was.Count || !slices.EqualFunc(e.First, was.First, func(x, y catalog.Expired) bool { return x.Claim == y.Claim && x.Config == y.Config })
}

// Note keeps in the history what is left out, if that is something else than before, and reports whether it is.
func (e *Expiry) Note(st *store.Store, was *Expiry, now time.Time) (changed bool, err error) {
	if !e.changed(was) {
		return false, nil
	}
	for i := range e.First {
		x := &e.First[i]
		h := store.Happening{At: now, Claim: x.Claim.String(), Title: x.Title, Config: x.Config, Outcome: reason.NotApplicable.String(),
			Code: reason.ResourceExpired.String(), Message: e.Reason(x).Cause.Error()}
		if err := st.Append(h); err != nil {
			return true, err
		}
	}
	return true, nil
}

// Find is why what somebody asks for is left out; nil where it is not.
func (e *Expiry) Find(names func(title string, claim declare.Claim) bool) error {
	for i := range e.First {
		if x := &e.First[i]; names(x.Title, x.Claim) {
			return e.Reason(x)
		}
	}
	return nil
}

// Summary says in one error what has expired; nil where nothing has.
func (e *Expiry) Summary() *reason.Error {
	first, _ := e.Earliest()
	if first == nil {
		return nil
	}
	what := fmt.Sprintf("keep %s of %s", first.Title, first.Config)
	if e.Count > 1 {
		what += fmt.Sprintf(" and %d more", e.Count-1)
	}
	return e.proof.Unheard(what, first.TTL)
}
