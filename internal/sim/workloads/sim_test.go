package workloads

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// seedsDefault is how many worlds `make sim` runs; TAKO_SEEDS asks for more, TAKO_SEED for one, with its trace.
	seedsDefault = 50
	// soakNodes is how many nodes a world has where TAKO_SOAK asks for long runs.
	soakNodes = 500
	// With -short, which is with the race detector, there is a taste of it: a world has one thread.
	shortSeeds, shortNodes = 3, 8
)

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// options are what the environment asks for, and of how many seeds.
func options(t *testing.T) (o Options, seeds uint64) {
	t.Helper()
	seeds = seedsDefault
	switch {
	case os.Getenv("TAKO_SOAK") != "":
		o.Nodes = soakNodes
	case testing.Short():
		o.Nodes, seeds = shortNodes, shortSeeds
	}
	return o, number(t, "TAKO_SEEDS", seeds)
}

// TestSeeds runs worlds, or that of TAKO_SEED alone. One in which an invariant is broken is run twice: a failure that does not come again is one of
// the simulation.
func TestSeeds(t *testing.T) {
	o, seeds := options(t)
	if seed := number(t, "TAKO_SEED", 0); seed > 0 {
		o.Seed = seed
		replay(t, o)
		return
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			o := o
			o.Seed = seed
			if r := Run(o); r.Failure != "" {
				fails(t, r, Run(o))
			}
		})
	}
}

func fails(t *testing.T, r, again Result) {
	t.Helper()
	t.Errorf("%s\n%s\nthe last lines of the trace:\n%s\nreplay it with make sim SEED=%d WORLD=internal/sim/workloads", r.Failure, r.Stack, strings.Join(r.Last, "\n"), r.Seed)
	if again.Hash != r.Hash || again.Failure != r.Failure {
		t.Errorf("the second run of the seed has another trace: it ends with %q", again.Failure)
	}
}

// replay runs one world, and prints all that happens in it.
func replay(t *testing.T, o Options) {
	t.Helper()
	o.Trace = os.Stdout
	r := Run(o)
	fmt.Printf("%d steps, %v\ntrace %s\n", r.Steps, r.Seen, r.Hash)
	if r.Failure != "" {
		o.Trace = nil
		fails(t, r, Run(o))
	}
}

// TestSameSeedSameTrace: a seed says everything that happens.
func TestSameSeedSameTrace(t *testing.T) {
	hashes := map[string]uint64{}
	for seed := uint64(101); seed <= 102; seed++ {
		o := Options{Seed: seed, Nodes: shortNodes}
		first, second := Run(o), Run(o)
		if first.Hash != second.Hash || first.Steps != second.Steps {
			t.Errorf("seed %d: the traces are %s with %d steps and %s with %d steps", seed, first.Hash, first.Steps, second.Hash, second.Steps)
		}
		if other, same := hashes[first.Hash]; same {
			t.Errorf("seeds %d and %d have one trace", seed, other)
		}
		hashes[first.Hash] = seed
	}
}

// TestEverythingHappens: a simulation in which nothing goes wrong, or nothing comes of it, proves nothing.
func TestEverythingHappens(t *testing.T) {
	wanted := []string{"instance created", "instance deleted", "instance given up", "fenced", "exclusive process started", "conflict", "answer lost", "killed between writes",
		"killed between effects", "two lead", "answered by a relay that is cut off", "left by its relay", "ended by its runtime", "elected", "gone", "rollout of good", "rollout of crashing", "rollout of unready", "scaled", "paused", "workload deleted", "drained", "tainted",
		"job", "gang", "gang begun", "one of a gang refused", "schedule", "run begun", "run made up for", "suspended", "given what is new", "given to a canary", "records lost", "disk lost", "machine replaced", "stopped for TK0752", "stopped for TK0754", "stopped for TK0756", "stopped for TK0757", "stopped for TK0758"}
	for _, f := range faults {
		wanted = append(wanted, f.name)
	}
	seen := map[string]int{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(wanted), func(what string) bool { return seen[what] > 0 })
	}
	for seed := uint64(201); seed <= 204 || seed <= 212 && len(missing()) > 0; seed++ {
		r := Run(Options{Seed: seed, Nodes: 24})
		if r.Failure != "" {
			t.Fatalf("seed %d: %s", seed, r.Failure)
		}
		for what, count := range r.Seen {
			seen[what] += count
		}
	}
	if none := missing(); len(none) > 0 {
		t.Errorf("in all these worlds there was none of %q", none)
	}
}
