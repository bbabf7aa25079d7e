package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/bench/load"
)

// measureRelist measures what peers do where a host of ours asks for a difference: read everything again. They have the same entries, in
// the same server and in its etcd.
func measureRelist(ctx context.Context, b *bench) error {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	ours, err := b.ourFigures(ctx)
	if err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	if err := b.serve(ctx, dir, func(s *load.Server) error { return s.FillStore(ctx, b.entries) }); err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		before, err := load.Process(s.PID).CPU()
		if err != nil {
			return err
		}
		informer, err := s.Relist(ctx, b.entries)
		if err != nil {
			return fmt.Errorf("informer: %w", err)
		}
		after, err := load.Process(s.PID).CPU()
		if err != nil {
			return err
		}
		watch, err := s.Rewatch(ctx, b.entries)
		if err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		what := fmt.Sprintf("transfer: peers with %d entries of %d B: ", b.entries, load.EntryBytes)
		b.table.add(what+"ours, read over an open connection and neither verified, staged nor synced: all of them, and what one change costs a host that was away", ours.all.String()+"; "+ours.one.String(), "stated", noVerdict)
		b.addWholeAgent(what)
		b.table.add(what+"Kubernetes informer, which connects, decodes and keeps what it lists; it lists again in both cases", fmt.Sprintf("%s, CPU of the server %s; %s", informer, load.Milliseconds(after-before), ours.against(informer)), "stated", noVerdict)
		b.table.add(what+"etcd, range and watch, again in both cases after a compaction", watch.String()+"; "+ours.against(watch), "stated", noVerdict)
		return nil
	})
}

// addWholeAgent puts beside it what an agent takes that does all of its work.
func (b *bench) addWholeAgent(what string) {
	what += "a whole agent of ours that is fresh, from its start until the server knows that it has verified and synced as many"
	if b.wholeAgent == 0 {
		b.table.add(what, "see row transfer-data, which was not measured in this run", "stated", noVerdict)
		return
	}
	b.table.add(what, load.Milliseconds(b.wholeAgent), "stated", noVerdict)
}

// own is what ours moves: all entries, and one change.
type own struct{ all, one load.Moves }

// against compares a peer with ours.
func (o own) against(peer load.Moves) string {
	return fmt.Sprintf("bytes %.2fx, time %.2fx of ours for all; %.0fx, %.0fx for one change",
		peer.Bytes/o.all.Bytes, peer.Took.Seconds()/o.all.Took.Seconds(), peer.Bytes/o.one.Bytes, peer.Took.Seconds()/o.one.Took.Seconds())
}

// ourFigures are those of our benchmarks, over the same loopback.
func (b *bench) ourFigures(ctx context.Context) (own, error) {
	found, err := load.Benchmarks(ctx, "", benchmarksDir, fmt.Sprintf("^Benchmark(Snapshot|Delta)$/^entries=%d$", b.entries), "3x")
	if err != nil {
		return own{}, err
	}
	of := func(name string) (load.Moves, error) {
		f := found[name]
		if f == nil {
			return load.Moves{}, fmt.Errorf("benchmark %s was not run", name)
		}
		return load.Moves{Bytes: f["down-B"], Took: time.Duration(f["ns/op"])}, nil
	}
	all, err1 := of(fmt.Sprintf("BenchmarkSnapshot/entries=%d/kept=false", b.entries))
	one, err2 := of(fmt.Sprintf("BenchmarkDelta/entries=%d/changes=1", b.entries))
	return own{all, one}, errors.Join(err1, err2)
}
