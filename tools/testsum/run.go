package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json (go doc test2json, go help buildjson).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output, which has no Package
	FailedBuild string // of a package's fail: the ImportPath of what did not build
	Test        string
	Elapsed     float64 // seconds
	Output      string
}

// testRun collects the events of one go test, and prints packages as they end.
type testRun struct {
	w        io.Writer
	packages map[string]*packageRun
	builds   map[string][]string // output of the compiler by import path
}

type packageRun struct {
	tests   map[string]*oneTest
	output  []string // of the package itself: a panic, a timeout
	outcome Outcome
}

type oneTest struct {
	output  []string
	outcome Outcome
	ended   bool
}

func newRun(w io.Writer) *testRun {
	return &testRun{w: w, packages: map[string]*packageRun{}, builds: map[string][]string{}}
}

// read takes events until the end; a line that is none is printed as it is.
func (r *testRun) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil:
			fmt.Fprintf(r.w, "%s\n", strings.TrimSuffix(string(line), "\n"))
		default:
			r.take(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *testRun) take(e event) {
	if e.Action == "build-output" {
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &packageRun{tests: map[string]*oneTest{}}
		r.packages[e.Package] = p
	}
	if e.Test != "" {
		p.take(e)
		return
	}
	switch e.Action {
	case "output":
		p.output = append(p.output, e.Output)
	case "pass", "fail", "skip":
		p.outcome = outcomeOf(e.Action)
		p.output = append(r.builds[e.FailedBuild], p.output...)
		p.print(r.w, e)
	}
}

func (p *packageRun) take(e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = &oneTest{}
		p.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output = append(t.output, e.Output)
	case "pass", "fail", "skip":
		t.outcome, t.ended = outcomeOf(e.Action), true
		if t.outcome == Passed {
			t.output = nil // nobody wants it, and long runs print much
		}
	}
}

func outcomeOf(action string) Outcome {
	switch action {
	case "pass":
		return Passed
	case "skip":
		return Skipped
	}
	return Failed
}

// print shows a package that has ended: in full what failed, else in a line.
func (p *packageRun) print(w io.Writer, e event) {
	results := p.results(e.Package)
	if p.outcome != Failed {
		if len(results) > 0 {
			fmt.Fprintf(w, "ok   %s %.1fs, %d tests\n", e.Package, e.Elapsed, len(results))
		}
		return
	}
	// What a test says that failed by itself comes before what its parent shows of hosts and journals.
	var because, implied []string
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		t := p.tests[name]
		switch {
		case t.outcome != Failed && t.ended:
		case p.implied(name, Failed):
			implied = append(implied, t.output...)
		default:
			because = append(because, t.output...)
		}
	}
	// In one piece: another stage may run, and print, at the same time.
	said := strings.Join(slices.Concat(because, implied, p.output), "")
	fmt.Fprintf(w, "%sFAIL %s %.1fs\n", said, e.Package, e.Elapsed)
}

// results lists every test of every package once; see Result for which count.
func (r *testRun) results() []Result {
	var all []Result
	for _, name := range slices.Sorted(maps.Keys(r.packages)) {
		all = append(all, r.packages[name].results(name)...)
	}
	return all
}

func (p *packageRun) results(pkg string) []Result {
	var results []Result
	names := slices.Sorted(maps.Keys(p.tests))
	for _, name := range names {
		t := p.tests[name]
		outcome := t.outcome
		if !t.ended { // its process died
			outcome = Failed
		}
		if p.implied(name, outcome) {
			continue
		}
		r := Result{Package: pkg, Test: name, Outcome: outcome}
		if outcome != Passed {
			r.Reason = reason(t.output)
		}
		results = append(results, r)
	}
	if p.outcome == Failed && !failed(results) {
		results = append(results, Result{Package: pkg, Outcome: Failed})
	}
	return results
}

// implied tells whether a test's outcome says no more than those of its sub-tests: it passed, or failed because one of them did.
func (p *packageRun) implied(name string, outcome Outcome) bool {
	subTests, subFailed := false, false
	for other, t := range p.tests {
		if strings.HasPrefix(other, name+"/") {
			subTests = true
			subFailed = subFailed || t.outcome == Failed || !t.ended
		}
	}
	return outcome == Passed && subTests || outcome == Failed && subFailed
}

// reasonMax is how many bytes of a reason are kept: a test that failed may have printed a journal.
const reasonMax = 600

// reason is what a test said that was skipped or failed: the beginning of its output, without the lines that go test adds.
func reason(output []string) string {
	var words []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			words = append(words, line)
		}
	}
	text := strings.Join(words, " ")
	if len(text) > reasonMax {
		text = strings.ToValidUTF8(text[:reasonMax], "") + " ..."
	}
	return text
}
