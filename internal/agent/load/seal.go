package load

import (
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// Open opens a sealed content with the keys that the host has now. Its error is SecretKeyMissing where it has none for it. It may be
// called from several goroutines.
type Open func(catalog.Sealed) ([]byte, error)

// Unseal fills in what is sealed, in memory alone: what Commit writes stays sealed. A resource whose content cannot be opened is not to be
// had, by its Item.Err; the others are not concerned. It is called before the resources are bound.
func (d *State) Unseal(open Open) {
	for i := range d.Compiled.Items {
		it := &d.Compiled.Items[i]
		if it.Entry < 0 || d.Entries[it.Entry].Sealed == nil || it.Err == nil || it.Err.Code != reason.SecretKeyMissing {
			continue
		}
		r, err := opened(&d.Entries[it.Entry], *it.Resource, open)
		it.Resource, it.Err = &r, reason.Of(err)
	}
}

// opened is a resource of an entry, expanded, with its content if that is sealed. What stands in a secret is never expanded.
func opened(e *catalog.Entry, r declare.Resource, open Open) (declare.Resource, error) {
	if e.Sealed == nil {
		return r, nil
	}
	content, err := open(*e.Sealed)
	if err != nil {
		why := reason.Of(err)
		return r, &reason.Error{Code: why.Code, Doing: core.Unready(e).Doing, Cause: why.Cause, Hint: why.Hint}
	}
	return r.Filled(string(content))
}
