package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/bench/load"
)

// peersDir holds the scripts that measure the peers and, of tako and of anything else, drift and torn reads. It lies beside
// the repository where there is one.
const peersDir = "../shared/bench/cm"

// peer is another tool, by the name that the scripts know it by.
type peer string

const (
	cfengine peer = "cfengine"
	puppet   peer = "puppet"
	ansible  peer = "ansible"
)

// command is what a peer is run as, and what Debian calls its package.
func (p peer) command() (command, pkg string) {
	switch p {
	case cfengine:
		return "cf-agent", "cfengine3"
	case ansible:
		return "ansible-playbook", "ansible-core"
	}
	return "puppet", "puppet-agent"
}

// slow is how many files a peer gets that takes a third of a second for each.
const slow = 100

// size is how many files a peer is measured with, how many times with new ones, and how often it runs again each time. Only of cf-agent a bar
// hangs on it.
func (p peer) size(rounds int) (files, times, again int) {
	switch p {
	case ansible:
		return slow, 1, 1
	case puppet: // it takes ten times as long
		return managed, 1, 3
	}
	return managed, rounds, 3
}

// cost is what one run of a peer took.
type cost struct {
	wall, cpu time.Duration
	peak      int64 // kB
}

// result is what a peer needs for the same files.
type result struct {
	first, noop cost // medians
}

// peers remembers what was measured: several rows compare with it.
type peers struct {
	known  map[peer]result
	failed map[peer]error
}

// run measures a peer, once in a run of the bench.
func (p *peers) run(ctx context.Context, b *bench, who peer) (result, error) {
	if r, ok := p.known[who]; ok {
		return r, nil
	}
	if err, ok := p.failed[who]; ok {
		return result{}, err
	}
	r, err := b.measurePeer(ctx, who)
	if err != nil {
		if p.failed == nil {
			p.failed = map[peer]error{}
		}
		p.failed[who] = err
		return r, err
	}
	if p.known == nil {
		p.known = map[peer]result{}
	}
	p.known[who] = r
	return r, nil
}

// available reports why a peer cannot be measured. As root it installs what is missing.
func (b *bench) available(ctx context.Context, who peer) error {
	if _, err := os.Stat(peersDir); err != nil {
		return fmt.Errorf("no peers: %w", err)
	}
	command, pkg := who.command()
	for command, pkg := range map[string]string{command: pkg, "time": "time"} {
		if needs(command) == nil {
			continue
		}
		if os.Getuid() != 0 || needs("apt-get") != nil {
			return fmt.Errorf("no %s: as root on Debian the bench installs the package %s", command, pkg)
		}
		fmt.Fprintf(os.Stderr, "bench: installing %s ...\n", pkg)
		if _, err := b.command(ctx, "apt-get", "install", "-y", "--no-install-recommends", pkg); err != nil {
			return err
		}
	}
	return needs(command)
}

// needs reports that a command is not there.
func needs(command string) error {
	if _, err := exec.LookPath(command); err != nil {
		return fmt.Errorf("needs %s: %w", command, err)
	}
	return nil
}

// command runs a command and returns what it printed.
func (b *bench) command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	// A child that outlives a killed script would hold the pipe for ever.
	cmd.WaitDelay = stopMax
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, tail(said.Bytes()))
	}
	return string(out), nil
}

// measurePeer lets a peer make the files of its size, each time in a directory of its own: creating files is slow where some have just
// been deleted.
func (b *bench) measurePeer(ctx context.Context, who peer) (result, error) {
	if err := b.available(ctx, who); err != nil {
		return result{}, err
	}
	files, rounds, again := who.size(b.rounds)
	var firsts, noops []cost
	for range rounds {
		dir, err := b.newDir()
		if err != nil {
			return result{}, err
		}
		if _, err := b.command(ctx, "bash", filepath.Join(peersDir, "gen.sh"), strconv.Itoa(files), dir); err != nil {
			return result{}, err
		}
		if _, err := b.command(ctx, "env", "NOOPS="+strconv.Itoa(again), "bash", filepath.Join(peersDir, "run.sh"), dir, string(who), "first noop"); err != nil {
			return result{}, err
		}
		rows, err := os.ReadFile(filepath.Join(dir, "results.tsv"))
		if err != nil {
			return result{}, err
		}
		if err := errors.Join(collect(string(rows), "first", &firsts), collect(string(rows), "noop", &noops)); err != nil {
			return result{}, fmt.Errorf("%s: %w", who, err)
		}
	}
	return result{first: middle(firsts), noop: middle(noops)}, nil
}

// collect reads what run.sh wrote: peer, phase, wall, user and system seconds, peak memory in kB, anything.
func collect(rows, phase string, costs *[]cost) error {
	before := len(*costs)
	for l := range strings.Lines(rows) {
		f := strings.Split(strings.TrimSpace(l), "\t")
		if len(f) < 7 || f[1] != phase {
			continue
		}
		if !strings.Contains(f[6], "rc=0") {
			return fmt.Errorf("its run failed: %s", f[6])
		}
		var n [4]float64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseFloat(f[2+i], 64); err != nil {
				return fmt.Errorf("row %q: %w", l, err)
			}
		}
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)).Round(time.Millisecond) }
		*costs = append(*costs, cost{wall: seconds(n[0]), cpu: seconds(n[1] + n[2]), peak: int64(n[3])})
	}
	if len(*costs) == before {
		return fmt.Errorf("no row of phase %s", phase)
	}
	return nil
}

// middle returns the medians.
func middle(costs []cost) cost {
	var wall, cpu load.Sample
	var peak int64
	for _, c := range costs {
		wall, cpu, peak = append(wall, c.wall), append(cpu, c.cpu), max(peak, c.peak)
	}
	return cost{wall: wall.Median(), cpu: cpu.Median(), peak: peak}
}

// measurePeers states what the peers need for the same files, and measures the agent once more with the scripts that other
// tools are measured with.
func measurePeers(ctx context.Context, b *bench) error {
	for _, who := range []peer{cfengine, puppet, ansible} {
		r, err := b.peers.run(ctx, b, who)
		if err != nil {
			b.table.skip("peer "+string(who), "", err)
			continue
		}
		files, _, _ := who.size(b.rounds)
		b.table.add(fmt.Sprintf("peer %s, %d files", who, files), fmt.Sprintf("first run %v, no-op run %v with %v CPU, peak %s",
			r.first.wall, r.noop.wall, r.noop.cpu, load.Megabytes(max(r.first.peak, r.noop.peak))), "", noVerdict)
	}
	return b.byScript(ctx)
}

// scriptRounds is few enough that no file drifts so often that it is taken for a fight.
const scriptRounds = 60

// byScript runs drift.py and torn.py on the agent.
func (b *bench) byScript(ctx context.Context) error {
	why := needs("python3")
	if why == nil {
		_, why = os.Stat(peersDir)
	}
	if why != nil {
		b.table.skip("the agent by drift.py and torn.py", "", why)
		return nil
	}
	s, err := b.newSite(managed)
	if err != nil {
		return err
	}
	return b.keep(ctx, s, func(r *resident) error {
		out, err := b.command(ctx, "python3", filepath.Join(peersDir, "drift.py"), filepath.Dir(r.path(0)), strconv.Itoa(managed), strconv.Itoa(scriptRounds))
		if err != nil {
			return err
		}
		b.quote("drift.py", out)
		want := r.root + ".want"
		if err := os.WriteFile(want, []byte(content(0)), fileMode); err != nil {
			return err
		}
		const rounds = "4" // one more, and it is a fight
		out, err = b.command(ctx, "python3", filepath.Join(peersDir, "torn.py"), r.path(0), want, rounds)
		if err != nil {
			return err
		}
		_, counts, _ := strings.Cut(out, ": ")
		b.quote("torn.py", counts)
		return nil
	})
}

// quote adds what a script said to the table.
func (b *bench) quote(script, out string) {
	for l := range strings.Lines(out) {
		b.table.add("the agent by "+script, strings.Join(strings.Fields(l), " "), "", noVerdict)
	}
}
