package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

const sample = "testdata/sample"

func TestVerdicts(t *testing.T) {
	before, err := os.ReadFile(sample + "/sample.go")
	if err != nil {
		t.Fatal(err)
	}
	mutant := func(old, with, run string) Mutant {
		return Mutant{Name: "m", File: "sample.go", Old: old, New: with, Package: ".", Run: run}
	}
	l := newLab(sample)
	for _, c := range []struct {
		name string
		m    Mutant
		want Verdict
		why  string
	}{
		{"killed", mutant("return 10", "return 11", "TestLimit"), Killed, "by TestLimit"},
		{"killed by a panic", mutant("return 10", "panic(n)", "TestLimit"), Killed, "by TestLimit"},
		{"killed by a dead process", mutant("return 10", "return 11", "TestDies"), Killed, "by "},
		{"survives", mutant("n > 10", "n >= 10", "TestLimit"), Survived, ". -run TestLimit stays green"},
		{"does not build", mutant("return 10", "return ten", "TestLimit"), Broken, "does not build: "},
		{"old text not there", mutant("return 12", "return 11", "TestLimit"), Broken, `sample.go: the old text "return 12" is there 0 times`},
		{"old text there twice", mutant("return", "panic", "TestLimit"), Broken, `sample.go: the old text "return" is there 2 times`},
		{"nothing changed", mutant("return 10", "return 10", "TestLimit"), Broken, "sample.go: the old text"},
		{"no file", Mutant{File: "none.go", Old: "a", New: "b"}, Broken, "open "},
		{"red without", mutant("return 10", "return 11", "TestRed"), Broken, ". -run TestRed is red without the mutant: sample_test.go:14: always red"},
		{"skipped", mutant("return 10", "return 11", "TestSkipped"), Broken, ". -run TestSkipped runs no test, or skips it"},
		{"no test", mutant("return 10", "return 11", "TestNone"), Broken, ". -run TestNone runs no test, or skips it"},
		{"no package", Mutant{File: "sample.go", Old: "return 10", New: "x", Package: "./none", Run: "TestLimit"}, Broken, "./none -run TestLimit is red without the mutant"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, why := l.try(t.Context(), c.m)
			if got != c.want || !strings.HasPrefix(why, c.why) {
				t.Errorf("%s: %s; want %s: %s", got, why, c.want, c.why)
			}
		})
	}
	after, err := os.ReadFile(sample + "/sample.go")
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the tree was touched: %v", err)
	}
}

func TestRun(t *testing.T) {
	good := Mutant{Name: "good", File: "sample.go", Old: "return 10", New: "return 11", Package: ".", Run: "TestLimit"}
	bad := good
	bad.Name, bad.New = "bad", "return 5+5"
	for _, c := range []struct {
		mutants []Mutant
		want    bool
		end     string
	}{
		{[]Mutant{good}, true, "\n1 killed, 0 survived, 0 errors\n"},
		{[]Mutant{good, bad}, false, "\n1 killed, 1 survived, 0 errors\n"},
		{nil, false, "0 killed, 0 survived, 0 errors\n"},
	} {
		var out bytes.Buffer
		if got := run(t.Context(), sample, c.mutants, &out); got != c.want || !strings.HasSuffix(out.String(), c.end) {
			t.Errorf("%d mutants: %v, want %v:\n%s", len(c.mutants), got, c.want, &out)
		}
	}
	if some := selected([]Mutant{good, bad}, regexp.MustCompile("^g")); len(some) != 1 || some[0] != good {
		t.Errorf("selected %v", some)
	}
}

// TestTable tells early, without running anything, which mutants no longer meet the code.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, m := range table() {
		if _, err := mutate("../..", m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if names[m.Name] {
			t.Errorf("%s: named twice", m.Name)
		}
		names[m.Name] = true
		if m.Run == "" || m.Package == "" {
			t.Errorf("%s: names no test", m.Name)
		}
	}
}
