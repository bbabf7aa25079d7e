package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
)

func TestChoose(t *testing.T) {
	for only, want := range map[string]string{"repair, torn": "repair torn", "path": "path-up path-act path-idle path-crowd", "path-act": "path-act", "transfer-relay": "transfer-relay", "pat": "",
		"million": "million", "": strings.ReplaceAll(strings.ReplaceAll(names(), ",", ""), " million", "")} {
		var got []string
		wanted, err := choose(only)
		for _, r := range wanted {
			got = append(got, r.name)
		}
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Errorf("%q chooses %v (%v), want %s", only, got, err, want)
		}
	}
}

func TestCollect(t *testing.T) {
	const head = "peer\tphase\twall_s\tuser_s\tsys_s\tmaxrss_kB\textra\n"
	for name, c := range map[string]struct {
		rows string
		want cost
		err  string
	}{
		"good":        {rows: "cfengine\tnoop\t0.22\t0.14\t0.07\t23876\trc=0 files=1000\n", want: cost{wall: 220 * time.Millisecond, cpu: 210 * time.Millisecond, peak: 23876}},
		"failed":      {rows: "cfengine\tnoop\t0.22\t0.14\t0.07\t23876\trc=1 files=0\n", err: "rc=1"},
		"other phase": {rows: "cfengine\tfirst\t0.22\t0.14\t0.07\t23876\trc=0\n", err: "no row"},
		"no number":   {rows: "cfengine\tnoop\t-\t0.14\t0.07\t23876\trc=0\n", err: "invalid syntax"},
	} {
		var got []cost
		err := collect(head+c.rows, "noop", &got)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: error %v, want one with %q", name, err, c.err)
		case c.err == "" && (err != nil || len(got) != 1 || got[0] != c.want):
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestStraight(t *testing.T) {
	perFile := func(per ...int) (all []grown) {
		total := 0
		for i, n := range []int{100, 1000, 10_000, 100_000} {
			total = 50_000 + n*per[i]
			all = append(all, grown{files: n, first: time.Duration(total) * time.Microsecond})
		}
		return all
	}
	for name, c := range map[string]struct {
		all  []grown
		want verdict
	}{
		"straight": {perFile(100, 100, 100, 100), met},
		"cheaper":  {perFile(100, 90, 80, 70), met},
		"dearer":   {perFile(100, 100, 100, 250), short},
	} {
		b := &bench{}
		b.straight("first converge", "µs", c.all, func(g grown) float64 { return float64(g.first.Microseconds()) })
		if got := b.table.lines[0]; got.verdict != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// TestDeclared makes sure that the declaration that everything is measured with is one.
func TestDeclared(t *testing.T) {
	b := &bench{scratch: t.TempDir()}
	s, err := b.newSite(perDir + 1)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := declare.Load([]string{s.decl})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 1 || len(docs[0].Config.Spec.Resources) != perDir+1 {
		t.Errorf("%d documents", len(docs))
	}
}

func TestDriftIsSeen(t *testing.T) {
	for _, k := range kinds {
		p := t.TempDir() + "/f"
		if err := os.WriteFile(p, []byte(content(1)), fileMode); err != nil {
			t.Fatal(err)
		}
		if right, err := isAs(p, content(1)); err != nil || !right {
			t.Fatalf("%s: %v, %v", k, right, err)
		}
		if err := drift(k, p); err != nil {
			t.Fatal(err)
		}
		if right, err := isAs(p, content(1)); err != nil || right {
			t.Errorf("%s is not seen: %v, %v", k, right, err)
		}
	}
}
