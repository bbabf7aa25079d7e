package sim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	// seedsDefault is how many worlds `make sim` runs; TAKO_SEEDS asks for more, TAKO_SEED for one, with its trace.
	seedsDefault = 50
	// soakAgents is how many agents a world has where TAKO_SOAK asks for long runs.
	soakAgents = 200
	// With -short, which is with the race detector, there is a taste of it: a world has one thread.
	shortSeeds, shortAgents = 4, 12
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
		o.Agents = soakAgents
	case testing.Short():
		o.Agents, seeds = shortAgents, shortSeeds
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
	t.Errorf("%s\n%s\nthe last lines of the trace:\n%s\nreplay it with make sim SEED=%d", r.Failure, r.Stack, strings.Join(r.Last, "\n"), r.Seed)
	if again.Hash != r.Hash || again.Failure != r.Failure {
		t.Errorf("the second run of the seed has another trace: it ends with %q", again.Failure)
	}
}

// replay runs one world, and prints all that happens in it.
func replay(t *testing.T, o Options) {
	t.Helper()
	o.Trace = os.Stdout
	r := Run(o)
	fmt.Printf("%d steps, %+v\ntrace %s\n", r.Steps, r.Seen, r.Hash)
	if r.Failure != "" {
		o.Trace = nil
		fails(t, r, Run(o))
	}
}

// TestSameSeedSameTrace: a seed says everything that happens.
func TestSameSeedSameTrace(t *testing.T) {
	hashes := map[string]uint64{}
	for seed := uint64(101); seed <= 103; seed++ {
		o := Options{Seed: seed, Agents: shortAgents}
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

// everythingMost is how many worlds there may be until all has happened: two operators who take one number are seen in one of seven.
const everythingMost = 60

// TestEverythingHappens: a simulation in which nothing goes wrong, or nothing comes of it, proves nothing.
func TestEverythingHappens(t *testing.T) {
	missing := map[string]bool{}
	for _, name := range []string{"activated", "refused", "failed to fetch", "crashed", "alarms", "doubts", "statements tried", "removals", "notifications",
		"refreshes", "heads relayed", "kept answers", "expiries", "poison", "conflict", "statement", "absorbed", "key rotated", "operator revoked", "epoch",
		"event dropped"} {
		missing[name] = true
	}
	for _, f := range faults {
		missing[f.name] = true
	}
	for seed := uint64(201); seed <= 200+everythingMost && len(missing) > 0; seed++ {
		r := Run(Options{Seed: seed, Agents: 16})
		if r.Failure != "" {
			t.Fatalf("seed %d: %s", seed, r.Failure)
		}
		seen := maps.Clone(r.Seen.Faults)
		maps.Copy(seen, map[string]int{
			"activated": r.Seen.Activated, "refused": r.Seen.Refused, "failed to fetch": r.Seen.Failed, "crashed": r.Seen.Crashes,
			"alarms": r.Seen.Alarms, "doubts": r.Seen.Doubts, "statements tried": r.Seen.Trials, "removals": r.Seen.Removals,
			"notifications": r.Seen.Notifications, "refreshes": r.Seen.Refreshes, "heads relayed": r.Seen.Relayed, "kept answers": r.Seen.Kept,
			"expiries": r.Seen.Expiries,
		})
		maps.DeleteFunc(missing, func(name string, _ bool) bool { return seen[name] > 0 })
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("in all these worlds there was no %q", name)
	}
}
