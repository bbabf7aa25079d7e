package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/casetest"
)

func TestParseWant(t *testing.T) {
	keys, err := parseWant("agent:1-3,7 content:2")
	want := []key{{"agent", 1}, {"agent", 2}, {"agent", 3}, {"agent", 7}, {"content", 2}}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("got %v, %v; want %v", keys, err, want)
	}
	for _, bad := range []string{"agent", ":1", "agent:", "agent:0", "agent:3-1", "agent:x", "agent:1-", "agent:-1", "agent:1-99999999"} {
		if keys, err := parseWant(bad); err == nil {
			t.Errorf("parseWant(%q) = %v, want an error", bad, keys)
		}
	}
}

func TestJudge(t *testing.T) {
	row := func(n int, r casetest.Result, checks int, fn string) casetest.Row {
		return casetest.Row{Area: "agent", Number: n, Package: "p", Func: fn, Result: r, Checks: checks}
	}
	cases := merge([]casetest.Row{
		row(1, casetest.Pass, 2, "A"), row(1, casetest.Pass, 3, "B"),
		row(2, casetest.Pass, 2, "C"), row(2, casetest.Skip, 0, "D"),
		row(3, casetest.Fail, 1, "E"), row(3, casetest.Pass, 1, "E"), row(3, casetest.Skip, 0, "F"),
		row(4, casetest.Pass, 0, "G"), row(4, casetest.Pass, 5, "H"),
		row(6, "splendid", 5, "I"),
	}, []key{{"agent", 1}, {"agent", 5}})
	if got, want := len(cases), 6; got != want {
		t.Fatalf("%d cases, want %d", got, want)
	}
	if got := cases[0]; got.Checks != 5 || len(got.Functions) != 2 || got.Result != casetest.Pass {
		t.Errorf("case 1 is %+v", got)
	}
	always := []string{
		"case agent 3 failed: p.E",
		"case agent 4 checked nothing in p.G",
		"case agent 5 is missing",
		"case agent 6 failed: p.I",
	}
	for _, c := range []struct {
		allowSkips bool
		want       []string
	}{
		{true, always},
		{false, append([]string{"case agent 2 was skipped, though what tests need is here: p.D"}, always...)},
	} {
		got := judge(cases, c.allowSkips)
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("allowSkips %v: got %q, want %q", c.allowSkips, got, c.want)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	row := `{"area":"agent","number":1,"package":"p","func":"A","result":"pass","checks":2}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "p-1.rows"), []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "cases.json")
	faults, err := run(dir, out, "agent:1", false)
	if err != nil || len(faults) > 0 {
		t.Fatalf("run: %q, %v", faults, err)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), `"result": "pass"`) {
		t.Errorf("wrote %s, %v", text, err)
	}
}
