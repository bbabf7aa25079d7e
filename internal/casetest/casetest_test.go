package casetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSample runs the tests of testdata/sample as they would run anywhere, and looks at what they print and record.
func TestSample(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "./testdata/sample")
	cmd.Env = append(os.Environ(), "TAKO_CASES="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the sample passed:\n%s", out)
	}
	rows, err := ReadRows(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []Row{
		{Number: 1, Func: "TestSampleCase01_Checks", Result: Pass, Checks: 2},
		{Number: 2, Func: "TestSampleCase02_ChecksNothing", Result: Fail, Checks: 0},
		{Number: 3, Func: "TestSampleCase03_Skips", Result: Skip, Checks: 1},
		{Number: 4, Func: "TestSampleCase04_SubTestsCount", Result: Pass, Checks: 2},
		{Number: 5, Func: "TestSampleCase05_SubTestChecksNothing", Result: Fail, Checks: 1},
		{Number: 6, Func: "TestSampleCase06_SubTestSkips", Result: Skip, Checks: 1},
		{Number: 7, Func: "TestSampleCase07_ErrorsAreNoChecks", Result: Fail, Checks: 0},
		{Number: 8, Func: "TestSampleCase08_WrongValue", Result: Fail, Checks: 1},
		{Number: 9, Func: "TestSampleCase09_Error", Result: Fail, Checks: 1},
		{Number: 10, Func: "TestSampleCase10_NeverHappens", Result: Fail, Checks: 1},
		{Number: 11, Func: "TestSampleCase11_Happens", Result: Pass, Checks: 1},
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d:\n%v\n%s", len(rows), len(want), rows, out)
	}
	for i, w := range want {
		w.Area, w.Package = "sample", "tako.dev/tako/internal/casetest/testdata/sample"
		if rows[i] != w {
			t.Errorf("row %d:\n got %+v\nwant %+v", i, rows[i], w)
		}
	}
	for _, words := range []string{
		"TestSampleCase02_ChecksNothing checked nothing",
		"TestSampleCase05_SubTestChecksNothing/empty checked nothing",
		"lay the ground: no ground",
		"outcome:\n         got \"kept\"\n        want \"repaired\"",
		"the moon: not within 1ms; last seen: no moon",
		"TestSampleMisnamed names no case",
	} {
		if !strings.Contains(string(out), words) {
			t.Errorf("the sample's output lacks %q:\n%s", words, out)
		}
	}
}

func TestParseName(t *testing.T) {
	for _, c := range []struct {
		name, area string
		number     int
	}{
		{"TestAgentCase13_KillAtAnySystemCall", "agent", 13},
		{"TestTransferCase05_X", "transfer", 5},
		{"TestAgentCase13", "", 0},
		{"TestAgentCase13_lower", "", 0},
		{"TestAgentCase0_Zero", "", 0},
		{"TestAgentCase99999999999999999999_Big", "", 0},
		{"TestAgentCase_NoNumber", "", 0},
		{"TestCase13_NoArea", "", 0},
		{"TestAgentCase13_Sub/test", "", 0},
	} {
		area, number, err := ParseName(c.name)
		if area != c.area || number != c.number || (err == nil) != (c.number > 0) {
			t.Errorf("ParseName(%q) = %q, %d, %v; want %q, %d", c.name, area, number, err, c.area, c.number)
		}
	}
}

func TestReadRowsOfTornFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x-1.rows"), []byte(`{"area":"agent"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if rows, err := ReadRows(dir); err == nil {
		t.Errorf("a torn file was read as %v", rows)
	}
}
