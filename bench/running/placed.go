package running

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
	"tako.dev/tako/declare/workload"
)

// Bars of many instances.
const (
	placedMin    = 4000.0 // a second
	runningMax   = 90 * time.Second
	anonymousMax = 3 << 19 // kB
	lastMin      = 0.8     // of the rate of the first tenth
)

const (
	// millionMax is how long a million may take, and millionQuota the room of the store for them: three or four revisions of each are kept for some minutes.
	millionMax   = 3 * time.Hour
	millionQuota = "17179869184"
)

// sizes are how many hosts and instances a row has.
type sizes struct{ hosts, placed, runs, million int }

func (b *Bench) sizes() sizes {
	if b.Quick {
		return sizes{hosts: 1000, placed: 2000, runs: 10_000, million: 50_000}
	}
	return sizes{hosts: 5000, placed: 10_000, runs: 200_000, million: 1_000_000}
}

// each is how many replicas one of the workloads has that are all to run: a workload may have ten times as many.
const each = 10_000

// Placed measures how fast the replicas of one workload are bound to nodes, and stored.
func (b *Bench) Placed(ctx context.Context) error {
	n := b.sizes()
	return b.with(ctx, n.hosts, func(s *load.Server, hosts *swarm.Process) error {
		body, err := declaration("placed", n.placed, asking("100m", "500Mi"))
		if err != nil {
			return err
		}
		r, err := b.watch(ctx, s, hosts, n.placed, placedMax, func(c *load.Client) error { return c.Declare(ctx, body) })
		if err != nil {
			return err
		}
		what := fmt.Sprintf("workloads: %d replicas onto %d simulated nodes, with API, etcd and reports: ", n.placed, n.hosts)
		rate := perSecond(n.placed, r.stored.took())
		b.Judge(what+"stored, from the declaration to the last", fmt.Sprintf("%.0f a second (%s)", rate, load.Milliseconds(r.stored.took())), ">= 4000 a second", rate >= placedMin)
		b.State(what+"average of samples of a second", fmt.Sprintf("%.0f a second", r.stored.average(time.Second)))
		b.State(what+"until the server was told that the last runs", load.Milliseconds(r.running.took()))
		b.State(what+"CPU of the server, of all hosts together", fmt.Sprintf("%s, %s", load.Milliseconds(r.server), load.Milliseconds(r.hosts)))
		return b.clear(ctx, s, hosts, placedMax, "placed")
	})
}

// Running measures how long it takes until very many instances run, and what the server needs for them.
func (b *Bench) Running(ctx context.Context) error {
	n := b.sizes()
	return b.run(ctx, many{hosts: n.hosts, instances: n.runs, task: asking("50m", "256Mi"), within: placedMax}, func(what string, c cost) {
		took, share := c.running.took(), c.running.last()/c.running.first()
		b.Judge(what+untilRuns, load.Milliseconds(took), "<= 90 s", took <= runningMax)
		b.Judge(what+anonymousOf, c.memory(), "<= "+load.Megabytes(anonymousMax), c.most <= anonymousMax)
		b.Judge(what+tenthOf, c.tenths(), ">= 80 %", share >= lastMin)
	})
}

// Million measures the same of a million, which nobody promises anything of. The store needs more room for them than it takes by itself.
func (b *Bench) Million(ctx context.Context) error {
	n := b.sizes()
	return b.run(ctx, many{hosts: n.hosts, instances: n.million, task: asking("10m", "64Mi"), within: millionMax, flags: []string{"--quota-bytes", millionQuota}}, func(what string, c cost) {
		b.State(what+untilRuns, load.Milliseconds(c.running.took()))
		b.State(what+anonymousOf, c.memory())
		b.State(what+tenthOf, c.tenths())
	})
}

// What rows of very many instances say.
const (
	untilRuns   = "until the server was told that the last runs"
	anonymousOf = "RssAnon of the server, at most"
	tenthOf     = "rate of the last tenth, of that of the first"
)

// many is what a row of very many instances runs.
type many struct {
	hosts, instances int
	task             workload.Task
	within           time.Duration // until all run
	flags            []string      // of the server, beside the usual ones
}

// cost is what they took. Memory is in kB.
type cost struct {
	result
	most, end int64
}

func (c *cost) memory() string {
	return fmt.Sprintf("%s (%s at the end)", load.Megabytes(c.most), load.Megabytes(c.end))
}

func (c *cost) tenths() string {
	return fmt.Sprintf("%.0f %% (%.0f and %.0f a second)", 100*c.running.last()/c.running.first(), c.running.last(), c.running.first())
}

// run has very many instances run, tells what that took, and deletes them. A run that does not come to its end tells how far it came.
func (b *Bench) run(ctx context.Context, m many, tell func(what string, c cost)) error {
	return b.with(ctx, m.hosts, func(s *load.Server, hosts *swarm.Process) error {
		workloads := max(m.instances/each, 1)
		var names []string
		for i := range workloads {
			names = append(names, fmt.Sprintf("running-%02d", i))
		}
		peak := load.Process(s.PID).WatchPeak(ctx)
		r, err := b.watch(ctx, s, hosts, m.instances, m.within, func(c *load.Client) error {
			for _, name := range names {
				body, err := declaration(name, m.instances/workloads, m.task)
				if err != nil {
					return err
				}
				if err := c.Declare(ctx, body); err != nil {
					return err
				}
			}
			return nil
		})
		c := cost{result: r, most: peak.End()}
		what := fmt.Sprintf("workloads: %d instances of %d workloads on %d simulated nodes: ", m.instances, workloads, m.hosts)
		if err != nil {
			b.State(what+"came to", fmt.Sprintf("%s, with %s of RssAnon at most", r.running, load.Megabytes(c.most)))
			return err
		}
		if c.end, _, err = load.Process(s.PID).Memory(); err != nil {
			return err
		}
		tell(what, c)
		b.State(what+"CPU of the server, of all hosts together", fmt.Sprintf("%s, %s", load.Milliseconds(r.server), load.Milliseconds(r.hosts)))
		return b.clear(ctx, s, hosts, m.within, names...)
	}, m.flags...)
}

// with is Crowd, where as many connections may be open.
func (b *Bench) with(ctx context.Context, hosts int, do func(*load.Server, *swarm.Process) error, flags ...string) error {
	if err := swarm.OpenFiles(hosts); err != nil {
		return err
	}
	return b.Crowd(ctx, hosts, do, flags...)
}

// result is how instances came.
type result struct {
	stored, running course
	server, hosts   time.Duration // CPU
}

// watch does what declares instances, and looks at how they come until all run.
func (b *Bench) watch(ctx context.Context, s *load.Server, hosts *swarm.Process, count int, within time.Duration, declare func(*load.Client) error) (r result, err error) {
	c := s.Client()
	defer c.Leave()
	counter, err := s.Counter()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, counter.Close()) }()
	if _, err := counter.Instances(ctx); err != nil { // it is connected
		return r, err
	}
	server, ours, err := pair(s.PID, hosts.PID)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if err := declare(c); err != nil {
		return r, err
	}
	err = until(ctx, within, fmt.Sprintf("%d instances run", count), func() (bool, error) {
		if !r.stored.reached(count) {
			n, err := counter.Instances(ctx)
			if err != nil {
				return false, err
			}
			r.stored = append(r.stored, point{time.Since(start), n})
		}
		stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
		r.running = append(r.running, point{time.Since(start), stands.Running})
		return r.running.reached(count), err
	})
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, r.running.String())
	}
	serverAfter, oursAfter, err := pair(s.PID, hosts.PID)
	r.server, r.hosts = serverAfter-server, oursAfter-ours
	return r, err
}

// clear deletes workloads, and waits until nothing of them is left.
func (b *Bench) clear(ctx context.Context, s *load.Server, hosts *swarm.Process, within time.Duration, names ...string) error {
	start := time.Now()
	before, err := drop(ctx, s, within, names...)
	if err != nil {
		return err
	}
	err = until(ctx, within, "no instance runs", func() (bool, error) {
		stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
		return stands.Running == 0, err
	})
	b.State(fmt.Sprintf("workloads: %d instances deleted with their workloads: until nothing is left", before), load.Milliseconds(time.Since(start)))
	return err
}

// drop deletes workloads, and waits until no instance is stored: their hosts have ended them. before is how many there were.
func drop(ctx context.Context, s *load.Server, within time.Duration, names ...string) (before int, err error) {
	c := s.Client()
	defer c.Leave()
	counter, err := s.Counter()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, counter.Close()) }()
	if before, err = counter.Instances(ctx); err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := c.Drop(ctx, name); err != nil {
			return 0, err
		}
	}
	return before, until(ctx, within, "no instance is left", func() (bool, error) {
		left, err := counter.Instances(ctx)
		return left == 0, err
	})
}

// pair is the CPU time of two processes.
func pair(one, other int) (first, second time.Duration, err error) {
	if first, err = load.Process(one).CPU(); err != nil {
		return 0, 0, err
	}
	second, err = load.Process(other).CPU()
	return first, second, err
}

// until looks again and again until something is so.
func until(ctx context.Context, within time.Duration, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		began := time.Now()
		if done, err := so(); done || err != nil {
			return err
		}
		if err := load.Pause(ctx, max(lookPause, lookShare*time.Since(began))); err != nil {
			return fmt.Errorf("%s: not so after %v: %w", what, within, err)
		}
	}
}
