package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
)

// Bars of an agent that is given much data.
const (
	fewEntries     = 1_000
	fewAnonymous   = 7 << 10  // kB
	dataAnonymous  = 24 << 10 // kB
	snapshotMax    = 3 * time.Second
	snapshotCPUMax = 1500 * time.Millisecond
)

// measureData measures agents that have joined and are given data: what it takes of them, and how fast it comes to one that has none.
func measureData(ctx context.Context, b *bench) error {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	for _, c := range []struct {
		entries int
		bar     int64 // of the anonymous memory, in kB
	}{{fewEntries, fewAnonymous}, {b.entries, dataAnonymous}} {
		if err := b.data(ctx, c.entries, c.bar); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) data(ctx context.Context, entries int, bar int64) (err error) {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	f, err := load.StartFleet(ctx, b.tako, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	list := filepath.Join(dir, "quotas.jsonl")
	if err := load.WriteData(list, entries); err != nil {
		return err
	}
	size, err := f.Push(ctx, b.tako, list)
	if err != nil {
		return err
	}
	// The first host has the server make the layer, which is no part of what is measured.
	if err := f.Delivered(ctx, f.Node, entries); err != nil {
		return err
	}
	return b.fresh(ctx, f, entries, size, bar)
}

// fresh measures a host that joins when there is much for it.
func (b *bench) fresh(ctx context.Context, f *load.Fleet, entries int, size, bar int64) error {
	const node = "fresh"
	before, err := load.Process(f.PID).CPU()
	if err != nil {
		return err
	}
	pid, stop, err := b.newHost(ctx, f, node)
	if err != nil {
		return err
	}
	defer stop()
	start := time.Now() // it runs since now
	if err := f.Delivered(ctx, node, entries); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := load.Process(f.PID).CPU()
	if err != nil {
		return err
	}
	agent, err := load.Process(pid).CPU()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("transfer: a fresh agent with %d entries of %d B: ", entries, size/int64(entries))
	if entries == b.entries {
		b.wholeAgent = took
		dir, err := b.newDir()
		if err != nil {
			return err
		}
		bulk, err := load.Bulk(dir, size)
		if err != nil {
			return err
		}
		b.table.add(what+"from its start until the server knows that it has them", load.Milliseconds(took), "<= 3 s", judge(took <= snapshotMax))
		b.table.add(what+"CPU of the server, with its joining", load.Milliseconds(after-before), "<= 1.5 s", judge(after-before <= snapshotCPUMax))
		b.table.add(what+"CPU of the agent", load.Milliseconds(agent), "stated", noVerdict)
		b.table.add(what+"against reading, hashing, writing and fsyncing as many bytes in bulk", fmt.Sprintf("%.1f times (%s)", took.Seconds()/bulk.Seconds(), load.Milliseconds(bulk)), "stated", noVerdict)
	}
	if err := load.Pause(ctx, b.rest); err != nil {
		return err
	}
	anonymous, resident, err := load.Process(pid).Memory()
	if err != nil {
		return err
	}
	b.table.add(what+fmt.Sprintf("RssAnon after %v", b.rest), fmt.Sprintf("%s (RSS %s)", load.Megabytes(anonymous), load.Megabytes(resident)), "<= "+load.Megabytes(bar), judge(anonymous <= bar))
	return nil
}
