package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func save(dir, name string, results []Result) error {
	text, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(resultsFile(dir, name), text, 0o644)
}

func load(dir string) ([]Result, error) {
	files, err := filepath.Glob(resultsFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	var all []Result
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var results []Result
		if err := json.Unmarshal(text, &results); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, results...)
	}
	return once(all), nil
}

// once keeps of each test the greatest outcome, in the order in which tests first came.
func once(all []Result) []Result {
	at := map[string]int{}
	var kept []Result
	for _, r := range all {
		i, seen := at[r.name()]
		if !seen {
			at[r.name()] = len(kept)
			kept = append(kept, r)
		} else if r.Outcome > kept[i].Outcome {
			kept[i] = r
		}
	}
	return kept
}

// printTotal lists what was skipped and what failed, and ends with the line of counts.
func printTotal(w io.Writer, results []Result) {
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
