package pace

import (
	"slices"
	"testing"
	"testing/quick"
	"time"

	"tako.dev/tako/declare"
)

func TestShare(t *testing.T) {
	for _, c := range []struct {
		text     declare.IntOrPercent
		of       int
		down, up int
	}{{"25%", 1, 0, 1}, {"25%", 4, 1, 1}, {"25%", 5, 1, 2}, {"100%", 7, 7, 7}, {"3", 1, 3, 3}, {"0", 9, 0, 0}, {"", 9, 0, 0}, {"-1", 9, 0, 0}, {"10%", 0, 0, 0}} {
		if down, up := Share(c.text, c.of, Down), Share(c.text, c.of, Up); down != c.down || up != c.up {
			t.Errorf("%q of %d: %d and %d, want %d and %d", c.text, c.of, down, up, c.down, c.up)
		}
	}
}

func TestProportion(t *testing.T) {
	if got := Proportion(5, []int{8, 5}); !slices.Equal(got, []int{4, 1}) {
		t.Errorf("5 over 8 and 5: %v", got)
	}
	if got := Proportion(3, []int{0, 0}); !slices.Equal(got, []int{0, 0}) {
		t.Errorf("3 over nobody: %v", got)
	}
	// Nothing is lost or made up, and nobody gets more than one more than its part but the largest.
	whole := func(number uint8, parts []uint8) bool {
		ints, sum := make([]int, len(parts)), 0
		for i, p := range parts {
			ints[i] = int(p)
			sum += int(p)
		}
		dealt := 0
		for i, n := range Proportion(int(number), ints) {
			if n < 0 || ints[i] == 0 && n != 0 {
				return false
			}
			dealt += n
		}
		return dealt == int(number) || sum == 0 && dealt == 0
	}
	if err := quick.Check(whole, nil); err != nil {
		t.Error(err)
	}
}

func TestWaves(t *testing.T) {
	over, silent, coming := Wave{3, 2, 0}, Wave{2, 0, 0}, Wave{3, 2, 1}
	for want, waves := range [][]Wave{{coming, over}, {over, silent, over}, {over, Wave{}, coming}, {over, over, Wave{}}} {
		if got := Begun(waves); got != want {
			t.Errorf("of %+v the last that has begun is %d, want %d", waves, got, want)
		}
	}
}

// A wave takes so many of all that it matches, with those of the waves before; who has it already first, and who is there.
func TestDeal(t *testing.T) {
	canary := map[string]string{"canary": "yes"}
	of := func(labels map[string]string, nodes declare.IntOrPercent) declare.Wave {
		return declare.Wave{Selector: declare.Selector{MatchLabels: labels}, Nodes: nodes}
	}
	plain := make([]Member, 10)
	ranked, labelled := slices.Clone(plain), slices.Clone(plain)
	ranked[0].Rank, ranked[1].Rank, ranked[9].Rank = 2, 1, 0
	for i := 2; i < 9; i++ {
		ranked[i].Rank = 1
	}
	labelled[7].Labels, labelled[8].Labels, labelled[9].Labels = canary, canary, canary
	for _, c := range []struct {
		what    string
		waves   []declare.Wave
		members []Member
		want    []int
	}{
		{"no waves", nil, plain, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"one, a quarter, half", []declare.Wave{of(nil, "1"), of(nil, "25%"), of(nil, "50%")}, plain, []int{0, 1, 1, 2, 2, 3, 3, 3, 3, 3}},
		{"fewer than before", []declare.Wave{of(nil, "50%"), of(nil, "1")}, plain, []int{0, 0, 0, 0, 0, 2, 2, 2, 2, 2}},
		{"more than there are", []declare.Wave{of(nil, "99")}, plain, make([]int, 10)},
		{"who has it, then who is there", []declare.Wave{of(nil, "2"), of(nil, "9")}, ranked, []int{2, 0, 1, 1, 1, 1, 1, 1, 1, 0}},
		{"labels", []declare.Wave{of(canary, "")}, labelled, []int{1, 1, 1, 1, 1, 1, 1, 0, 0, 0}},
		{"half of the labels, and a fifth of all", []declare.Wave{of(canary, "50%"), of(nil, "30%")}, labelled, []int{1, 2, 2, 2, 2, 2, 2, 0, 0, 2}},
		{"nobody", nil, nil, []int{}},
	} {
		if got := Deal(c.waves, c.members); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// The order is one of the wave first, total, and another for another subject.
func TestPlace(t *testing.T) {
	early, late := PlaceOf("a", "n1", 0), PlaceOf("a", "n2", 1)
	if early.Compare(late) >= 0 || late.Compare(early) <= 0 || early.Compare(early) != 0 || late.Wave != 1 {
		t.Error("a later wave does not come later")
	}
	differ := false
	for _, other := range []string{"b", "c", "d", "e", "f", "g", "h", "i"} {
		differ = differ || PlaceOf("a", "n1", 0).Compare(PlaceOf("a", "n2", 0)) != PlaceOf(other, "n1", 0).Compare(PlaceOf(other, "n2", 0))
	}
	if !differ {
		t.Error("n1 and n2 come in one order under nine subjects")
	}
}

func TestAlarmAndDeadline(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	a := Alarm{Now: now}
	if !a.Passed(now) || a.Passed(now.Add(time.Minute)) || a.Passed(now.Add(time.Second)) || a.Passed(now.Add(time.Hour)) || !a.At.Equal(now.Add(time.Second)) {
		t.Errorf("it is to wake up at %s", a.At)
	}
	if got := Deadline(time.Minute, now, now.Add(time.Hour), time.Time{}); !got.Equal(now.Add(61 * time.Minute)) {
		t.Errorf("the deadline is %s", got)
	}
}

func TestProven(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	p := Proven[string]{"r1", now}
	if !p.Settled("r1", now) || p.Settled("r1", now.Add(1)) || p.Settled("r2", now) {
		t.Error("settled is not what has had it when it was proven")
	}
	if Reached(0, 0) || !Reached(1, 0) || Reached(1, 2) {
		t.Error("the first failure ends it where none is allowed, and no less than what is allowed")
	}
}
