package placing

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
)

// The peer that is built from its public source: its scheduler with its own benchmark, as its module has it.
const (
	swarmkit        = "github.com/moby/swarmkit/v2"
	swarmkitVersion = "v2.0.0"
	swarmkitTasks   = 10_000
	swarmkitName    = "BenchmarkScheduler1kNodes10kTasks"
	// fetchMax bounds fetching the module and what it needs.
	fetchMax = 5 * time.Minute
)

// floor is what the project publishes that Kubernetes' scheduler reaches on 5,000 nodes at least, placements a second: thresholds of its scheduler_perf.
// It cannot be built from its module alone.
var floor = map[string]float64{"Alike/basic": 680, "Alike/spread": 460, "Alike/anti-affinity": 60, "Alike/affinity": 35, "Alike/preferred": 90}

// peers tells how fast SwarmKit's scheduler is on this machine, beside ours with as many nodes. ours is placements a second.
func peers(ctx context.Context, ours float64, state func(what, measured string)) {
	const what = "scheduler: peer SwarmKit " + swarmkitVersion + ", 1,000 nodes, 10,000 tasks, its own benchmark"
	theirs, err := swarm(ctx)
	if err != nil {
		state(what, "not measured: "+err.Error())
		return
	}
	state(what, fmt.Sprintf("%.0f a second", theirs))
	state("scheduler: the same number of nodes, groups of 10 (no store; SwarmKit writes into one in memory)", fmt.Sprintf("%.0f a second, %.1f x SwarmKit", ours, ours/theirs))
}

// swarm runs the benchmark, in a module of its own that is made for it.
func swarm(ctx context.Context) (perSecond float64, err error) {
	dir, err := os.MkdirTemp("", "peer-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module peer\n"), 0o644); err != nil {
		return 0, err
	}
	fetch, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	const scheduler = swarmkit + "/manager/scheduler"
	get := exec.CommandContext(fetch, "go", "get", "-t", scheduler+"@"+swarmkitVersion)
	get.Dir = dir
	if out, err := get.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("fetch %s@%s: %w: %s", swarmkit, swarmkitVersion, err, load.Tail(out))
	}
	found, err := load.Benchmarks(ctx, dir, scheduler, "^"+swarmkitName+"$", times)
	if err != nil {
		return 0, err
	}
	return swarmkitTasks / (found[swarmkitName]["ns/op"] / float64(time.Second)), nil
}
