package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

// Bars of the transfer to many hosts.
const (
	hostMemoryMax = 64 << 10 // bytes of the server for each host
	idleShareMax  = 0.03     // of a core
	againMax      = time.Minute
	againCPUMax   = 10 * time.Second
	changeMax     = 5 * time.Second
	burstSyncsMax = 3
)

const (
	changeRounds = 3
	versions     = 1000 // that follow one another in about a second
	burstHosts   = 1000
)

// measureStanding measures what a server takes whose hosts are all connected, and to which nothing happens.
func measureStanding(ctx context.Context, b *bench) error {
	what := fmt.Sprintf("transfer: %d hosts connected and idle: ", b.hosts)
	if err := swarm.OpenFiles(b.hosts); err != nil {
		b.table.skip(what+"memory, CPU", "<= 64 KB a host, <= 3 %", err)
		return nil
	}
	bare, err := b.bareServer(ctx)
	if err != nil {
		return err
	}
	p, err := b.populate(ctx, b.hosts)
	if err != nil {
		return err
	}
	s, err := p.serve(ctx, b.tako)
	if err != nil {
		return err
	}
	return errors.Join(b.standing(ctx, s, p, what, bare), s.Stop())
}

// bareServer is the anonymous memory, in kB, of a server that has no hosts.
func (b *bench) bareServer(ctx context.Context) (anonymous int64, err error) {
	if err := b.pathPrograms(ctx); err != nil {
		return 0, err
	}
	dir, err := b.newDir()
	if err != nil {
		return 0, err
	}
	return anonymous, b.serve(ctx, dir, func(s *load.Server) error {
		if err := load.Pause(ctx, b.rest); err != nil {
			return err
		}
		anonymous, _, err = load.Process(s.PID).Memory()
		return err
	})
}

func (b *bench) standing(ctx context.Context, s *load.Server, p *population, what string, bare int64) (err error) {
	if err := load.Pause(ctx, b.rest); err != nil {
		return err
	}
	alone, _, err := load.Process(s.PID).Memory()
	if err != nil {
		return err
	}
	hosts, err := swarm.Start(ctx, swarm.Options{File: p.file, Count: p.count, Net: swarm.HostNetwork()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Stop()) }()
	if err := errors.Join(hosts.ConnectAll(ctx, p.address, p.count, allMax), rested(ctx, s), load.Pause(ctx, b.rest)); err != nil {
		return err
	}
	took, asked, err := b.idleShare(ctx, s.PID, hosts)
	if err != nil {
		return err
	}
	anonymous, resident, err := load.Process(s.PID).Memory()
	if err != nil {
		return err
	}
	each := func(kB int64) int64 { return kB << 10 / int64(p.count) }
	b.table.add(what+"memory of the server for each, RssAnon above that of a server without hosts",
		fmt.Sprintf("%.1f KB (RssAnon %s, RSS %s)", float64(each(anonymous-bare))/(1<<10), load.Megabytes(anonymous), load.Megabytes(resident)),
		"<= 64 KB", judge(each(anonymous-bare) <= hostMemoryMax))
	b.table.add(what+"of that, above the same server before they connect", fmt.Sprintf("%.1f KB", float64(each(anonymous-alone))/(1<<10)), "stated", noVerdict)
	share := took.Seconds() / b.window.Seconds()
	b.table.add(fmt.Sprintf("%sCPU of the server in %v, %d heartbeats and as many reports in it", what, b.window, asked), fmt.Sprintf("%.2f %% of a core", 100*share),
		"<= 3 %", judge(share <= idleShareMax))
	return nil
}

// idleShare is the CPU time of a server, or a relay, in a window in which nothing happens, and how many heads came to the hosts.
func (b *bench) idleShare(ctx context.Context, pid int, hosts *swarm.Process) (took time.Duration, heads int, err error) {
	if _, err := hosts.Do(swarm.Command{Do: swarm.Mark}); err != nil {
		return 0, 0, err
	}
	before, err := load.Process(pid).CPU()
	if err != nil {
		return 0, 0, err
	}
	if err := load.Pause(ctx, b.window); err != nil {
		return 0, 0, err
	}
	after, err := load.Process(pid).CPU()
	if err != nil {
		return 0, 0, err
	}
	stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
	if err == nil && stands.Syncs+stands.Dials > 0 {
		err = fmt.Errorf("something happened while nothing should have: %+v", stands)
	}
	return after - before, stands.Heads, err
}

// steadyAfter is how long hosts have to be connected until they have forgotten how often they have failed to be, and some.
const steadyAfter = 70 * time.Second

// measureAgain measures hosts that all lose their connections and come back at once, with nothing changed meanwhile.
func measureAgain(ctx context.Context, b *bench) error {
	what := fmt.Sprintf("transfer: %d hosts reconnect at once, nothing changed: ", b.hosts)
	if err := swarm.OpenFiles(b.hosts); err != nil {
		b.table.skip(what+"until the last is back, CPU of the server", "<= 60 s, <= 10 s", err)
		return nil
	}
	return b.crowd(ctx, b.hosts, func(s *load.Server, hosts *swarm.Process) error {
		if err := load.Pause(ctx, steadyAfter); err != nil {
			return err
		}
		before, beforeThere, err := pair(s.PID, hosts.PID)
		if err != nil {
			return err
		}
		if _, err := hosts.Do(swarm.Command{Do: swarm.Mark}); err != nil {
			return err
		}
		start := time.Now()
		if _, err := hosts.Do(swarm.Command{Do: swarm.Drop}); err != nil {
			return err
		}
		_, err = hosts.Await(ctx, "all hosts are back", allMax, func(s swarm.Standing) bool {
			return s.Dials >= b.hosts && s.Heads >= b.hosts && s.Watching == b.hosts
		})
		if err != nil {
			return err
		}
		took := time.Since(start)
		if err := load.Pause(ctx, calm); err != nil { // what they have reported is decided about
			return err
		}
		after, afterThere, err := pair(s.PID, hosts.PID)
		if err != nil {
			return err
		}
		stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
		if err != nil {
			return err
		}
		b.table.add(what+"until the last is back", fmt.Sprintf("%s (%d connections, %d failures%s)", load.Milliseconds(took), stands.Dials, stands.Fails, stands.Failure()), "<= 60 s", judge(took <= againMax))
		b.table.add(what+"snapshots, differences, lists", fmt.Sprintf("%d, %d, %d", stands.Snapshots, stands.Syncs, stands.Nodes), "0", judge(stands.Syncs+stands.Nodes == 0))
		b.table.add(what+"CPU of the server, with "+calm.String()+" after it", load.Milliseconds(after-before), "<= 10 s", judge(after-before <= againCPUMax))
		b.table.add(what+"CPU of all hosts together", load.Milliseconds(afterThere-beforeThere), "stated", noVerdict)
		return nil
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

// measureChange measures one change of what all hosts have.
func measureChange(ctx context.Context, b *bench) error {
	what := fmt.Sprintf("transfer: one change to a layer of %d hosts: ", b.hosts)
	if err := swarm.OpenFiles(b.hosts); err != nil {
		b.table.skip(what+"until all have acknowledged", "<= 5 s", err)
		return nil
	}
	return b.crowd(ctx, b.hosts, func(s *load.Server, hosts *swarm.Process) error {
		var all changes
		for round := range changeRounds {
			if err := all.add(ctx, s, hosts, b.hosts, round+1); err != nil {
				return err
			}
			if err := rested(ctx, s); err != nil {
				return err
			}
		}
		if err := s.Verify(ctx, b.hosts); err != nil {
			return err
		}
		all.tell(&b.table, what)
		return nil
	})
}

// changes are what some changes have taken.
type changes struct {
	acted, acknowledged, servers, hosts load.Sample
	syncsMax, nodesMax                  int
}

// add makes one more change, and waits until all hosts have acknowledged it.
func (c *changes) add(ctx context.Context, s *load.Server, hosts *swarm.Process, count, round int) error {
	api := s.Client()
	defer api.Leave()
	if _, err := api.Get(ctx, "/readyz"); err != nil { // it is connected
		return err
	}
	body, err := manifest(shared, sharedFiles, 0, round)
	if err != nil {
		return err
	}
	before, beforeThere, err := pair(s.PID, hosts.PID)
	if err != nil {
		return err
	}
	if _, err := hosts.Do(swarm.Command{Do: swarm.Mark}); err != nil {
		return err
	}
	start := time.Now()
	generation, err := api.Apply(ctx, http.MethodPut, shared, body)
	if err != nil {
		return err
	}
	if _, err := hosts.Await(ctx, "all hosts have acted", allMax, func(s swarm.Standing) bool { return s.Acted == count }); err != nil {
		return err
	}
	c.acted = append(c.acted, time.Since(start))
	if err := api.Counted(ctx, shared, generation, count); err != nil {
		return err
	}
	c.acknowledged = append(c.acknowledged, time.Since(start))
	after, afterThere, err := pair(s.PID, hosts.PID)
	if err != nil {
		return err
	}
	c.servers, c.hosts = append(c.servers, after-before), append(c.hosts, afterThere-beforeThere)
	stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
	c.syncsMax, c.nodesMax = max(c.syncsMax, stands.SyncsMax), max(c.nodesMax, stands.NodesMax)
	return err
}

func (c *changes) tell(t *table, what string) {
	t.add(what+"until the last has acted", c.acted.Spread(), "stated", noVerdict)
	t.add(what+"until all have acknowledged", c.acknowledged.Spread(), "<= 5 s", judge(c.acknowledged.Median() <= changeMax))
	t.add(what+"fetches of one host, at most", fmt.Sprintf("%d of the layer, %d of the list", c.syncsMax, c.nodesMax), "1", judge(c.syncsMax <= 1 && c.nodesMax <= 1))
	t.add(what+"CPU of the server", c.servers.Spread(), "stated", noVerdict)
	t.add(what+"CPU of all hosts together", c.hosts.Spread(), "stated", noVerdict)
}

// measureBurst measures versions that follow one another faster than hosts can fetch them.
func measureBurst(ctx context.Context, b *bench) error {
	count := min(burstHosts, b.hosts)
	what := fmt.Sprintf("transfer: %d versions to %d hosts: ", versions, count)
	if err := swarm.OpenFiles(count); err != nil {
		b.table.skip(what+"fetches of one host, at most", "<= 3", err)
		return nil
	}
	return b.crowd(ctx, count, func(s *load.Server, hosts *swarm.Process) error { return b.burst(ctx, s, hosts, what, count) })
}

// burst writes versions to the config of so many hosts that are connected.
func (b *bench) burst(ctx context.Context, s *load.Server, hosts *swarm.Process, what string, count int) error {
	if _, err := hosts.Do(swarm.Command{Do: swarm.Mark}); err != nil {
		return err
	}
	start := time.Now()
	written, err := s.Storm(ctx, shared, versions, func(round int) ([]byte, error) { return manifest(shared, sharedFiles, 0, round) })
	if err != nil {
		return err
	}
	c := s.Client()
	defer c.Leave()
	// By the API as everybody writes, and after all of them.
	body, err := manifest(shared, sharedFiles, 0, versions+1)
	if err != nil {
		return err
	}
	generation, err := c.Apply(ctx, http.MethodPut, shared, body)
	if err != nil {
		return err
	}
	if err := c.Counted(ctx, shared, generation, count); err != nil {
		return err
	}
	took := time.Since(start)
	stands, err := hosts.Do(swarm.Command{Do: swarm.Tell})
	if err := errors.Join(err, s.Verify(ctx, count)); err != nil {
		return err
	}
	b.table.add(what+"fetches of the layer by one host, at most, and by all on average", fmt.Sprintf("%d, %.2f", stands.SyncsMax, float64(stands.Syncs)/float64(count)), "<= 3", judge(stands.SyncsMax <= burstSyncsMax))
	b.table.add(what+"heads that came to one host, on average", fmt.Sprintf("%.2f", float64(stands.Heads)/float64(count)), "stated", noVerdict)
	b.table.add(what+"all of them written in, directly into the server's etcd, one after the other", load.Milliseconds(written), "about 1 s", noVerdict)
	b.table.add(what+"until all have acknowledged one more, by the API", load.Milliseconds(took), "stated", noVerdict)
	return nil
}
