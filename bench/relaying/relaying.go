// Package relaying is a row of the benchmark: one relay with many simulated hosts behind it.
package relaying

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

// firstRound is the number of the first change through a relay: the other rows have declared those below it.
const firstRound = 2000

// connectMax is how long all hosts may take to connect and have their first state. It is far above what they need.
const connectMax = 5 * time.Minute

// Bench is what the row has of the program that it is in.
type Bench struct {
	*load.Server        // of the hosts
	Program      string // path of tako
	Dir          string // where the relay has its state
	Count        int    // of the hosts
	File         string // who they are, as swarm.Join has written it
	Address      string // where the server serves hosts
	Rounds       int    // changes

	Rest, Window time.Duration
	Rested       func(context.Context) error // waits until the server is at rest
	// Idle is the CPU time of a process in a window in which nothing happens, and how many heads came to the hosts.
	Idle func(ctx context.Context, pid int, hosts *swarm.Process) (took time.Duration, heads int, err error)
	// Change makes one change to what all hosts have. It returns when all have acknowledged all changes until now, and how long it took each time.
	Change func(ctx context.Context, hosts *swarm.Process, round int) (acted, acknowledged load.Sample, err error)
	State  func(what, measured string)
	Judge  func(what, measured, bar string, met bool)
}

// Measure starts a relay of the server, and has the hosts connect to nothing else: it is one stream to the server whatever is behind it, and
// fetches once what all of them have.
func (b *Bench) Measure(ctx context.Context) (err error) {
	r, err := b.StartRelay(ctx, b.Program, filepath.Join(b.Dir, "relay"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	if err := load.Pause(ctx, b.Rest); err != nil {
		return err
	}
	alone, _, err := load.Process(r.PID).Memory()
	if err != nil {
		return err
	}
	hosts, err := swarm.Start(ctx, swarm.Options{File: b.File, Count: b.Count, Net: swarm.HostNetwork()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Stop()) }()
	w := &relaying{Bench: b, relay: r, hosts: hosts, what: fmt.Sprintf("transfer: %d hosts through one relay: ", b.Count)}
	came, err := w.during(ctx, func() error {
		return errors.Join(hosts.ConnectAll(ctx, r.Address, b.Count, connectMax), b.Rested(ctx))
	})
	if err != nil {
		return err
	}
	b.State(w.what+"their first states, each host with nothing before", came.String())
	return errors.Join(w.idle(ctx, alone), w.changes(ctx))
}

// relaying is a relay between a server and hosts.
type relaying struct {
	*Bench
	relay *load.Relay
	hosts *swarm.Process
	what  string
}

// idle measures what stands, while nothing happens. Alone is the anonymous memory of the relay before there were hosts, in kB.
func (w *relaying) idle(ctx context.Context, alone int64) error {
	if err := load.Pause(ctx, w.Rest); err != nil {
		return err
	}
	if err := w.streams(ctx); err != nil {
		return err
	}
	anonymous, resident, err := load.Process(w.relay.PID).Memory()
	if err != nil {
		return err
	}
	w.State(w.what+"memory of the relay for each, RssAnon above that of one without hosts",
		fmt.Sprintf("%.1f KB (RssAnon %s, RSS %s)", float64(anonymous-alone)/float64(w.Count), load.Megabytes(anonymous), load.Megabytes(resident)))
	before, err := load.Process(w.PID).CPU()
	if err != nil {
		return err
	}
	took, heads, err := w.Idle(ctx, w.relay.PID, w.hosts)
	if err != nil {
		return err
	}
	after, err := load.Process(w.PID).CPU()
	if err != nil {
		return err
	}
	share := func(d float64) float64 { return 100 * d / w.Window.Seconds() }
	w.State(fmt.Sprintf("%sCPU of the relay in %v, %d heartbeats and as many reports in it", w.what, w.Window, heads),
		fmt.Sprintf("%.2f %% of a core (the server %.2f %%)", share(took.Seconds()), share((after-before).Seconds())))
	return nil
}

// streams counts what the relay has open to the server.
func (w *relaying) streams(ctx context.Context) error {
	server, err := values(ctx, w.Client(), "tako_transfer_relays", "tako_transfer_watches", "tako_transfer_connections")
	if err != nil {
		return err
	}
	relay, err := values(ctx, w.relay.Client(), "tako_relay_connected", "tako_relay_agents")
	if err != nil {
		return err
	}
	connections, err := load.Process(w.relay.PID).ConnectionsTo(w.Address)
	if err != nil {
		return err
	}
	streams, agents := server["tako_transfer_relays"], relay["tako_relay_agents"]
	w.Judge(w.what+"streams of the relay to the server, connections, hosts that it serves",
		fmt.Sprintf("%.0f, %d, %.0f (the server has %.0f connections, and hears of %.0f hosts)", streams, connections, agents, server["tako_transfer_connections"], server["tako_transfer_watches"]),
		"1, 1, all", streams == 1 && relay["tako_relay_connected"] == 1 && connections == 1 && int(agents) == w.Count)
	return nil
}

// values are those of some series, of who is asked no further.
func values(ctx context.Context, c *load.Client, series ...string) (map[string]float64, error) {
	defer c.Leave()
	all := map[string]float64{}
	for _, name := range series {
		var err error
		if all[name], err = c.Value(ctx, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// changes measures changes of what all hosts have.
func (w *relaying) changes(ctx context.Context) error {
	var acted, acknowledged load.Sample
	moved, err := w.during(ctx, func() error {
		for round := range w.Rounds {
			var err error
			if acted, acknowledged, err = w.Change(ctx, w.hosts, firstRound+round); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.Verify(ctx, w.Count); err != nil {
		return err
	}
	one := fmt.Sprintf("%sone change to a layer of all, %d times: ", w.what, w.Rounds)
	w.State(one+"until the last has acted", acted.Spread())
	w.State(one+"until all have acknowledged", acknowledged.Spread())
	w.Judge(one+"layers that the relay fetched", fmt.Sprintf("%.0f; %s", moved.fetches, moved), fmt.Sprint(w.Rounds), int(moved.fetches) == w.Rounds)
	return nil
}

// passed is what went through a relay.
type passed struct {
	down, up        float64 // bytes that the server and the relay have sent, all calls together
	content         float64 // bytes of content that the relay has fetched
	fetches, shared float64 // ways from one root to another: that it asked for, and that it had
	lists           float64 // that it asked for
}

// String tells what was sent and fetched.
func (p passed) String() string {
	return fmt.Sprintf("the server sent %.0f kB to the relay, %.1f kB of it content, and the relay %.0f kB to the hosts; fetched %.0f ways to a root and %.0f lists, gave ways again %.0f times",
		p.down/1000, p.content/1000, p.up/1000, p.fetches, p.lists, p.shared)
}

// during is what passes while something is done.
func (w *relaying) during(ctx context.Context, do func() error) (passed, error) {
	before, err := w.counted(ctx)
	if err != nil {
		return passed{}, err
	}
	if err := do(); err != nil {
		return passed{}, err
	}
	after, err := w.counted(ctx)
	return passed{
		down: after.down - before.down, up: after.up - before.up, content: after.content - before.content,
		fetches: after.fetches - before.fetches, shared: after.shared - before.shared, lists: after.lists - before.lists,
	}, err
}

// counted is what has passed so far.
func (w *relaying) counted(ctx context.Context) (p passed, err error) {
	server, relay := w.Client(), w.relay.Client()
	defer server.Leave()
	defer relay.Leave()
	const sent = "tako_transfer_sent_bytes_total"
	if p.down, err = server.Sum(ctx, sent); err != nil {
		return p, err
	}
	// Of what has not happened yet there is no series.
	if p.up, err = relay.Sum(ctx, sent); err != nil && !load.NoMetric(err) {
		return p, err
	}
	for series, to := range map[string]*float64{
		"tako_relay_fetched_bytes_total": &p.content, `tako_relay_misses_total{kind="sync"}`: &p.fetches,
		`tako_relay_hits_total{kind="sync"}`: &p.shared, `tako_relay_misses_total{kind="list"}`: &p.lists,
	} {
		if *to, err = relay.Value(ctx, series); err != nil {
			return p, err
		}
	}
	return p, nil
}
