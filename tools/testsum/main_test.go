package main

import (
	"bytes"
	"strings"
	"testing"
)

func testsum(t *testing.T, o options) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	ok, err := run(t.Context(), o, &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), ok
}

// TestStagesAddUp runs real tests of testdata/sample in two stages: short, then full.
func TestStagesAddUp(t *testing.T) {
	dir := t.TempDir()
	goTest := []string{"go", "test", "-json", "-count=1", "./testdata/sample"}
	out, ok := testsum(t, options{log: dir, stage: "short", args: append(goTest, "-short", "-skip=Fails|Dies")})
	if !ok || strings.Contains(out, "unwanted output") {
		t.Errorf("short stage: %v\n%s", ok, out)
	}
	out, ok = testsum(t, options{log: dir, stage: "full", args: append(goTest, "-skip=Dies")})
	if ok || !strings.Contains(out, "this went wrong") || !strings.Contains(out, "FAIL tako.dev/tako/tools/testsum/testdata/sample") {
		t.Errorf("full stage: %v\n%s", ok, out)
	}
	out, ok = testsum(t, options{log: dir, step: "true", args: []string{"true"}})
	if !ok {
		t.Errorf("step true: %s", out)
	}
	out, ok = testsum(t, options{log: dir, total: true})
	if ok {
		t.Error("the total is good though a test failed")
	}
	for _, line := range []string{
		"\n4 passed, 1 failed, 2 skipped\n",
		", true 0s\n",
		"  tako.dev/tako/tools/testsum/testdata/sample TestSkips: sample_test.go:12: needs a moon\n",
		"  tako.dev/tako/tools/testsum/testdata/sample TestParent/skips: sample_test.go:22: needs a sun\n",
		"  tako.dev/tako/tools/testsum/testdata/sample TestFails/b: sample_test.go:27: this went wrong\n",
	} {
		if !strings.Contains(out, line) {
			t.Errorf("the total lacks %q:\n%s", line, out)
		}
	}
}

func TestFailuresWithoutFailedTest(t *testing.T) {
	for _, c := range []struct {
		name, output string
		args         []string
	}{
		{"process dies", "panic: it dies", []string{"go", "test", "-json", "-run=Dies", "./testdata/sample"}},
		{"does not build", "undefined: nowhere", []string{"go", "test", "-json", "./testdata/broken"}},
		{"unknown flag", "FAIL stage", []string{"go", "test", "-json", "-count=many", "./testdata/sample"}},
		{"no tests at all", "", []string{"go", "test", "-json", "-run=^$", "./testdata/sample"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, ok := testsum(t, options{log: t.TempDir(), stage: "stage", args: c.args})
			if ok || !strings.Contains(out, c.output) {
				t.Errorf("%v: want a failure and %q:\n%s", ok, c.output, out)
			}
		})
	}
}

// TestSkipsOnly has nothing but skips, as a machine without root has: the stage is no failure, but no run is good by skips alone.
func TestSkipsOnly(t *testing.T) {
	dir := t.TempDir()
	args := []string{"go", "test", "-json", "-run=Skips", "./testdata/sample"}
	if out, ok := testsum(t, options{log: dir, stage: "skips", args: args}); !ok {
		t.Errorf("stage: %s", out)
	}
	if out, ok := testsum(t, options{log: dir, total: true}); ok || !strings.HasSuffix(out, "\n0 passed, 0 failed, 1 skipped\n") {
		t.Errorf("total: %v: %s", ok, out)
	}
}

func TestFailedStep(t *testing.T) {
	dir := t.TempDir()
	if out, ok := testsum(t, options{log: dir, step: "no", args: []string{"false"}}); ok || !strings.Contains(out, "FAIL no") {
		t.Errorf("%v: %s", ok, out)
	}
	if out, ok := testsum(t, options{log: dir, total: true}); ok || !strings.HasSuffix(out, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("%v: %s", ok, out)
	}
}

func TestWrongUsage(t *testing.T) {
	for _, o := range []options{{}, {stage: "x"}, {step: "x"}, {total: true, args: []string{"x"}}, {args: []string{"true"}}} {
		if _, err := run(t.Context(), o, &bytes.Buffer{}); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
