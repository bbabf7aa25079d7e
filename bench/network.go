package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

// noticedMax is within what time it is known that hosts or their link are lost.
const noticedMax = 15 * time.Second

// fewHosts is the smaller of the fleets that are lost.
const fewHosts = 10

// measureLost measures how long it takes until a server knows that all its hosts are lost, because the link to them is.
func measureLost(ctx context.Context, b *bench) error {
	for _, count := range []int{fewHosts, b.hosts} {
		what := fmt.Sprintf("transfer: the link to %d hosts is lost: until the server says so of the last", count)
		why := errors.Join(needs("ip"), swarm.OpenFiles(count))
		if os.Getuid() != 0 {
			why = errors.Join(why, errors.New("it needs root, for a network namespace"))
		}
		if why != nil {
			b.table.skip(what, "<= 15 s", why)
			continue
		}
		took, err := b.lose(ctx, count)
		if err != nil {
			return err
		}
		b.table.add(what, load.Milliseconds(took), "<= 15 s", judge(took <= noticedMax))
	}
	return nil
}

// lose has the hosts of a population in a network of their own, and cuts the link to it.
func (b *bench) lose(ctx context.Context, count int) (took time.Duration, err error) {
	p, err := b.populate(ctx, count)
	if err != nil {
		return 0, err
	}
	at := *p
	if at.address, err = swarm.Moved(p.address, swarm.NearAddress); err != nil {
		return 0, err
	}
	n := swarm.Network{Name: fmt.Sprintf("tako-bench-%d", os.Getpid())}
	if err := n.Open(ctx); err != nil {
		return 0, errors.Join(err, n.Close(ctx))
	}
	defer func() { err = errors.Join(err, n.Close(ctx)) }()
	s, err := at.serve(ctx, b.tako)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	hosts, err := swarm.Start(ctx, swarm.Options{File: at.file, Count: count, Net: swarm.FarNetwork()}, "ip", "netns", "exec", n.Name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, hosts.Stop()) }()
	if err := hosts.ConnectAll(ctx, at.address, count, allMax); err != nil {
		return 0, err
	}
	if err := rested(ctx, s); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := n.Cut(ctx); err != nil {
		return 0, err
	}
	if err := s.Gone(ctx, count); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
