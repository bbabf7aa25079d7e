package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// claims are n different ones, from the one with that number on.
func claims(from, n int) []declare.Claim {
	list := make([]declare.Claim, n)
	for i := range list {
		list[i] = declare.Claim{Kind: declare.ClaimPath, ID: fmt.Sprint("/", from+i)}
	}
	return list
}

func TestGuard(t *testing.T) {
	for _, test := range []struct {
		have, stay, fresh int
		consent           uint8
		held              bool
	}{
		{have: 0, fresh: 10},
		{have: 10, stay: 10, fresh: 1000},
		{have: 5}, // all, but a handful
		{have: 6, held: true},
		{have: 6, fresh: 1000, held: true}, // what comes makes up for nothing
		{have: 12, stay: 6},                // half
		{have: 13, stay: 6, held: true},
		{have: 1000, stay: 500},
		{have: 1000, stay: 499, held: true},
		{have: 1000, stay: 499, consent: 50, held: true},
		{have: 1000, stay: 499, consent: 51},
		{have: 1000, stay: 100, consent: 90},
		{have: 1000, stay: 99, consent: 90, held: true},
		{have: 1000, consent: 100},
		{have: 1000, stay: 600, consent: 1}, // consent to less than what needs none takes nothing away
	} {
		have := claims(0, test.have)
		want := append(slices.Clone(have[:test.stay]), claims(5000, test.fresh)...)
		err := Guard(slices.Values(have), slices.Values(want), test.consent)
		if (err != nil) != test.held {
			t.Errorf("%+v: %v", test, err)
			continue
		}
		if err != nil && (err.Code != reason.DeletionsWithheld || !strings.Contains(err.Error(), fmt.Sprintf("%d of %d", test.have-test.stay, test.have)) ||
			!strings.Contains(err.Error(), have[test.stay].String())) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// What the guard lets go with some consent, it lets go with more; and it always lets go what deletes nothing.
func TestGuardConsentOnlyAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := claims(0, rapid.IntRange(0, 40).Draw(t, "have"))
		want := claims(rapid.IntRange(0, 40).Draw(t, "from"), rapid.IntRange(0, 40).Draw(t, "want"))
		less, more := rapid.Uint8Range(0, 100).Draw(t, "less"), rapid.Uint8Range(0, 100).Draw(t, "more")
		if less > more {
			less, more = more, less
		}
		guard := func(consent uint8) error {
			if err := Guard(slices.Values(have), slices.Values(want), consent); err != nil {
				return err
			}
			return nil
		}
		if guard(less) == nil && guard(more) != nil {
			t.Fatalf("%d percent are enough, %d are not", less, more)
		}
		if guard(100) != nil || Guard(slices.Values(have), slices.Values(append(want, have...)), 0) != nil {
			t.Fatal("held back for nothing")
		}
	})
}

func mark(version uint64, root byte) catalog.Mark {
	return catalog.Mark{Epoch: 1, Version: version, Root: catalog.Digest{root}}
}

func TestTrial(t *testing.T) {
	type step struct {
		what    string // begin, settle, end, or die: nothing is noted
		mark    catalog.Mark
		refused bool
	}
	a, b := mark(1, 1), mark(2, 2)
	for name, steps := range map[string][]step{
		"three deaths":                       {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", a, true}, {"begin", a, true}},
		"another state in between":           {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", b, false}, {"begin", a, false}},
		"settled once":                       {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"settle", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", a, true}},
		"told to end":                        {{"begin", a, false}, {"end", a, false}, {"begin", a, false}, {"end", a, false}, {"begin", a, false}, {"end", a, false}, {"begin", a, false}, {"begin", a, false}},
		"told to end after two deaths":       {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"end", a, false}, {"begin", a, false}, {"begin", a, true}},
		"the same root in a later version":   {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", mark(2, 1), false}},
		"quarantined, and then the next one": {{"begin", a, false}, {"begin", a, false}, {"begin", a, false}, {"begin", a, true}, {"begin", b, false}, {"begin", b, false}, {"begin", b, false}, {"begin", b, true}},
	} {
		var trial Trial
		for i, s := range steps {
			var err *reason.Error
			switch s.what {
			case "begin":
				trial, err = trial.Begin(s.mark)
			case "settle":
				trial = trial.Settle()
			case "end":
				trial = trial.End()
			}
			if (err != nil) != s.refused || err != nil && (err.Code != reason.StateQuarantined || trial.Open || trial.Deaths != 3) {
				t.Errorf("%s, step %d: %v", name, i, err)
			}
		}
	}
}

// TestTrialBeside: a death is blamed on the state that the agent was on its way to, once; without such a one on what is enforced.
func TestTrialBeside(t *testing.T) {
	enforced, _ := Trial{}.Begin(mark(1, 1))
	other, _ := Trial{}.Begin(mark(2, 2))
	for name, c := range map[string]struct {
		coming Trial
		deaths uint32 // of what is enforced
	}{
		"on the way to another state": {other, 0},
		"on the way to it":            {enforced, 1},
		"on the way to nothing":       {Trial{}, 1},
		"the other one had ended":     {other.End(), 1},
		"the other one was counted":   {other.Died(), 1},
	} {
		if next, _ := enforced.Beside(c.coming).Begin(mark(1, 1)); next.Deaths != c.deaths || !next.Open {
			t.Errorf("%s: %+v", name, next)
		}
	}
	if died := other.Died(); died.Deaths != 1 || died.Open || died.Died() != died {
		t.Errorf("a death is counted as %+v, and then as %+v", died, died.Died())
	}
	if next, _ := other.Died().Begin(mark(2, 2)); next.Deaths != 1 {
		t.Errorf("it is counted twice: %+v", next)
	}
}

func TestHold(t *testing.T) {
	in := input(t, "  resources:\n  - name: one\n    file: {path: /one}\n  - name: two\n    file: {path: /two}\n")
	in.Removals = []Removal{{Claim: declare.Claim{Kind: declare.ClaimPath, ID: "/gone"}, Title: "file/gone", Config: "NodeConfig/b", Type: declare.TypeFile, OnRemove: declare.OnRemoveDelete}}
	c := compile(t, in)
	now := time.Unix(1000, 0)
	holds := []catalog.Hold{
		{Config: "NodeConfig/a", Until: 1010, Reason: "all of a"},
		{Claim: "path:/two", Until: 1020, Reason: "two"},
		{Config: "NodeConfig/b", Until: 1000, Reason: "over"},
	}
	c.Hold(holds, now)
	got := []string{}
	for _, it := range c.Items {
		if it.Hold != nil {
			got = append(got, it.Title+" "+it.Hold.Reason)
		}
	}
	if want := []string{"file/one all of a", "file/two two"}; !slices.Equal(got, want) {
		t.Errorf("held: %q, want %q", got, want)
	}
	for at, want := range map[int64]int64{0: 1000, 1000: 1010, 1010: 1020, 1020: 0} {
		end, ok := HoldEnds(holds, time.Unix(at, 0))
		if ok != (want != 0) || ok && end.Unix() != want {
			t.Errorf("at %d the next one ends at %v, %v", at, end, ok)
		}
	}
	c.Hold(holds, time.Unix(1015, 0))
	if c.Items[0].Hold != nil || c.Items[1].Hold == nil {
		t.Error("one is held, or two is not, after the first hold has ended")
	}
	c.Hold(nil, now)
	if c.Items[1].Hold != nil {
		t.Error("two is held after the hold was lifted")
	}
}

// TestGuardData: what is delivered is judged by itself, by the same measure.
func TestGuardData(t *testing.T) {
	for _, test := range []struct {
		all, deleted int
		consent      uint8
		held         bool
	}{
		{},
		{all: 5, deleted: 5},
		{all: 6, deleted: 6, held: true},
		{all: 1_000_000, deleted: 500_000},
		{all: 1_000_000, deleted: 500_001, held: true},
		{all: 1_000_000, deleted: 500_001, consent: 51},
		{all: 1_000_000, deleted: 1_000_000, consent: 100},
	} {
		err := GuardData(test.all, test.deleted, "data:a", test.consent)
		if (err != nil) != test.held || err != nil && (err.Code != reason.DeletionsWithheld || !strings.Contains(err.Error(), "data:a")) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
