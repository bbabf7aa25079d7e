package main

import (
	"context"
	"errors"
	"fmt"

	"tako.dev/tako/bench/load"
)

// Bars of what a difference moves, and takes.
const (
	deltaMax      = 400      // bytes
	descentMax    = 4 << 10  // bytes
	manyDeltaMax  = 80 << 10 // bytes
	manyDeltaCPU  = 20.0     // milliseconds
	benchmarksDir = "./internal/transfer/server"
)

// measureBytes measures what a change of a large layer moves, and what it takes of a server.
func measureBytes(ctx context.Context, b *bench) error {
	found, err := load.Benchmarks(ctx, "", benchmarksDir, fmt.Sprintf("^Benchmark(Delta|Descent)$/^entries=%d$", b.entries), "20x")
	if err != nil {
		return err
	}
	of := fmt.Sprintf("entries=%d", b.entries)
	one, many, descent := found["BenchmarkDelta/"+of+"/changes=0"], found["BenchmarkDelta/"+of+"/changes=1000"], found["BenchmarkDescent/"+of]
	if one == nil || many == nil || descent == nil {
		return errors.New("not all benchmarks of differences were run")
	}
	what := fmt.Sprintf("transfer: of %d entries ", b.entries)
	b.table.add(what+"delete 1, difference: bytes to the host on the wire (to the server)", sent(one), "<= 400 B", judge(one["down-B"] <= deltaMax))
	b.table.add(what+"delete 1, descent by hash: bytes on the wire", fmt.Sprintf("%s, %.0f rounds", sent(descent), descent["rounds"]), "<= 4 KB", judge(descent["down-B"] <= descentMax))
	b.table.add(what+"change 1,000, difference: bytes on the wire", sent(many), "<= 80 KB", judge(many["down-B"] <= manyDeltaMax))
	b.table.add(what+"change 1,000, difference: CPU of the server, and of reading it", fmt.Sprintf("%.2f ms (to delete 1, %.2f ms)", many["cpu-ms"], one["cpu-ms"]), "<= 20 ms", judge(many["cpu-ms"] <= manyDeltaCPU))
	return nil
}

// sent is what went to the host, and what came from it.
func sent(f load.Figures) string { return fmt.Sprintf("%.0f B (%.0f B)", f["down-B"], f["up-B"]) }
