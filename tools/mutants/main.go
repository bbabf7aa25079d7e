// Command mutants breaks the product line by line and sees whether the tests notice. Each mutant of the table (table.go) replaces a
// piece of one file, in an overlay of the go command: the tree is never touched. The test that is named with it must then fail.
//
//	go run ./tools/mutants              all mutants
//	go run ./tools/mutants -only REGEXP those whose names match
//
// A mutant is killed when its test goes red, and survives when it stays green. Everything else proves nothing and is an error: a
// text that is not found exactly once, code that no longer builds, a test that is red, skipped or not there without the mutant.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

func main() {
	only := flag.String("only", "", "`regexp` of the names to run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	match, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -only:", err)
		os.Exit(2)
	}
	if !run(ctx, ".", selected(table(), match), os.Stdout) {
		os.Exit(1)
	}
}

func selected(all []Mutant, match *regexp.Regexp) []Mutant {
	var some []Mutant
	for _, m := range all {
		if match.MatchString(m.Name) {
			some = append(some, m)
		}
	}
	return some
}

// run tries mutants one after the other, and tells whether all were killed. None at all proves nothing.
func run(ctx context.Context, dir string, mutants []Mutant, w io.Writer) bool {
	count := map[Verdict]int{}
	lab := newLab(dir)
	for _, m := range mutants {
		verdict, why := lab.try(ctx, m)
		if ctx.Err() != nil {
			fmt.Fprintln(w, "interrupted")
			return false
		}
		count[verdict]++
		fmt.Fprintf(w, "%-8s %s: %s\n", verdict, m.Name, why)
	}
	fmt.Fprintf(w, "%d killed, %d survived, %d errors\n", count[Killed], count[Survived], count[Broken])
	return count[Killed] > 0 && count[Killed] == len(mutants)
}
