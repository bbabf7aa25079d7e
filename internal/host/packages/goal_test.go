package packages

import (
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

func wanted(state declare.PackageState, version string) declare.Package {
	return declare.Package{Package: "one", State: state, Version: version}
}

func TestGoals(t *testing.T) {
	change := func(field, from, to string) host.Change { return host.Change{Field: field, From: from, To: to} }
	yes, no := true, false
	older := func(p declare.Package) declare.Package {
		p.Options = &declare.PackageOptions{AllowDowngrade: true}
		return p
	}
	held := func(p declare.Package, is *bool) declare.Package { p.Hold = is; return p }
	const present, latest, absent, purged = declare.PackagePresent, declare.PackageLatest, declare.PackageAbsent, declare.PackagePurged
	there := func(version string) Entry { return Entry{State: Present, Version: version} }
	kept := func(version string) Entry { return Entry{State: Present, Version: version, Held: true} }
	for _, row := range []struct {
		p    declare.Package
		e    Entry
		want []host.Change
		code reason.Code
	}{
		{p: wanted(present, ""), want: []host.Change{change("state", "absent", "present")}},
		{p: wanted(present, ""), e: Entry{State: Leftover}, want: []host.Change{change("state", "absent", "present")}},
		{p: wanted(present, ""), e: there("1")},
		{p: wanted(present, "1"), e: there("1")},
		{p: wanted(present, "2"), e: there("1"), want: []host.Change{change("version", "1", "2")}},
		{p: wanted(present, "1"), e: there("2"), code: reason.PackageDowngrade},
		{p: older(wanted(present, "1")), e: there("2"), want: []host.Change{change("version", "2", "1")}},
		{p: wanted(present, "2"), want: []host.Change{change("state", "absent", "present"), change("version", "", "2")}},
		{p: wanted(present, ""), e: Entry{State: Unfinished, Word: "half", Version: "1"}, want: []host.Change{change("state", "half", "present")}},
		{p: wanted(present, "2"), e: kept("1"), code: reason.PackageHeld},
		{p: wanted(present, "1"), e: kept("1")},

		{p: wanted(present, ">=1 <3"), e: there("1")},
		{p: wanted(present, ">=2 <3"), e: there("1"), want: []host.Change{change("version", "1", "2")}},
		{p: wanted(present, ">1 <3"), want: []host.Change{change("state", "absent", "present"), change("version", "", "2")}},
		{p: wanted(present, ">=4"), e: there("1"), want: []host.Change{change("version", "1", ">=4")}},
		{p: wanted(present, "<=2"), e: there("3"), code: reason.PackageDowngrade},
		{p: older(wanted(present, "<=2")), e: there("3"), want: []host.Change{change("version", "3", "2")}},

		{p: wanted(latest, ""), e: there("3")},
		{p: wanted(latest, ""), e: there("2"), want: []host.Change{change("version", "2", "3")}},
		{p: wanted(latest, ""), e: there("4")},
		{p: wanted(latest, "<3"), e: there("1"), want: []host.Change{change("version", "1", "2")}},
		{p: wanted(latest, "<3"), e: there("2")},
		{p: wanted(latest, ""), want: []host.Change{change("state", "absent", "present"), change("version", "", "3")}},
		{p: wanted(latest, ""), e: kept("2"), code: reason.PackageHeld},

		{p: wanted(absent, "")},
		{p: wanted(absent, ""), e: Entry{State: Leftover}},
		{p: wanted(absent, ""), e: there("1"), want: []host.Change{change("state", "present", "absent")}},
		{p: wanted(absent, ""), e: Entry{State: Unfinished, Word: "half"}, want: []host.Change{change("state", "half", "absent")}},
		{p: wanted(absent, ""), e: kept("1"), code: reason.PackageHeld},
		{p: wanted(purged, "")},
		{p: wanted(purged, ""), e: Entry{State: Leftover}, want: []host.Change{change("state", "absent", "purged")}},
		{p: wanted(purged, ""), e: there("1"), want: []host.Change{change("state", "present", "purged")}},

		{p: held(wanted(present, ""), &yes), e: there("1"), want: []host.Change{change("hold", "false", "true")}},
		{p: held(wanted(present, ""), &yes), e: kept("1")},
		{p: held(wanted(present, "2"), &yes), e: kept("1"), want: []host.Change{change("version", "1", "2")}},
		{p: held(wanted(present, ""), &yes), want: []host.Change{change("state", "absent", "present"), change("hold", "false", "true")}},
		{p: held(wanted(present, ""), &no), e: kept("1"), want: []host.Change{change("hold", "true", "false")}},
		{p: held(wanted(present, "2"), &no), e: kept("1"), want: []host.Change{change("version", "1", "2"), change("hold", "true", "false")}},
		{p: held(wanted(present, ""), &no), e: there("1")},
	} {
		s := newShelf()
		s.offer("one", true, "1", "2", "3")
		s.entries["one"] = row.e
		typ := typeOf(s)
		p := typ.Check(t.Context(), bound(t, typ, row.p), host.Shallow)[0]
		if !slices.Equal(p.Changes, row.want) || (p.Err != nil || row.code != 0) && !reason.Is(p.Err, row.code) {
			t.Errorf("%+v with %+v: %v, %v", row.p, row.e, p.Changes, p.Err)
		}
	}
}

func TestBind(t *testing.T) {
	d := host.Declared{Title: "package/one", Resource: declare.Resource{Name: "one", Package: &declare.Package{}}}
	if _, err := New(Options{Sandbox: true, Backends: []Backend{newShelf()}}).Bind(t.Context(), d); !reason.Is(err, reason.UnsupportedInRoot) {
		t.Errorf("in a sandbox: %v", err)
	}
	if _, err := New(Options{}).Bind(t.Context(), d); !reason.Is(err, reason.NoPackageManager) || reason.Of(err).Doing == "" {
		t.Errorf("without a package manager: %v", err)
	}
	typ := New(Options{Backends: []Backend{elsewhere{}, newShelf(), plain{newShelf()}}})
	r, err := typ.Bind(t.Context(), d)
	if err != nil || len(r.Watches()) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	d.Resource.Package.State = declare.PackageAbsent
	if r, err = typ.Bind(t.Context(), d); err != nil || len(r.Watches()) != 1 {
		t.Errorf("what is absent: %+v, %v", r, err)
	}
	hold := true
	for _, p := range []declare.Package{{Hold: &hold}, {Preseed: "one one/x string y"}, {Conffiles: declare.ConffilesReplace}} {
		_, err := New(Options{Backends: []Backend{plain{newShelf()}}}).Bind(t.Context(), host.Declared{Resource: declare.Resource{Name: "one", Package: &p}})
		if !reason.Is(err, reason.PackageOptionUnsupported) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// elsewhere is the package manager of other hosts.
type elsewhere struct{ Backend }

func (elsewhere) Here() error { return &reason.Error{Code: reason.NoPackageManager} }

// plain can nothing but what it must.
type plain struct{ Backend }

func (plain) Ways() Ways { return Ways{Name: "plain"} }

// TestAgentCase25_BadWishes has packages whose wishes cannot be met among others, each alone with its reason.
func TestAgentCase25_BadWishes(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	s := newShelf()
	for _, name := range []string{"a1", "a2", "a3", "a4", "bad", "deaf", "greedy", "fixed"} {
		s.offer(name, true, "1", "2")
	}
	s.bad["bad"], s.broken["deaf"], s.needs["greedy"] = true, true, "other"
	s.entries["other"] = Entry{State: Present, Version: "1"}
	s.entries["fixed"] = Entry{State: Present, Version: "1", Held: true}
	typ := typeOf(s)
	rs := bound(t, typ, declare.Package{Package: "a1"}, declare.Package{Package: "bad"}, declare.Package{Package: "a2", Version: "<2"},
		declare.Package{Package: "a3", Version: ">=3"}, declare.Package{Package: "deaf", Preseed: "deaf deaf/x string y"}, declare.Package{Package: "greedy"},
		declare.Package{Package: "fixed", Version: "2"}, declare.Package{Package: "nowhere"}, declare.Package{Package: "a4", State: declare.PackageLatest})
	want := []reason.Code{0, reason.PackageInterrupted, 0, reason.PackageVersionGone, reason.PackageAnswersRefused, reason.PackageToolFailed, reason.PackageHeld, reason.PackageNotFound, 0}
	got := converged(t, typ, rs)
	c.Check(slices.Equal(codes(got), want), "got %+v", got)
	c.Check(strings.Contains(got[1].words, "shelf finish bad") && strings.Contains(got[1].words, "words of bad"), "one with a bad script: %s", got[1].words)
	c.Check(strings.Contains(got[3].words, "there are: 2, 1"), "one with a range that nothing is in: %s", got[3].words)
	c.Check(strings.Contains(got[5].words, "other"), "one that another would go for: %s", got[5].words)
	c.Check(s.entries["a2"].Version == "1" && s.entries["a4"].Version == "2" && s.entries["deaf"].State == Absent && !s.entries["other"].Gone(), "%+v", s.entries)
}

// TestDragged: what is allowed for one package is not allowed for what another brings with it.
func TestDragged(t *testing.T) {
	needsRoot(t)
	s := newShelf()
	for _, name := range []string{"older", "dragger", "lib"} {
		s.offer(name, true, "1", "2")
	}
	s.entries["older"], s.entries["lib"] = Entry{State: Present, Version: "2"}, Entry{State: Present, Version: "2"}
	s.drags["dragger"] = Move{Name: "lib", From: "2", To: "1"}
	typ := typeOf(s)
	rs := bound(t, typ, declare.Package{Package: "older", Version: "1", Options: &declare.PackageOptions{AllowDowngrade: true}}, declare.Package{Package: "dragger"})
	got := converged(t, typ, rs)
	if !slices.Equal(codes(got), []reason.Code{0, reason.PackageDowngrade}) || !strings.Contains(got[1].words, "lib from 2 back to 1") {
		t.Errorf("%+v", got)
	}
}

// TestOwnWords: the last one of several that fails is tried alone, so that the words are its own.
func TestOwnWords(t *testing.T) {
	needsRoot(t)
	s := newShelf()
	s.offer("good", true, "1")
	s.offer("bad", true, "1")
	s.bad["bad"] = true
	typ := typeOf(s)
	if got := converged(t, typ, bound(t, typ, declare.Package{Package: "good"}, declare.Package{Package: "bad"})); got[0].code != 0 || !strings.Contains(got[1].words, "words of bad") {
		t.Errorf("%+v", got)
	}
}

// TestRepairedFirst: what was interrupted is finished, also where no list has it any more.
func TestRepairedFirst(t *testing.T) {
	needsRoot(t)
	s := newShelf()
	s.entries["one"] = Entry{State: Unfinished, Word: "half-way", Version: "9"}
	typ := typeOf(s)
	if got := converged(t, typ, bound(t, typ, wanted(declare.PackagePresent, "9"))); got[0].code != 0 || s.fetched > 0 {
		t.Errorf("%+v", got)
	}
}

// TestTold: what no list has is an error of the check, which asks nobody, until there are other lists.
func TestTold(t *testing.T) {
	needsRoot(t)
	s := newShelf()
	s.offer("other", true, "1")
	typ := typeOf(s)
	rs := bound(t, typ, declare.Package{Package: "late"}, declare.Package{Package: "other", Version: "2"})
	both := []reason.Code{reason.PackageNotFound, reason.PackageVersionGone}
	if got := converged(t, typ, rs); !slices.Equal(codes(got), both) || !got[0].after || !got[1].after || len(got[0].changes) == 0 {
		t.Errorf("the attempt: %+v", got)
	}
	fetched, asked := s.fetched, len(s.asked)
	for range 3 {
		if got := converged(t, typ, rs); !slices.Equal(codes(got), both) || got[0].after || len(got[0].changes) > 0 {
			t.Errorf("the check after it: %+v", got)
		}
	}
	if s.fetched != fetched || len(s.asked) != asked {
		t.Errorf("fetched %d times more, asked %v", s.fetched-fetched, s.asked[asked:])
	}
	s.offer("late", true, "1") // somebody has fetched lists
	if got := converged(t, typ, rs); got[0].code != 0 || s.entries["late"].Version != "1" {
		t.Errorf("with other lists: %+v", got)
	}
}

// TestLatestAsksOnce: lists that have not changed are not asked again.
func TestLatestAsksOnce(t *testing.T) {
	s := newShelf()
	s.offer("one", true, "1")
	s.entries["one"] = Entry{State: Present, Version: "1"}
	typ := typeOf(s)
	rs := bound(t, typ, wanted(declare.PackageLatest, ""))
	look := func() []host.Change { return typ.Check(t.Context(), rs, host.Deep)[0].Changes }
	for range 3 {
		if c := look(); len(c) > 0 || len(s.asked) != 1 {
			t.Errorf("%v, asked %v", c, s.asked)
		}
	}
	s.offer("one", false, "1", "2")
	if c := look(); len(c) > 0 {
		t.Errorf("nobody has fetched it yet: %v", c)
	}
	if err := s.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := look(); len(c) != 1 || c[0].To != "2" {
		t.Errorf("after the lists were fetched: %v", c)
	}
}

// TestChoicesApart: what is to be installed in different ways is not installed at once.
func TestChoicesApart(t *testing.T) {
	needsRoot(t)
	s := newShelf()
	var ps []declare.Package
	no := false
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		s.offer(name, true, "1")
		p := declare.Package{Package: name}
		if name > "a2" {
			p.Options = &declare.PackageOptions{Recommends: &no}
		}
		ps = append(ps, p)
	}
	s.entries["gone"] = Entry{State: Present, Version: "1"}
	ps = append(ps, declare.Package{Package: "gone", State: declare.PackageAbsent})
	typ := typeOf(s)
	if got := codes(converged(t, typ, bound(t, typ, ps...))); slices.ContainsFunc(got, func(c reason.Code) bool { return c != 0 }) || s.changes != 2 {
		t.Errorf("%v in %d transactions", got, s.changes)
	}
}

// TestOthersStay: what a transaction may do to one package it does not do to others.
func TestOthersStay(t *testing.T) {
	yes := true
	about := func(name string, g goal) *job { return &job{resource: &resource{name: name, hold: &yes}, goal: g} }
	x := &transaction{back: newShelf(), held: []string{"held"}}
	jobs := []*job{about("older", goal{install: true, back: true}), about("ours", goal{install: true, held: true})}
	for _, row := range []struct {
		move Move
		code reason.Code
	}{
		{Move{"older", "2", "1"}, 0},
		{Move{"ours", "1", "2"}, 0},
		{Move{"new", "", "1"}, 0},
		{Move{"ours", "2", "1"}, reason.PackageDowngrade},
		{Move{"other", "2", "1"}, reason.PackageDowngrade},
		{Move{"held", "1", "2"}, reason.PackageHeld},
	} {
		if err := x.others([]Move{row.move}, jobs); (err != nil || row.code != 0) && !reason.Is(err, row.code) {
			t.Errorf("%+v: %v", row.move, err)
		}
	}
}

// TestAgentCase13_PackagesKilledAnywhere has everything end after some change, whichever, and then lets another agent go on.
func TestAgentCase13_PackagesKilledAnywhere(t *testing.T) {
	c := casetest.Start(t)
	needsRoot(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf()
		var ps []declare.Package
		states := []declare.PackageState{declare.PackagePresent, declare.PackageLatest, declare.PackageAbsent, declare.PackagePurged}
		for _, name := range []string{"p1", "p2", "p3", "p4"} {
			s.offer(name, rapid.Bool().Draw(rt, "listed"), "1", "2", "3")
			p := declare.Package{Package: name, State: rapid.SampledFrom(states).Draw(rt, "wanted")}
			if !p.Gone() {
				p.Version = rapid.SampledFrom([]string{"", ">=2", "<3", ">1 <3"}).Draw(rt, "range")
				if p.State == declare.PackagePresent && rapid.Bool().Draw(rt, "pinned") {
					p.Version = "2"
				}
				p.Options = &declare.PackageOptions{AllowDowngrade: true}
				if rapid.Bool().Draw(rt, "managed") {
					hold := rapid.Bool().Draw(rt, "hold")
					p.Hold = &hold
				}
			}
			ps = append(ps, p)
			e := Entry{State: State(rapid.IntRange(0, int(Present)).Draw(rt, "state"))}
			if !e.Gone() {
				e.Version = rapid.SampledFrom([]string{"1", "2", "3"}).Draw(rt, "is")
				e.Held = p.Hold != nil && rapid.Bool().Draw(rt, "held")
			}
			if e.State == Unfinished {
				e.Word = "half-way"
			}
			s.entries[name] = e
		}
		s.dies = rapid.IntRange(0, 12).Draw(rt, "dies")
		typ := typeOf(s)
		converged(t, typ, bound(t, typ, ps...))
		s.dies = -1
		typ = typeOf(s)
		rs := bound(t, typ, ps...)
		// What was interrupted is finished, then one package has lists fetched, and then there is something newer of another.
		for range 3 {
			for _, o := range converged(t, typ, rs) {
				if o.code != 0 {
					rt.Fatalf("after the kill: %+v", o)
				}
			}
		}
		for i, p := range typ.Check(t.Context(), rs, host.Deep) {
			if !p.Empty() {
				rt.Fatalf("%+v is %+v: %+v, %v", ps[i], s.entries[ps[i].Package], p.Changes, p.Err)
			}
		}
		c.Check(true, "as declared")
	})
}

// TestRestore puts back what was there, mark included.
func TestRestore(t *testing.T) {
	needsRoot(t)
	yes := true
	for _, before := range []Entry{{}, {State: Present, Version: "1"}, {State: Present, Version: "3", Held: true}} {
		s := newShelf()
		s.offer("one", true, "1", "2", "3")
		s.entries["one"] = before
		typ := typeOf(s)
		rs := bound(t, typ, declare.Package{Package: "one", Version: "2", Hold: &yes, Options: &declare.PackageOptions{AllowDowngrade: true}})
		original, err := typ.Original(t.Context(), rs[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := converged(t, typ, rs); got[0].code != 0 || s.entries["one"] != (Entry{State: Present, Version: "2", Held: true}) {
			t.Fatalf("%+v, %+v", got, s.entries)
		}
		want := before
		if before.State == Absent {
			want.State = Leftover
		}
		for range 2 {
			if err := typ.Remove(t.Context(), rs[0], declare.OnRemoveRestore, original); err != nil || s.entries["one"] != want {
				t.Errorf("restored %+v, %v; want %+v", s.entries["one"], err, want)
			}
		}
		if err := typ.Remove(t.Context(), rs[0], declare.OnRemoveDelete, nil); err != nil || !s.entries["one"].Gone() {
			t.Errorf("deleted: %+v, %v", s.entries["one"], err)
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: packages are changed by root alone")
	}
}
