package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/bench/load"
)

// Bars of the way from a declaration to a fleet.
const (
	upMax             = 3 * time.Second
	actMedianMax      = 50 * time.Millisecond
	actLateMax        = 150 * time.Millisecond
	tenAnonymousMax   = 70 << 10 // kB, server with ten hosts
	joinedAnonymous   = 7 << 10  // kB, agent with 1,000 files
	oneOfManyBytesMax = 1 << 10  // beside the body
	crowdMax          = time.Second
)

const (
	hosts    = 10
	crowd    = 500
	acts     = 200  // changes one after the other
	actsFast = 30   // with -quick
	files    = 1000 // of a config with many
	// Changes to a crowd.
	crowdChanges     = 10
	crowdChangesFast = 3
)

// configPath is where the configs of the host are.
const configPath = "/apis/tako.dev/v1alpha1/namespaces/default/nodeconfigs"

// pathPrograms builds both programs beside each other, as they are packaged, once.
func (b *bench) pathPrograms(ctx context.Context) error {
	if b.packaged != "" {
		return nil
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	tako, agent := filepath.Join(dir, "tako"), filepath.Join(dir, "tako-agent")
	if err := errors.Join(compile(ctx, tako, "", "./cmd/tako"), compile(ctx, agent, "", "./cmd/tako-agent")); err != nil {
		return err
	}
	b.packaged = dir
	b.tako, b.agent = tako, agent
	return nil
}

// measureUp measures `tako up` until the example is converged.
func measureUp(ctx context.Context, b *bench) error {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	var took load.Sample
	for range b.rounds {
		dir, err := b.newDir()
		if err != nil {
			return err
		}
		f, err := load.StartFleet(ctx, b.tako, dir, "examples/hello")
		if err != nil {
			return err
		}
		took = append(took, f.Took)
		if err := f.Stop(); err != nil {
			return err
		}
	}
	b.table.add("path: tako up from exec to hello converged", took.Spread(), "<= 3 s", judge(took.Median() <= upMax))
	return nil
}

// manifest is a config of files; changed says which of them has another content, in which round.
func manifest(name string, n, changed, round int) ([]byte, error) {
	resources := make([]any, n)
	for i := range resources {
		text := content(i)
		if i == changed {
			text = fmt.Sprintf("round %d\n", round)
		}
		resources[i] = map[string]any{"name": fmt.Sprintf("f%d", i), "file": map[string]any{"path": fmt.Sprintf("/%s-%d", name, i), "content": text}}
	}
	return json.Marshal(map[string]any{
		"apiVersion": "tako.dev/v1alpha1", "kind": "NodeConfig", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"resources": resources, "rollout": map[string]any{"maxUnavailable": "100%"}},
	})
}

// measureAct measures how long a change takes to the disk of the host, and how many bytes it moves.
func measureAct(ctx context.Context, b *bench) error {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	f, err := load.StartFleet(ctx, b.tako, dir)
	if err != nil {
		return err
	}
	return errors.Join(b.oneChange(ctx, f), b.manyFiles(ctx, f), f.Stop())
}

func (b *bench) oneChange(ctx context.Context, f *load.Fleet) error {
	c := f.Client()
	defer c.Leave()
	rounds := acts
	if b.quick {
		rounds = actsFast
	}
	beside, err := b.newDir()
	if err != nil {
		return err
	}
	var took, answered, limit load.Sample
	for round := range rounds + 1 {
		body, err := manifest("one", 1, 0, round)
		if err != nil {
			return err
		}
		start := time.Now()
		if round == 0 {
			err = c.Post(ctx, configPath, body)
		} else {
			err = c.Put(ctx, configPath+"/one", body)
		}
		answer := time.Since(start)
		if err == nil {
			err = load.AwaitFile(ctx, filepath.Join(f.Root, "one-0"), fmt.Sprintf("round %d\n", round))
		}
		if err != nil {
			return err
		}
		if round > 0 { // the first one makes the layer
			took, answered = append(took, time.Since(start)), append(answered, answer)
		}
		// The rollout and its reports are over, so that rounds do not meet.
		if err := load.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		least, err := raw(beside)
		if err != nil {
			return err
		}
		limit = append(limit, least)
	}
	b.table.add("path: apply of one change until it is on the host's disk", took.String(), "<= 50 ms, p99 <= 150 ms",
		judge(took.Median() <= actMedianMax && took.At(0.99) <= actLateMax))
	b.table.add("path: of that, until the API answers", answered.String(), "stated", noVerdict)
	b.table.add("path: raw loop on the same disk between the changes", limit.String(), "stated", noVerdict)
	return nil
}

// sentBytes is the metric of what the server has sent to hosts, by call.
const sentBytes = "tako_transfer_sent_bytes_total"

// manyFiles measures what one changed file of many moves, and what the agent then takes.
func (b *bench) manyFiles(ctx context.Context, f *load.Fleet) error {
	c := f.Client()
	defer c.Leave()
	body, err := manifest("many", files, -1, 0)
	if err != nil {
		return err
	}
	if err := c.Post(ctx, configPath, body); err != nil {
		return err
	}
	last := files - 1
	if err := load.AwaitFile(ctx, filepath.Join(f.Root, fmt.Sprintf("many-%d", last)), content(last)); err != nil {
		return err
	}
	if err := load.Pause(ctx, time.Second); err != nil { // the report of it is sent
		return err
	}
	before, err := c.Sum(ctx, sentBytes)
	if err != nil {
		return err
	}
	if body, err = manifest("many", files, last, 1); err != nil {
		return err
	}
	if err := c.Put(ctx, configPath+"/many", body); err != nil {
		return err
	}
	if err := load.AwaitFile(ctx, filepath.Join(f.Root, fmt.Sprintf("many-%d", last)), "round 1\n"); err != nil {
		return err
	}
	if err := load.Pause(ctx, time.Second); err != nil { // and the report of this one is answered
		return err
	}
	after, err := c.Sum(ctx, sentBytes)
	if err != nil {
		return err
	}
	b.table.add("path: bytes to one host for one changed file of 1,000, head and body with it", fmt.Sprintf("%.0f B", after-before), "<= 1 KB", judge(after-before <= oneOfManyBytesMax))
	if err := load.Pause(ctx, b.rest); err != nil {
		return err
	}
	anonymous, resident, err := load.Process(f.Agent).Memory()
	if err != nil {
		return err
	}
	b.table.add("path: idle memory of a joined agent with 1,000 files: RssAnon", fmt.Sprintf("%s (RSS %s)", load.Megabytes(anonymous), load.Megabytes(resident)), "<= 7 MB", judge(anonymous <= joinedAnonymous))
	return nil
}

// measureHosts measures what a server takes that ten hosts have joined.
func measureHosts(ctx context.Context, b *bench) (err error) {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	f, err := load.StartFleet(ctx, b.tako, dir, "examples/hello")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	for i := range hosts - 1 {
		_, stop, err := b.newHost(ctx, f, fmt.Sprintf("bench-%d", i))
		if err != nil {
			return err
		}
		defer stop()
	}
	if err := load.Pause(ctx, b.rest); err != nil {
		return err
	}
	anonymous, resident, err := load.Process(f.PID).Memory()
	if err != nil {
		return err
	}
	b.table.add(fmt.Sprintf("path: idle memory of a server with %d hosts: RssAnon", hosts), fmt.Sprintf("%s (RSS %s)", load.Megabytes(anonymous), load.Megabytes(resident)), "<= 70 MB", judge(anonymous <= tenAnonymousMax))
	return nil
}

// measureCrowd measures one change that goes to many hosts at once.
func measureCrowd(ctx context.Context, b *bench) (err error) {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	s, err := load.Start(ctx, b.tako, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	start := time.Now()
	h, err := s.Join(ctx, crowd)
	if err != nil {
		return err
	}
	defer h.Leave()
	b.table.add(fmt.Sprintf("path: %d simulated agents join with one token, %d at once", crowd, load.JoinersMax), load.Milliseconds(time.Since(start)), "stated", noVerdict)
	rounds := crowdChanges
	if b.quick {
		rounds = crowdChangesFast
	}
	var answered, acted, acknowledged, servers, agents load.Sample
	for round := range rounds + 1 {
		body, err := manifest("crowd", 1, 0, round)
		if err != nil {
			return err
		}
		method := http.MethodPut
		if round == 0 {
			method = http.MethodPost
		}
		before, beforeHere, err := both(s.PID)
		if err != nil {
			return err
		}
		took, err := h.Apply(ctx, method, "crowd", body)
		if err != nil {
			return err
		}
		after, afterHere, err := both(s.PID)
		if err = errors.Join(err, h.Verify(ctx)); err != nil {
			return err
		}
		if round > 0 {
			answered, acted, acknowledged = append(answered, took.Answered), append(acted, took.Acted), append(acknowledged, took.Acknowledged)
			servers, agents = append(servers, after-before), append(agents, afterHere-beforeHere)
		}
		if err := load.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	anonymous, resident, err := load.Process(s.PID).Memory()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("path: one change to %d simulated agents, ", crowd)
	b.table.add(what+"answered by the API", answered.Spread(), "stated", noVerdict)
	b.table.add(what+"until the last has acted", acted.Spread(), "stated", noVerdict)
	b.table.add(what+"until all have acknowledged", acknowledged.Spread(), "<= 1 s", judge(acknowledged.Median() <= crowdMax))
	b.table.add(what+"CPU of the server", servers.Spread(), "stated", noVerdict)
	b.table.add(what+"CPU of all agents together", agents.Spread(), "stated", noVerdict)
	b.table.add(fmt.Sprintf("path: memory of the server after that, with %d agents: RssAnon", crowd), fmt.Sprintf("%s (RSS %s)", load.Megabytes(anonymous), load.Megabytes(resident)), "stated", noVerdict)
	return nil
}

// both is the CPU time of a process, and of this one.
func both(other int) (theirs, ours time.Duration, err error) {
	if theirs, err = load.Process(other).CPU(); err != nil {
		return 0, 0, err
	}
	ours, err = load.Process(os.Getpid()).CPU()
	return theirs, ours, err
}

// newHost lets one more agent join, in a directory of its own, and starts it.
func (b *bench) newHost(ctx context.Context, f *load.Fleet, name string) (pid int, stop func(), err error) {
	dir, err := b.newDir()
	if err != nil {
		return 0, nil, err
	}
	token := exec.CommandContext(ctx, b.tako, "token", "create", "join", "--environment", "default", "--name", name)
	token.Env = append(os.Environ(), "KUBECONFIG="+f.Kubeconfig())
	line, err := token.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("make a token: %w", err)
	}
	join := exec.CommandContext(ctx, b.agent, "join", "-", "--root", dir, "--name", name)
	join.Stdin = bytes.NewReader(line)
	if out, err := join.CombinedOutput(); err != nil {
		return 0, nil, fmt.Errorf("join: %w: %s", err, strings.TrimSpace(string(out)))
	}
	run := exec.CommandContext(ctx, b.agent, "run", "--root", dir)
	run.WaitDelay = stopMax
	if err := run.Start(); err != nil {
		return 0, nil, err
	}
	return run.Process.Pid, func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		_ = run.Wait() // what it ends with is not measured
	}, nil
}
