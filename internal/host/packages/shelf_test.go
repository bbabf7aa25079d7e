package packages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// shelf is a package manager in memory, which can all that a Backend may. Versions are ordered as texts.
type shelf struct {
	entries map[string]Entry
	offers  map[string]Offer // of what repositories have by now
	lists   map[string]Offer // of what was fetched
	fetched int
	bad     map[string]bool   // their scripts fail, and leave them Unfinished
	broken  map[string]bool   // their answers are refused
	needs   map[string]string // what has to go for a package
	drags   map[string]Move   // what changes with a package
	dies    int               // after so many changes; negative for never
	changes int               // Change was called
	asked   []string          // names, of Offers
	answers map[string]string
}

// errKilled is what everything ends with that comes after the last change.
var errKilled = errors.New("killed")

var _ interface {
	Backend
	Repairer
	Holder
	Purger
	Answerer
} = (*shelf)(nil)

func newShelf() *shelf {
	return &shelf{
		entries: map[string]Entry{}, offers: map[string]Offer{}, lists: map[string]Offer{}, bad: map[string]bool{},
		broken: map[string]bool{}, needs: map[string]string{}, drags: map[string]Move{}, dies: -1, answers: map[string]string{},
	}
}

// offer puts versions of a package into the repository, and with listed into the lists.
func (s *shelf) offer(name string, listed bool, versions ...string) {
	slices.SortFunc(versions, func(a, b string) int { return cmp.Compare(b, a) })
	s.offers[name] = Offer{Candidate: versions[0], Versions: versions}
	if listed {
		s.lists[name] = s.offers[name]
		s.fetched++
	}
}

// set changes one entry, unless that is one too many.
func (s *shelf) set(name string, e Entry) error {
	if s.dies == 0 {
		return &reason.Error{Code: reason.Interrupted, Cause: errKilled}
	}
	s.dies--
	s.entries[name] = e
	return nil
}

func (s *shelf) Here() error { return nil }

func (s *shelf) Ways() Ways {
	return Ways{
		Name: "shelf", Conffiles: true, Unhold: "shelf unhold", Finish: "shelf finish", Sources: "/shelf",
		Installed: []host.Watch{{Kind: host.WatchPath, Name: "/shelf/installed"}}, Lists: []host.Watch{{Kind: host.WatchPath, Name: "/shelf/lists"}},
	}
}

func (s *shelf) Compare(a, b string) int { return cmp.Compare(a, b) }

func (s *shelf) Look(names []string, _ bool) (Snapshot, error) {
	var now Snapshot
	for _, name := range names {
		now.Entries = append(now.Entries, s.entries[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		now.Unfinished = now.Unfinished || s.entries[name].State == Unfinished
		if s.entries[name].Held {
			now.Held = append(now.Held, name)
		}
	}
	return now, nil
}

func (s *shelf) Lists() (Lists, error) { return Lists{Fetched: fmt.Sprint(s.fetched)}, nil }

func (s *shelf) Offers(_ context.Context, names []string) (map[string]Offer, error) {
	s.asked = append(s.asked, names...)
	return maps.Clone(s.lists), nil
}

func (s *shelf) Update(context.Context) error {
	s.lists = maps.Clone(s.offers)
	s.fetched++
	return nil
}

func (s *shelf) Try(_ context.Context, x Transaction) (Outlook, error) {
	var o Outlook
	for _, step := range x.Steps {
		e := s.entries[step.Name]
		if step.Remove {
			o.Removes = append(o.Removes, step.Name)
			continue
		}
		if other := s.needs[step.Name]; other != "" && !s.entries[other].Gone() {
			o.Removes = append(o.Removes, other)
		}
		if m, does := s.drags[step.Name]; does {
			o.Changes = append(o.Changes, m)
		}
		to := cmp.Or(step.Version, s.lists[step.Name].Candidate)
		switch {
		case to == "":
			return Outlook{}, &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New("nobody has " + step.Name)}
		case to < e.Version && !x.Downgrade, e.Held && !x.Held:
			return Outlook{}, &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New("not allowed: " + step.Name)}
		case to != e.Version:
			o.Changes = append(o.Changes, Move{Name: step.Name, From: e.Version, To: to})
		}
	}
	return o, nil
}

func (s *shelf) Change(ctx context.Context, x Transaction) error {
	s.changes++
	if _, err := s.Try(ctx, x); err != nil {
		return err
	}
	var failed error
	for _, step := range x.Steps {
		e := s.entries[step.Name]
		switch {
		case step.Remove:
			e.State, e.Version, e.Word = Leftover, "", ""
		case s.bad[step.Name]:
			e.State, e.Word, e.Version = Unfinished, "half-way", cmp.Or(step.Version, s.lists[step.Name].Candidate)
			failed = &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New("its script failed"), Evidence: "words of " + step.Name}
		default:
			e.State, e.Word, e.Version = Present, "", cmp.Or(step.Version, s.lists[step.Name].Candidate)
			e.Held = false // as apt does
		}
		if err := s.set(step.Name, e); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

func (s *shelf) Repair(context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		if e.State != Unfinished {
			continue
		}
		if s.bad[name] {
			return &reason.Error{Code: reason.PackageToolFailed, Cause: errors.New(name + " is bad")}
		}
		e.State, e.Word = Present, ""
		if err := s.set(name, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Hold(_ context.Context, names []string, held bool) error {
	for _, name := range names {
		e := s.entries[name]
		e.Held = held
		if err := s.set(name, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Purge(_ context.Context, names []string) error {
	for _, name := range names {
		if err := s.set(name, Entry{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Answer(_ context.Context, name, answers string) error {
	if s.broken[name] {
		return &reason.Error{Code: reason.PackageAnswersRefused}
	}
	s.answers[name] = answers
	return nil
}

// bound are packages as declared, for a shelf.
func bound(t testing.TB, typ *Type, ps ...declare.Package) []host.Resource {
	t.Helper()
	rs := make([]host.Resource, len(ps))
	for i := range ps {
		res := declare.Resource{Name: "x", Package: &ps[i]}
		r, err := typ.Bind(t.Context(), host.Declared{Title: "package/x", Resource: res, Body: func() (declare.Resource, error) { return res, nil }})
		if err != nil {
			t.Fatal(err)
		}
		rs[i] = r
	}
	return rs
}

// outcome is what became of one package: a code, 0 where it is as declared; and the words.
type outcome struct {
	code    reason.Code
	words   string
	after   bool
	changes []host.Change
}

// converged checks and applies.
func converged(t testing.TB, typ *Type, rs []host.Resource) []outcome {
	t.Helper()
	outcomes := make([]outcome, len(rs))
	note := func(i int, err error) {
		if e := reason.Of(err); e != nil {
			outcomes[i].code, outcomes[i].words, outcomes[i].after = e.Code, strings.Join([]string{e.Error(), e.Hint, e.Evidence}, "; "), e.After > 0
			if e.Doing == "" {
				t.Errorf("an error that does not say what was done: %+v", e)
			}
		}
	}
	var plans []host.Plan
	var at []int
	for i, p := range typ.Check(t.Context(), rs, host.Shallow) {
		note(i, p.Err)
		outcomes[i].changes = p.Changes
		if p.Err == nil && !p.Empty() {
			plans, at = append(plans, p), append(at, i)
		}
	}
	for k, r := range typ.Apply(t.Context(), plans) {
		note(at[k], r.Err)
	}
	return outcomes
}

func typeOf(s *shelf) *Type { return New(Options{Backends: []Backend{s}}) }

func codes(outcomes []outcome) []reason.Code {
	list := make([]reason.Code, len(outcomes))
	for i, o := range outcomes {
		list[i] = o.code
	}
	return list
}
