// Command bench measures what the agent and the control plane promise, with the real binaries, beside peers that are measured in
// the same run.
//
//	go run ./bench                 everything, about seventy-five minutes on two cores
//	go run ./bench -quick          the same with shorter windows and fewer rounds, about fifteen minutes
//	go run ./bench -only repair    one row, or several with commas between; path is all whose names begin with path-, and so are source, transfer, workloads
//
// It prints one table: what was measured, the bar, the verdict. A bar that is missed does not make it fail; only what could
// not be measured does. README.md says how to read it. Everything runs in the goroutine of main but for the readers of the
// row torn, the clients of the row api, the hosts of the row path-crowd, in the source rows the forge and what watches the memory, and in
// the transfer rows what writes much at once; they end with their row. The hosts of those are a process of their own (package swarm).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/naming"
	"tako.dev/tako/bench/placing"
	"tako.dev/tako/bench/running"
	"tako.dev/tako/bench/swarm"
)

// runMax bounds a whole run: several times what the slowest machine seen needs.
const runMax = 3 * time.Hour

// size is how much is measured.
type size struct {
	quick   bool
	window  time.Duration // of idleness, and the wait before it
	repairs int           // of each kind of drift
	rounds  int           // of what takes a second or less; the median counts
	checks  int           // forced checks of each depth
	reads   int64         // while repairing
	growth  []int         // files

	rest     time.Duration // before the memory of an idle server is read
	objects  int           // in a server that has many
	watchers int
	changes  int           // that each watcher is told of
	registry time.Duration // of the registry's benchmark

	hosts   int   // simulated, of the transfer
	fleets  []int // hosts, of the growth of the transfer
	entries int   // of a layer, and of what the peers have
}

func full() size {
	return size{
		window: time.Minute, repairs: 250, rounds: 5, checks: 50, reads: 1_000_000, growth: []int{100, 1000, 10_000, 100_000},
		rest: time.Minute, objects: 10_000, watchers: 1000, changes: 1000, registry: 10 * time.Second,
		hosts: 10_000, fleets: []int{100, 1000, 10_000}, entries: 1_000_000,
	}
}

func quick() size {
	return size{
		quick: true, window: 20 * time.Second, repairs: 50, rounds: 3, checks: 10, reads: 100_000, growth: []int{100, 1000, 10_000},
		rest: 10 * time.Second, objects: 2000, watchers: 1000, changes: 200, registry: 2 * time.Second,
		hosts: 1000, fleets: []int{100, 300, 1000}, entries: 100_000,
	}
}

// row is one part of the table that can be asked for by itself.
type row struct {
	name    string
	measure func(context.Context, *bench) error
	asked   bool // it takes an hour or more, and is measured only where it is asked for
}

// rows lists all rows, in the order of the table.
func rows() []row {
	return []row{
		{name: "size", measure: measureSize}, {name: "idle", measure: measureIdle}, {name: "repair", measure: measureRepair}, {name: "first", measure: measureFirst}, {name: "check", measure: measureCheck},
		{name: "torn", measure: measureTorn}, {name: "growth", measure: measureGrowth}, {name: "peers", measure: measurePeers}, {name: "api", measure: measureAPI},
		{name: "path-up", measure: measureUp}, {name: "path-act", measure: measureAct}, {name: "path-idle", measure: measureHosts}, {name: "path-crowd", measure: measureCrowd},
		{name: "source-push", measure: measurePush}, {name: "source-same", measure: measureNothing}, {name: "source-many", measure: measureMany},
		{name: "transfer-idle", measure: measureStanding}, {name: "transfer-again", measure: measureAgain}, {name: "transfer-lost", measure: measureLost}, {name: "transfer-change", measure: measureChange},
		{name: "transfer-burst", measure: measureBurst}, {name: "transfer-relay", measure: measureRelay}, {name: "transfer-bytes", measure: measureBytes}, {name: "transfer-data", measure: measureData}, {name: "transfer-growth", measure: measureFleets}, {name: "transfer-peers", measure: measureRelist},
		{name: "workloads-placed", measure: workloads((*running.Bench).Placed)}, {name: "workloads-running", measure: workloads((*running.Bench).Running)}, {name: "workloads-start", measure: workloads((*running.Bench).Start)},
		{name: "million", measure: workloads((*running.Bench).Million), asked: true},
		{name: "names", measure: func(ctx context.Context, b *bench) error {
			dir, err := b.newDir()
			if err := errors.Join(err, b.pathPrograms(ctx)); err != nil {
				return err
			}
			return naming.Measure(ctx, b.tako, b.agent, dir, 10*b.rounds, func(what, measured, bar string, met bool) { b.table.add(what, measured, bar, judge(met)) })
		}},
		{name: "scheduler", measure: func(ctx context.Context, b *bench) error {
			return placing.Measure(ctx, func(what, measured, bar string, met bool) { b.table.add(what, measured, bar, judge(met)) },
				func(what, measured string) { b.table.add(what, measured, "stated", noVerdict) }, b.grows)
		}},
	}
}

// bench is one run.
type bench struct {
	size
	scratch string // a directory on a disk; nothing in it is deleted before the end
	made    int    // directories made in scratch
	agent   string // the binary
	tako    string // the server's, once the row api has built it
	nofsync string // the binary of which fsync is compiled out
	// packaged is the directory of both programs, as they lie beside each other where they are installed, once a row has built it.
	packaged string
	// populations are simulated hosts that have joined a server, by how many they are.
	populations map[int]*population
	// wholeAgent is how long a fresh agent took to have all entries, once the row transfer-data has measured it.
	wholeAgent time.Duration
	table      table
	peers      peers
}

func main() {
	do := run
	if len(os.Args) > 1 && os.Args[1] == swarm.Argument {
		do = func() error { return swarm.Main(os.Args[2:]) } // it was started by a row
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	short := flag.Bool("quick", false, "shorter windows and fewer rounds; the bars are meant for a full run")
	only := flag.String("only", "", "the `rows` to measure, with commas between: "+names())
	dir := flag.String("dir", "", "a `directory` on a disk for scratch files (default: below .scratch here)")
	flag.Parse()
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	// With SIGPIPE too: whoever reads only the head of the table must not leave the scratch files behind.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, runMax)
	defer cancel()
	b := &bench{size: full(), populations: map[int]*population{}, table: table{said: os.Stderr}}
	if *short {
		b.size = quick()
	}
	if b.scratch, err = load.ScratchDir(*dir); err != nil {
		return err
	}
	defer os.RemoveAll(b.scratch)
	return b.measure(ctx, wanted)
}

// measure measures rows, goes on when one cannot be, and prints the table.
func (b *bench) measure(ctx context.Context, wanted []row) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	var errs []error
	for _, r := range wanted {
		fmt.Fprintf(os.Stderr, "bench: %s ...\n", r.name)
		if err := r.measure(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("row %s: %w", r.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.table.print(os.Stdout)
	fmt.Println(load.Machine(b.scratch))
	if b.quick {
		fmt.Println("quick: shorter windows and fewer rounds than the bars are meant for")
	}
	return errors.Join(errs...)
}

func names() string {
	var all []string
	for _, r := range rows() {
		all = append(all, r.name)
	}
	return strings.Join(all, ", ")
}

func choose(only string) ([]row, error) {
	if only == "" {
		return slices.DeleteFunc(rows(), func(r row) bool { return r.asked }), nil
	}
	var wanted []row
	for name := range strings.SplitSeq(only, ",") {
		name = strings.TrimSpace(name)
		before := len(wanted)
		for _, r := range rows() {
			if r.name == name || strings.HasPrefix(r.name, name+"-") { // path is all of path-up, path-act and so on
				wanted = append(wanted, r)
			}
		}
		if len(wanted) == before {
			return nil, fmt.Errorf("there is no row %q; there are %s", name, names())
		}
	}
	return wanted, nil
}
