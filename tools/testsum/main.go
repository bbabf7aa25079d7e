// Command testsum runs tests and makes their result short and honest: failures in full, a line for each package, what was skipped
// with the reason, how long each stage took, and at the very end one line of counts. Skips are never counted as passed.
//
//	testsum -log DIR -stage unit go test -json ./...   runs tests and keeps the result of each in DIR
//	testsum -log DIR -step vet go vet ./...            runs any command as one test called vet
//	testsum -log DIR -total                            sums up what DIR keeps
//
// A test that several stages ran counts once: as failed if it failed in one, as passed if it passed in one and was skipped in
// others (a short run leaves out what a later stage does).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// killDelay is what an interrupted command gets for its own cleanup (hosts to stop, mounts to undo) before it is killed.
const killDelay = 30 * time.Second

type options struct {
	log   string
	stage string
	step  string
	total bool
	args  []string
}

func main() {
	var o options
	flag.StringVar(&o.log, "log", ".scratch/results", "`directory` that keeps results")
	flag.StringVar(&o.stage, "stage", "", "`name` of a run of go test -json")
	flag.StringVar(&o.step, "step", "", "`name` of a command that counts as one test")
	flag.BoolVar(&o.total, "total", false, "sum up")
	flag.Parse()
	o.args = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, w io.Writer) (ok bool, err error) {
	switch {
	case o.total && len(o.args) == 0:
		stages, err := load(o.log)
		if err != nil {
			return false, err
		}
		results := once(stages)
		printTotal(w, stages, results)
		return !failed(results) && passed(results), nil
	case o.stage != "" && len(o.args) > 0:
		return runTests(ctx, o, w)
	case o.step != "" && len(o.args) > 0:
		return runStep(ctx, o, w)
	}
	return false, errors.New("wrong usage: wanted -total, or -stage NAME or -step NAME with a command")
}

// runTests runs a command that prints the events of go test -json.
func runTests(ctx context.Context, o options, w io.Writer) (bool, error) {
	start := time.Now()
	read, write := io.Pipe()
	cmd := command(ctx, o.args, write)
	finished := make(chan error, 1)
	go func() {
		err := cmd.Run()
		write.Close()
		finished <- err
	}()
	r := newRun(w)
	readErr := r.read(read)
	// What is left after an unreadable line is dropped, so that the command can end.
	_, _ = io.Copy(io.Discard, read)
	runErr := <-finished
	results := r.results()
	if runErr != nil && !failed(results) || readErr != nil {
		// For example a flag that go test does not know: no test says so.
		results = append(results, Result{Test: o.stage, Outcome: Failed})
		fmt.Fprintf(w, "FAIL %s: %v\n", o.stage, errors.Join(runErr, readErr))
	}
	return len(results) > 0 && !failed(results), save(o.log, o.stage, stage{o.stage, time.Since(start), results})
}

// runStep runs a command that either succeeds or not.
func runStep(ctx context.Context, o options, w io.Writer) (bool, error) {
	start, result := time.Now(), Result{Test: o.step, Outcome: Passed}
	if err := command(ctx, o.args, w).Run(); err != nil {
		result.Outcome = Failed
		fmt.Fprintf(w, "FAIL %s: %v\n", o.step, err)
	} else {
		fmt.Fprintf(w, "ok   %s\n", o.step)
	}
	return result.Outcome == Passed, save(o.log, "step-"+o.step, stage{o.step, time.Since(start), []Result{result}})
}

func command(ctx context.Context, args []string, stdout io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = killDelay
	return cmd
}

func resultsFile(dir, name string) string { return filepath.Join(dir, name+".json") }
