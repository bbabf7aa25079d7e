package packages

import (
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// The fields of a package's changes.
const (
	fieldState   = "state"
	fieldVersion = "version"
	fieldHold    = "hold"
)

// The words for what is there and what is wanted.
const (
	wordPresent = "present"
	wordAbsent  = "absent"
	wordPurged  = "purged"
)

// goal is what is to become of a package, given what there is of it. It is what a plan carries.
type goal struct {
	seen    Entry
	install bool
	version string // to install; empty for the candidate, or where the lists do not have any that is allowed
	back    bool   // that is older than what is there
	remove  bool
	purge   bool
	hold    bool // it is marked in the end; changing a package may take the mark away
	unhold  bool // it is not
	held    bool // the mark that is there is ours to pass over
}

// met reports whether a package has got the version, or has gone, as the goal says. Marks and what is left of it come later.
func (g goal) met(e Entry) bool {
	switch {
	case g.remove:
		return e.Gone()
	case g.install:
		return e.State == Present && (g.version == "" || e.Version == g.version)
	}
	return true
}

// needsOffer reports whether only the lists say what is to become of the package.
func (r *resource) needsOffer(e Entry) bool {
	return !r.gone() && (r.state == declare.PackageLatest || r.version.Bounded() && !r.is(e))
}

// is reports whether the package is there in a version that is allowed.
func (r *resource) is(e Entry) bool {
	return e.State == Present && r.version.Allows(e.Version, r.back.Compare)
}

// goalOf says what is to become of a package. o is what the lists have of it, where needsOffer. It is pure.
func (r *resource) goalOf(e Entry, o Offer) goal {
	g := goal{seen: e}
	if r.gone() {
		purged := r.state == declare.PackagePurged
		g.remove = !e.Gone()
		g.purge = purged && e.State != Absent
		g.held = e.Held && r.hold != nil
		g.unhold = g.held && (g.remove || g.purge)
		return g
	}
	switch {
	case r.state == declare.PackageLatest:
		g.version = r.best(o)
		if e.Version != "" && (g.version == "" || r.back.Compare(e.Version, g.version) > 0) && r.version.Allows(e.Version, r.back.Compare) {
			g.version = e.Version // newer than what the lists have
		}
		g.install = e.State != Present || e.Version != g.version
	case r.is(e):
	case r.version.Bounded():
		g.install, g.version = true, r.best(o)
	default:
		g.install, g.version = true, r.version.Exact
	}
	g.back = g.install && g.version != "" && e.Version != "" && r.back.Compare(g.version, e.Version) < 0
	if r.hold != nil {
		g.hold, g.unhold = *r.hold, !*r.hold && e.Held
		g.held = e.Held
	}
	return g
}

// best is the version of an offer that is to be installed: the candidate if it is allowed, otherwise the newest that is; empty for none.
func (r *resource) best(o Offer) string {
	if o.Candidate != "" && r.version.Allows(o.Candidate, r.back.Compare) {
		return o.Candidate
	}
	for _, v := range o.Versions {
		if r.version.Allows(v, r.back.Compare) {
			return v
		}
	}
	return ""
}

// offered reports whether a package can be installed as the goal says.
func (g goal) offered(r *resource, o Offer) bool {
	switch {
	case g.version == "":
		return r.version.Exact == "" && !r.version.Bounded() && o.Candidate != ""
	case g.version == o.Candidate:
		return true
	}
	for _, v := range o.Versions {
		if v == g.version {
			return true
		}
	}
	return false
}

// changes is the goal for a person.
func (r *resource) changes(g goal) []host.Change {
	var changes []host.Change
	from := wordPresent
	switch {
	case g.seen.Gone():
		from = wordAbsent
	case g.seen.State == Unfinished:
		from = g.seen.Word
	}
	switch {
	case g.purge:
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordPurged})
	case g.remove:
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordAbsent})
	case g.install && from != wordPresent:
		changes = append(changes, host.Change{Field: fieldState, From: from, To: wordPresent})
	}
	if to := g.shown(r); g.install && to != "" && to != g.seen.Version {
		changes = append(changes, host.Change{Field: fieldVersion, From: g.seen.Version, To: to})
	}
	if g.hold && !g.seen.Held {
		changes = append(changes, host.Change{Field: fieldHold, From: "false", To: "true"})
	}
	if g.unhold && !g.remove && !g.purge {
		changes = append(changes, host.Change{Field: fieldHold, From: "true", To: "false"})
	}
	return changes
}

// shown is the version of a plan: the one to install, or what is asked for where the lists do not have any.
func (g goal) shown(r *resource) string {
	if g.version != "" || !r.version.Bounded() {
		return g.version
	}
	return r.bounds()
}

// bounds is the range as it was declared.
func (r *resource) bounds() string {
	var words []string
	for _, b := range r.version.Lower {
		words = append(words, map[bool]string{true: ">", false: ">="}[b.Open]+b.Version)
	}
	for _, b := range r.version.Upper {
		words = append(words, map[bool]string{true: "<", false: "<="}[b.Open]+b.Version)
	}
	return strings.Join(words, " ")
}

// refused is the error of a goal that may not be reached; nil where it may.
func (r *resource) refused(g goal) error {
	switch {
	case g.seen.Held && !g.held && !g.seen.Gone() && (g.install || g.remove || g.purge):
		return &reason.Error{Code: reason.PackageHeld, Doing: r.doing(),
			Hint: "somebody asked for it to stay as it is; `" + r.back.Ways().Unhold + " " + r.name + "` lets it change, and `hold: false` does so for good"}
	case g.back && !r.olderToo:
		return &reason.Error{Code: reason.PackageDowngrade, Doing: r.doing(), Cause: errOlder(g.seen.Version, g.version),
			Hint: "declare what is installed, or write options: {allowDowngrade: true}"}
	}
	return nil
}
