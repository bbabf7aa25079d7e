package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Verdict is what became of a mutant.
type Verdict string

// The verdicts.
const (
	Killed   Verdict = "killed"
	Survived Verdict = "SURVIVED"
	Broken   Verdict = "ERROR"
)

// testTimeout ends a test that a mutant made hang; a hang is noticed, and so the mutant killed. As long as the slowest test of a host.
const testTimeout = "10m"

// lab runs tests in a tree, with and without a mutant.
type lab struct {
	dir   string
	clean map[[2]string]error // by package and regexp: why the test says nothing about a mutant
}

func newLab(dir string) *lab { return &lab{dir: dir, clean: map[[2]string]error{}} }

// try runs the mutant's test with the mutant in place.
func (l *lab) try(ctx context.Context, m Mutant) (v Verdict, why string) {
	text, err := mutate(l.dir, m)
	if err != nil {
		return Broken, err.Error()
	}
	if err := l.passesWithout(ctx, m); err != nil {
		return Broken, err.Error()
	}
	scratch, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return Broken, err.Error()
	}
	defer os.RemoveAll(scratch)
	overlay, err := writeOverlay(scratch, filepath.Join(l.dir, filepath.FromSlash(m.File)), text)
	if err != nil {
		return Broken, err.Error()
	}
	o, err := l.test(ctx, m, overlay)
	switch {
	case err != nil:
		return Broken, err.Error()
	case o.notBuilt:
		return Broken, "does not build: " + o.firstLine()
	case len(o.failed) > 0:
		return Killed, "by " + strings.Join(o.failed, ", ")
	case o.died:
		return Killed, "by a test process that died: " + o.firstLine()
	}
	return Survived, fmt.Sprintf("%s -run %s stays green", m.Package, m.Run)
}

// passesWithout makes sure, once for each test, that it runs and passes in the tree as it is.
func (l *lab) passesWithout(ctx context.Context, m Mutant) error {
	key := [2]string{m.Package, m.Run}
	if err, known := l.clean[key]; known {
		return err
	}
	o, err := l.test(ctx, m, "")
	switch {
	case err != nil:
	case o.notBuilt || o.died || len(o.failed) > 0:
		err = fmt.Errorf("%s -run %s is red without the mutant: %s", m.Package, m.Run, o.firstLine())
	case o.passed == 0:
		err = fmt.Errorf("%s -run %s runs no test, or skips it", m.Package, m.Run)
	}
	l.clean[key] = err
	return err
}

// mutate returns the text of the mutant's file with the mutant in it.
func mutate(dir string, m Mutant) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.Old)); n != 1 || m.Old == "" || m.Old == m.New {
		return nil, fmt.Errorf("%s: the old text %q is there %d times, wanted once, and another new text", m.File, m.Old, n)
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}

// writeOverlay writes what go help build calls an overlay: a file that says which file stands for which.
func writeOverlay(scratch, original string, text []byte) (string, error) {
	original, err := filepath.Abs(original)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(scratch, filepath.Base(original))
	spec, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(scratch, "overlay.json")
	return name, errors.Join(os.WriteFile(mutated, text, 0o600), os.WriteFile(name, spec, 0o600))
}

// outcome is what a run of go test came to.
type outcome struct {
	passed   int
	failed   []string
	notBuilt bool
	died     bool // the package failed and no test did
	output   []string
}

func (l *lab) test(ctx context.Context, m Mutant, overlay string) (outcome, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-tags", "e2e", "-count=1", "-vet=off", "-timeout", testTimeout, "-run", m.Run, m.Package)
	cmd.Dir = l.dir
	if overlay != "" {
		// Through the environment, because tests build binaries too.
		cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" '-overlay="+overlay+"'"))
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	o := readOutcome(stdout)
	if err != nil && !o.notBuilt && !o.died && len(o.failed) == 0 {
		return o, fmt.Errorf("go test: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return o, nil
}

// readOutcome reads the events of go test -json.
func readOutcome(stdout []byte) outcome {
	var o outcome
	packageFailed := false
	lines := bufio.NewScanner(bytes.NewReader(stdout))
	lines.Buffer(nil, len(stdout)+1)
	for lines.Scan() {
		var e struct{ Action, Test, Output, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // not an event: go test prints some words as they are
		}
		switch {
		case e.Action == "output" || e.Action == "build-output":
			o.output = append(o.output, strings.TrimSpace(e.Output))
		case e.Action == "fail" && e.Test == "":
			packageFailed = true
			o.notBuilt = o.notBuilt || e.FailedBuild != ""
		case e.Action == "fail" && !strings.Contains(e.Test, "/"):
			o.failed = append(o.failed, e.Test)
		case e.Action == "pass" && e.Test != "":
			o.passed++
		}
	}
	o.died = packageFailed && !o.notBuilt && len(o.failed) == 0
	return o
}

// firstLine is the first output that says something.
func (o outcome) firstLine() string {
	for _, line := range o.output {
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "--- ") {
			return line
		}
	}
	return "no output"
}
