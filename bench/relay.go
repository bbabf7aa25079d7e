package main

import (
	"context"
	"errors"
	"fmt"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/relaying"
	"tako.dev/tako/bench/swarm"
)

// How many hosts are behind a relay.
const (
	relayHosts     = 1000
	relayHostsFast = 200 // with -quick
)

// measureRelay measures one relay with all hosts behind it.
func measureRelay(ctx context.Context, b *bench) error {
	count := relayHosts
	if b.quick {
		count = relayHostsFast
	}
	if err := swarm.OpenFiles(count); err != nil {
		b.table.skip(fmt.Sprintf("transfer: %d hosts through one relay: streams of the relay to the server", count), "1", err)
		return nil
	}
	p, err := b.populate(ctx, count)
	if err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	s, err := p.serve(ctx, b.tako)
	if err != nil {
		return err
	}
	var all changes
	r := &relaying.Bench{
		Server: s, Program: b.tako, Dir: dir, Count: count, File: p.file, Address: p.address, Rounds: changeRounds, Rest: b.rest, Window: b.window,
		Rested: func(ctx context.Context) error { return rested(ctx, s) }, Idle: b.idleShare,
		Change: func(ctx context.Context, hosts *swarm.Process, round int) (load.Sample, load.Sample, error) {
			err := all.add(ctx, s, hosts, count, round)
			return all.acted, all.acknowledged, err
		},
		State: func(what, measured string) { b.table.add(what, measured, "stated", noVerdict) },
		Judge: func(what, measured, bar string, met bool) { b.table.add(what, measured, bar, judge(met)) },
	}
	return errors.Join(r.Measure(ctx), s.Stop())
}
