package present

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with testdata/name, or writes it under -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestMistakes loads each file of testdata/mistakes and compares the whole of what a person sees.
func TestMistakes(t *testing.T) {
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("found %d mistakes (%v), there must be at least 40", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			_, err := declare.Load([]string{file})
			var faults declare.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("loaded without a fault: %v", err)
			}
			checkWords(t, "mistakes/"+name, faults)
		})
	}
}

// TestMistakesInWorkloads is the same of workloads, which another reader reads.
func TestMistakesInWorkloads(t *testing.T) {
	files, err := filepath.Glob("testdata/workloads/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found %d mistakes (%v), there must be at least 12", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, _, faults := workload.Read(file, text)
			if len(faults) == 0 {
				t.Fatal("read without a fault")
			}
			checkWords(t, "workloads/"+name, faults)
		})
	}
}

// checkWords compares the whole of what a person sees of mistakes.
func checkWords(t *testing.T, name string, faults []declare.Fault) {
	t.Helper()
	var b strings.Builder
	if err := Faults(&b, faults, os.ReadFile, Style{}); err != nil {
		t.Fatal(err)
	}
	golden(t, name+".txt", b.String())
	for _, f := range faults {
		if _, ok := reason.Lookup(f.Code); !ok {
			t.Errorf("%v has no code of the set", f)
		}
		if f.Line == 0 && f.Code != reason.NothingDeclared && f.Code != reason.DeclarationUnread {
			t.Errorf("%v has no place", f)
		}
	}
}
