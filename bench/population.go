package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

// shared is the config that all simulated hosts have, and how many files it has.
const (
	shared      = "shared"
	sharedFiles = 20
)

// allMax is how long many hosts may take to do what is measured. It is far above every bar: a row that misses one is to say by how much.
const allMax = 5 * time.Minute

// population is hosts that have joined a server, and the data of that server, which does not run. They join by the way that
// everybody takes, once for all rows: it takes as long as it does, and is no part of what is measured.
type population struct {
	count   int
	dir     string // data of the server
	file    string // who the hosts are
	address string // where the server serves hosts
}

// populate makes a population, once for each size.
func (b *bench) populate(ctx context.Context, count int) (*population, error) {
	if p := b.populations[count]; p != nil {
		return p, nil
	}
	if err := b.pathPrograms(ctx); err != nil {
		return nil, err
	}
	dir, err := b.newDir()
	if err != nil {
		return nil, err
	}
	p := &population{count: count, dir: filepath.Join(dir, "server"), file: filepath.Join(dir, "hosts")}
	s, err := load.Start(ctx, b.tako, p.dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(b.join(ctx, s, p), s.Stop()); err != nil {
		return nil, err
	}
	b.populations[count] = p
	return p, nil
}

// join lets the hosts of a population join, and brings them their first state.
func (b *bench) join(ctx context.Context, s *load.Server, p *population) error {
	line, err := s.Token(ctx, p.count)
	if err != nil {
		return err
	}
	p.address = line.Address
	start := time.Now()
	if err := swarm.Join(ctx, swarm.Joining{Line: line, Count: p.count, Net: swarm.HostNetwork()}, p.file); err != nil {
		return err
	}
	b.table.add(fmt.Sprintf("transfer: %d simulated hosts join with one token", p.count), load.Milliseconds(time.Since(start)), "stated", noVerdict)
	c := s.Client()
	defer c.Leave()
	body, err := manifest(shared, sharedFiles, -1, 0)
	if err != nil {
		return err
	}
	generation, err := c.Apply(ctx, http.MethodPost, shared, body)
	if err != nil {
		return err
	}
	hosts, err := swarm.Start(ctx, swarm.Options{File: p.file, Count: p.count, Net: swarm.HostNetwork()})
	if err != nil {
		return err
	}
	if err = hosts.ConnectAll(ctx, p.address, p.count, allMax); err == nil {
		err = c.Counted(ctx, shared, generation, p.count)
	}
	return errors.Join(err, hosts.Stop())
}

// serve starts the server of a population where the hosts know it, with further flags.
func (p *population) serve(ctx context.Context, program string, flags ...string) (*load.Server, error) {
	return load.Start(ctx, program, p.dir, append([]string{"--transfer-listen", p.address}, flags...)...)
}

// calm is how long a server has time to come to rest, after all hosts have done what is measured.
const calm = 5 * time.Second

// crowd starts the server of a population and its hosts, connects them, hands both to do when all is quiet, and ends them.
func (b *bench) crowd(ctx context.Context, count int, do func(*load.Server, *swarm.Process) error, flags ...string) (err error) {
	p, err := b.populate(ctx, count)
	if err != nil {
		return err
	}
	s, err := p.serve(ctx, b.tako, flags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	hosts, err := swarm.Start(ctx, swarm.Options{File: p.file, Count: p.count, Net: swarm.HostNetwork()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.Stop()) }()
	if err := hosts.ConnectAll(ctx, p.address, p.count, allMax); err != nil {
		return err
	}
	if err := rested(ctx, s); err != nil {
		return err
	}
	return do(s, hosts)
}

// restingShare is the share of a core below which a server counts as one that rests: several times what idle hosts cost it.
const restingShare = 0.1

// rested waits until a server has done what follows from what was done to it: what is known of hosts is stored for some seconds afterwards,
// spread over all of them.
func rested(ctx context.Context, s *load.Server) error {
	for end := time.Now().Add(allMax); ; {
		before, err := load.Process(s.PID).CPU()
		if err != nil {
			return err
		}
		if err := load.Pause(ctx, calm); err != nil {
			return err
		}
		after, err := load.Process(s.PID).CPU()
		if err != nil {
			return err
		}
		share := (after - before).Seconds() / calm.Seconds()
		if share < restingShare {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server does not come to rest within %v: it takes %.0f %% of a core", allMax, 100*share)
		}
	}
}
