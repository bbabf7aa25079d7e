package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Outcome is what became of a test. They are ordered: of several, the greatest counts.
type Outcome int

// The outcomes.
const (
	Skipped Outcome = iota
	Passed
	Failed
)

// Result is the outcome of one test that has no sub-tests, or of one that ended otherwise than its sub-tests did.
type Result struct {
	Package string
	Test    string // empty where the package itself failed: it did not build, or its process died
	Outcome Outcome
	Reason  string // of a skip or a failure: what the test said
}

func (r Result) name() string { return strings.TrimSpace(r.Package + " " + r.Test) }

func passed(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == Passed })
}

func failed(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == Failed })
}

// stage is what became of a stage or a step.
type stage struct {
	Name    string
	Took    time.Duration
	Results []Result
}

func save(dir, name string, s stage) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(resultsFile(dir, name), text, 0o644)
}

func load(dir string) ([]stage, error) {
	files, err := filepath.Glob(resultsFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	var all []stage
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var s stage
		if err := json.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// once keeps of each test the greatest outcome, in the order in which tests first came.
func once(stages []stage) []Result {
	at := map[string]int{}
	var kept []Result
	for _, s := range stages {
		for _, r := range s.Results {
			i, seen := at[r.name()]
			if !seen {
				at[r.name()] = len(kept)
				kept = append(kept, r)
			} else if r.Outcome > kept[i].Outcome {
				kept[i] = r
			}
		}
	}
	return kept
}

// printTotal lists what was skipped, what failed and what took long, and ends with the line of counts.
func printTotal(w io.Writer, stages []stage, results []Result) {
	var count [Failed + 1]int
	for _, r := range results {
		count[r.Outcome]++
	}
	if count[Skipped] > 0 {
		fmt.Fprintf(w, "\nSKIPPED: %d tests did not run and prove nothing:\n", count[Skipped])
		list(w, results, Skipped)
	}
	if count[Failed] > 0 {
		fmt.Fprintf(w, "\nFAILED:\n")
		list(w, results, Failed)
	}
	slices.SortStableFunc(stages, func(a, b stage) int { return cmp.Compare(b.Took, a.Took) })
	var took []string
	for _, s := range stages {
		took = append(took, s.Name+" "+s.Took.Round(time.Second).String())
	}
	fmt.Fprintf(w, "\ntook: %s\n", strings.Join(took, ", "))
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", count[Passed], count[Failed], count[Skipped])
}

func list(w io.Writer, results []Result, o Outcome) {
	for _, r := range results {
		if r.Outcome != o {
			continue
		}
		line := "  " + r.name()
		if r.Reason != "" {
			line += ": " + r.Reason
		}
		fmt.Fprintln(w, line)
	}
}
