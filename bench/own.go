package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"tako.dev/tako/bench/load"
)

// Bars of the agent by itself.
const (
	binaryMax     = 20 << 20 // bytes
	anonymousMax  = 6 << 10  // kB
	residentMax   = 20 << 10 // kB
	manyAnonymous = 14 << 10 // kB, with many files
	wakeupsMax    = 6        // in the window
	ticksMax      = 1        // in the window
	durableMax    = time.Second
	bareMax       = 300 * time.Millisecond
	shallowMax    = 5 * time.Millisecond
	shallowCalls  = 2.0    // for each file
	instancesMax  = 1      // of inotify, with all files in one directory
	watchesMax    = 2      // the same
	deepShareMax  = 0.25   // of what cf-agent needs for a run that changes nothing
	managed       = 1000   // files, where nothing else is said
	many          = 10_000 // files
	straightRatio = 1.5    // how much more a further file may cost among ten times as many
)

func measureSize(_ context.Context, b *bench) error {
	st, err := os.Stat(b.agent)
	if err != nil {
		return err
	}
	b.table.add("agent binary", fmt.Sprintf("%.1f MB", float64(st.Size())/(1<<20)), "<= 20 MB", judge(st.Size() <= binaryMax))
	return nil
}

// measureIdle measures agents that have nothing to do, with ever more files: after one window the memory, in the next what idling costs,
// and, of the first, in a third under strace which calls it makes.
func measureIdle(ctx context.Context, b *bench) error {
	if err := b.idle(ctx, managed, anonymousMax); err != nil {
		return err
	}
	if err := b.idle(ctx, many, manyAnonymous); err != nil {
		return err
	}
	if b.quick {
		return nil
	}
	return b.idle(ctx, b.growth[len(b.growth)-1], 0)
}

// idle measures an agent with so many files. The bar is of its anonymous memory in kB; 0 is none.
func (b *bench) idle(ctx context.Context, files int, bar int64) error {
	s, err := b.newSite(files)
	if err != nil {
		return err
	}
	var instances, watches int
	err = b.keep(ctx, s, func(r *resident) error {
		// Some drift first: an agent that has only just started is not what stands around on a host.
		if err := b.stir(ctx, r); err != nil {
			return err
		}
		if err := load.Pause(ctx, b.window); err != nil {
			return err
		}
		anonymous, all, err := r.Memory()
		if err != nil {
			return err
		}
		after := fmt.Sprintf("idle memory, %d files, %v after the last event", files, b.window)
		if bar > 0 {
			b.table.add(after+": RssAnon", load.Megabytes(anonymous), "<= "+load.Megabytes(bar), judge(anonymous <= bar))
		} else {
			b.table.add(after+": RssAnon", load.Megabytes(anonymous), "stated", noVerdict)
		}
		if files > managed {
			b.table.add(after+": RSS", load.Megabytes(all), "stated", noVerdict)
			return b.idleCost(ctx, r)
		}
		b.table.add(after+": RSS", load.Megabytes(all), "<= "+load.Megabytes(residentMax), judge(all <= residentMax))
		if err := b.idleCost(ctx, r); err != nil {
			return err
		}
		if instances, watches, err = r.Inotify(); err != nil {
			return err
		}
		return b.idleCalls(ctx, r)
	})
	if err != nil || files > managed {
		return err
	}
	return b.watches(ctx, instances, watches)
}

// watches measures what an agent takes of inotify whose files and declaration are in one directory, as on a host: what stands for / is
// watched by itself, and the declarations beside it. Instances and watches are those of an agent with a root of its own.
func (b *bench) watches(ctx context.Context, instances, watches int) error {
	s, err := b.newOwnSite(managed)
	if err != nil {
		return err
	}
	return b.keep(ctx, s, func(r *resident) error {
		i, w, err := r.Inotify()
		if err != nil {
			return err
		}
		b.table.add("inotify instances and watches, 1,000 files in one directory", fmt.Sprintf("%d and %d (with --root, and the declaration elsewhere, %d and %d)", i, w, instances, watches),
			"1 and <= 2", judge(i == instancesMax && w <= watchesMax))
		return nil
	})
}

// stirred is how many files an agent repairs before it is idle.
const stirred = 100

// stir lets the agent repair something.
func (b *bench) stir(ctx context.Context, r *resident) error {
	for i := range stirred {
		if err := drift(kinds[i%len(kinds)], r.path(i)); err != nil {
			return err
		}
		if _, err := r.repaired(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) idleCost(ctx context.Context, r *resident) error {
	read := func() (wakeups, ticks int64, err error) {
		if wakeups, err = r.Wakeups(); err != nil {
			return 0, 0, err
		}
		ticks, err = r.Ticks()
		return wakeups, ticks, err
	}
	wakeups, ticks, err := read()
	if err != nil {
		return err
	}
	if err := load.Pause(ctx, b.window); err != nil {
		return err
	}
	wakeupsAfter, ticksAfter, err := read()
	if err != nil {
		return err
	}
	wakeups, ticks = wakeupsAfter-wakeups, ticksAfter-ticks
	b.table.add(fmt.Sprintf("idle for %v, %d files: wake-ups", b.window, r.files), fmt.Sprint(wakeups), "<= 6", judge(wakeups <= wakeupsMax))
	b.table.add(fmt.Sprintf("idle for %v, %d files: CPU", b.window, r.files), fmt.Sprintf("%d ticks", ticks), "<= 1 tick", judge(ticks <= ticksMax))
	return nil
}

func (b *bench) idleCalls(ctx context.Context, r *resident) error {
	what, bar := fmt.Sprintf("idle for %v: stat calls", b.window), "0"
	if why := needs("strace"); why != nil {
		b.table.skip(what, bar, why)
		return nil
	}
	calls, err := r.Calls(ctx, func(ctx context.Context) error { return load.Pause(ctx, b.window) })
	if err != nil {
		return err
	}
	b.table.add(what, fmt.Sprintf("%d, of %d calls of any kind", calls.Stats, calls.All), bar, judge(calls.Stats == 0))
	return nil
}

// measureFirst measures the first converge of an empty root, durable and without fsync.
func measureFirst(ctx context.Context, b *bench) error {
	durable, err := b.firsts(ctx, b.agent, managed)
	if err != nil {
		return err
	}
	b.table.add("first converge, 1,000 files, durable", durable.Spread(), "<= 1 s", judge(durable.Median() <= durableMax))
	bare, err := b.firsts(ctx, b.nofsync, managed)
	if err != nil {
		return err
	}
	b.table.add("first converge, 1,000 files, fsync compiled out", bare.Spread(), "<= 0.3 s", judge(bare.Median() <= bareMax))
	what, bar := "the same, against cf-agent's first run", "<= 1"
	peer, err := b.peers.run(ctx, b, cfengine)
	if err != nil {
		b.table.skip(what, bar, err)
		return nil
	}
	ratio := bare.Median().Seconds() / peer.first.wall.Seconds()
	b.table.add(what, fmt.Sprintf("%.2f (cf-agent %v)", ratio, peer.first.wall), bar, judge(ratio <= 1))
	return nil
}

// firsts converges new roots, each once.
func (b *bench) firsts(ctx context.Context, binary string, files int) (load.Sample, error) {
	var all load.Sample
	for range b.rounds {
		s, err := b.newSite(files)
		if err != nil {
			return nil, err
		}
		took, err := b.once(ctx, binary, s)
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// measureCheck measures what a forced look at everything costs a resident agent.
func measureCheck(ctx context.Context, b *bench) error {
	s, err := b.newSite(managed)
	if err != nil {
		return err
	}
	return b.keep(ctx, s, func(r *resident) error {
		shallow, err := b.forced(ctx, r, "shallow")
		if err != nil {
			return err
		}
		b.table.add("forced check, 1,000 files, shallow: CPU", shallow.Spread(), "<= 5 ms", judge(shallow.Median() <= shallowMax))
		if err := b.checkCalls(ctx, r); err != nil {
			return err
		}
		deep, err := b.forced(ctx, r, "deep")
		if err != nil {
			return err
		}
		what, bar := "forced check, 1,000 files, deep: CPU", fmt.Sprintf("<= %v x cf-agent", deepShareMax)
		peer, err := b.peers.run(ctx, b, cfengine)
		if err != nil {
			b.table.add(what, deep.Spread(), "", noVerdict)
			b.table.skip("the same, against cf-agent", bar, err)
			return nil
		}
		share := deep.Median().Seconds() / peer.noop.cpu.Seconds()
		b.table.add(what, fmt.Sprintf("%s: %.3f x cf-agent (%v)", deep.Spread(), share, peer.noop.cpu), bar, judge(share <= deepShareMax))
		return nil
	})
}

// checkCalls counts the system calls of one forced shallow check.
func (b *bench) checkCalls(ctx context.Context, r *resident) error {
	what, bar := "forced check, 1,000 files, shallow: system calls for each file", "<= 2"
	if why := needs("strace"); why != nil {
		b.table.skip(what, bar, why)
		return nil
	}
	calls, err := r.Calls(ctx, func(ctx context.Context) error {
		s, err := r.ask(ctx, "--check", "shallow")
		if err == nil && !s.Converged {
			err = fmt.Errorf("a shallow check found something: %+v", s)
		}
		return err
	})
	if err != nil {
		return err
	}
	each := func(n int64) float64 { return float64(n) / float64(r.files) }
	b.table.add(what, fmt.Sprintf("%.2f, %.2f of them look at files; and %.2f with which threads wait", each(calls.All-calls.Waits), each(calls.Stats), each(calls.Waits)),
		bar, judge(each(calls.All-calls.Waits) <= shallowCalls))
	return nil
}

// forced returns the CPU time that the agent spent on each of several forced checks.
func (b *bench) forced(ctx context.Context, r *resident, depth string) (load.Sample, error) {
	var all load.Sample
	for range b.checks {
		before, err := r.CPU()
		if err != nil {
			return nil, err
		}
		s, err := r.ask(ctx, "--check", depth)
		if err != nil {
			return nil, err
		}
		if !s.Converged {
			return nil, fmt.Errorf("a %s check found something: %+v", depth, s)
		}
		after, err := r.CPU()
		if err != nil {
			return nil, err
		}
		all = append(all, after-before)
	}
	return all, nil
}

// grown is what one number of files costs.
type grown struct {
	files       int
	first, noop time.Duration
	// Of an agent that has nothing to do, in kB.
	anonymous, resident int64
}

// measureGrowth measures ever more files.
func measureGrowth(ctx context.Context, b *bench) error {
	var all []grown
	for _, n := range b.growth {
		g, err := b.grow(ctx, n)
		if err != nil {
			return err
		}
		all = append(all, g)
		b.table.add(fmt.Sprintf("growth: %d files", n),
			fmt.Sprintf("first %.2f s, no-op %.2f s, idle RssAnon %s, RSS %s", g.first.Seconds(), g.noop.Seconds(), load.Megabytes(g.anonymous), load.Megabytes(g.resident)), "stated", noVerdict)
	}
	for _, c := range []struct {
		what string
		of   func(grown) float64 // in what is printed
		unit string
	}{
		{"first converge", func(g grown) float64 { return g.first.Seconds() * 1e6 }, "µs"},
		{"no-op converge", func(g grown) float64 { return g.noop.Seconds() * 1e6 }, "µs"},
		{"idle memory", func(g grown) float64 { return float64(g.anonymous) * 1024 }, "B"},
	} {
		b.straight(c.what, c.unit, all, c.of)
	}
	return nil
}

// growthPause is how long an agent is left alone before its memory is read: what converging needed has been given back.
const growthPause = 15 * time.Second

func (b *bench) grow(ctx context.Context, n int) (grown, error) {
	g := grown{files: n}
	s, err := b.newSite(n)
	if err != nil {
		return g, err
	}
	if g.first, err = b.once(ctx, b.agent, s); err != nil {
		return g, err
	}
	if g.noop, err = b.once(ctx, b.agent, s); err != nil {
		return g, err
	}
	return g, b.keep(ctx, s, func(r *resident) error {
		if err := load.Pause(ctx, growthPause); err != nil {
			return err
		}
		g.anonymous, g.resident, err = r.Memory()
		return err
	})
}

// straight compares what a further file costs in each stretch: on a straight line it is the same everywhere. A stretch may
// be cheaper than the one before, never much dearer.
func (b *bench) straight(what, unit string, all []grown, of func(grown) float64) {
	var slopes []float64
	var text []string
	worst := 0.0
	for i := 1; i < len(all); i++ {
		slope := (of(all[i]) - of(all[i-1])) / float64(all[i].files-all[i-1].files)
		if i > 1 {
			worst = max(worst, slope/slopes[i-2])
		}
		slopes = append(slopes, slope)
		text = append(text, fmt.Sprintf("%.0f", slope))
	}
	b.table.add("growth: "+what+", each further file", strings.Join(text, ", ")+" "+unit,
		fmt.Sprintf("straight: no stretch > %v x the one before", straightRatio), judge(worst <= straightRatio))
}
