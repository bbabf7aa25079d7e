package main

import (
	"context"
	"fmt"
	"strings"

	"tako.dev/tako/bench/load"
	"tako.dev/tako/bench/swarm"
)

// grows adds a line about something that grows.
func (b *bench) grows(what, unit string, points []load.Point) {
	var text []string
	for _, p := range points {
		text = append(text, fmt.Sprintf("%.0f: %.3g %s", p.N, p.Value, unit))
	}
	b.table.add(what, fmt.Sprintf("%s; exponent %.2f", strings.Join(text, ", "), load.Slope(points)), "stated", noVerdict)
}

// measureFleets measures what a server takes with ever more hosts, and with ever more entries.
func measureFleets(ctx context.Context, b *bench) error {
	var memory, acknowledged, cpu []load.Point
	bare, err := b.bareServer(ctx)
	if err != nil {
		return err
	}
	for _, count := range b.fleets {
		if err := swarm.OpenFiles(count); err != nil {
			b.table.skip(fmt.Sprintf("transfer: growth: %d hosts", count), "stated", err)
			continue
		}
		n := float64(count)
		err := b.crowd(ctx, count, func(s *load.Server, hosts *swarm.Process) error {
			anonymous, _, err := load.Process(s.PID).Memory()
			if err != nil {
				return err
			}
			var all changes
			for round := range changeRounds {
				if err := all.add(ctx, s, hosts, count, changeRounds+round+1); err != nil {
					return err
				}
			}
			memory = append(memory, load.Point{N: n, Value: float64(max(anonymous-bare, 1)) / 1024})
			acknowledged = append(acknowledged, load.Point{N: n, Value: all.acknowledged.Median().Seconds() * 1000})
			cpu = append(cpu, load.Point{N: n, Value: all.servers.Median().Seconds() * 1000})
			return nil
		})
		if err != nil {
			return err
		}
	}
	if len(memory) > 1 {
		b.grows("transfer: growth with hosts: RssAnon of the server above that of one without hosts, right after they came", "MB", memory)
		b.grows("transfer: growth with hosts: one change until all have acknowledged", "ms", acknowledged)
		b.grows("transfer: growth with hosts: CPU of the server for it", "ms", cpu)
	}
	return b.growEntries(ctx)
}

// growEntries measures ever larger layers.
func (b *bench) growEntries(ctx context.Context) error {
	found, err := load.Benchmarks(ctx, "", benchmarksDir, "^Benchmark(Delta|Layer)$", "5x")
	if err != nil {
		return err
	}
	var memory, time []load.Point
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		layer, delta := found[fmt.Sprintf("BenchmarkLayer/entries=%d", n)], found[fmt.Sprintf("BenchmarkDelta/entries=%d/changes=1", n)]
		if layer == nil || delta == nil {
			return fmt.Errorf("benchmarks of %d entries were not run", n)
		}
		memory = append(memory, load.Point{N: float64(n), Value: float64(n) * layer["B/entry"] / (1 << 20)})
		time = append(time, load.Point{N: float64(n), Value: delta["ns/op"] / 1e6})
	}
	b.grows("transfer: growth with entries of a layer: its memory on the server, without bodies", "MB", memory)
	b.grows("transfer: growth with entries of a layer: one change to one host", "ms", time)
	return nil
}
