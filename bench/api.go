package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/bench/load"
)

// Bars of the API.
const (
	freshMax           = time.Second
	restartMax         = 600 * time.Millisecond
	killedMax          = 1500 * time.Millisecond
	serverAnonymousMax = 60 << 10  // kB
	serverResidentMax  = 130 << 10 // kB
	loadedMax          = 300 << 10 // kB
	createsMin         = 1500      // a second
	registryMin        = 8000      // a second
	deliveriesMin      = 50_000    // a second
	listMax            = 1500 * time.Millisecond
)

const (
	writers   = 32  // clients that create at once
	resources = 20  // of each config of the long list
	chunk     = 500 // objects in one part of it
)

// measureAPI measures the control plane. A part that cannot be measured does not keep the others from it.
func measureAPI(ctx context.Context, b *bench) error {
	before := load.Average()
	b.tako = filepath.Join(b.scratch, "tako")
	if err := compile(ctx, b.tako, "", "./cmd/tako"); err != nil {
		return err
	}
	var errs []error
	for _, part := range []func(context.Context) error{b.apiStart, b.apiIdle, b.apiLoaded, b.apiMemory, b.apiCreate, b.apiRegistry, b.apiWatch, b.apiList} {
		if err := part(ctx); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	b.table.add("API: load of the machine before, after", before+", "+load.Average(), "stated", noVerdict)
	return errors.Join(errs...)
}

// serve starts a server on a data directory, hands it to do, and stops it.
func (b *bench) serve(ctx context.Context, dir string, do func(*load.Server) error) error {
	s, err := load.Start(ctx, b.tako, dir)
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Stop())
}

// apiStart measures starts on an empty data directory, and again on the same.
func (b *bench) apiStart(ctx context.Context) error {
	var fresh, again load.Sample
	for range b.rounds {
		dir, err := b.newDir()
		if err != nil {
			return err
		}
		for _, to := range []*load.Sample{&fresh, &again} {
			if err := b.serve(ctx, dir, func(s *load.Server) error { *to = append(*to, s.Took); return nil }); err != nil {
				return err
			}
		}
	}
	b.table.add("API: exec to ready, fresh", fresh.Spread(), "<= 1 s", judge(fresh.Median() <= freshMax))
	b.table.add("API: exec to ready, restart", again.Spread(), "<= 0.6 s", judge(again.Median() <= restartMax))
	return nil
}

// apiIdle measures the memory of a server that nobody uses.
func (b *bench) apiIdle(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		if err := load.Pause(ctx, b.rest); err != nil {
			return err
		}
		anonymous, resident, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		what := fmt.Sprintf("API: idle memory, %v after the start: ", b.rest)
		b.table.add(what+"RssAnon", load.Megabytes(anonymous), "<= 60 MB", judge(anonymous <= serverAnonymousMax))
		b.table.add(what+"RSS", load.Megabytes(resident), "<= 130 MB", judge(resident <= serverResidentMax))
		c := s.Client()
		defer c.Leave()
		set, err := collector(ctx, c)
		if err != nil {
			return err
		}
		b.table.add("API: collector, as the server sets it", set, "stated", noVerdict)
		return nil
	})
}

// collector tells from the server's metrics how its garbage collector is set.
func collector(ctx context.Context, c *load.Client) (string, error) {
	text, err := c.Get(ctx, "/metrics")
	if err != nil {
		return "", err
	}
	var found []string
	for _, name := range []string{"go_gc_gogc_percent", "go_gc_gomemlimit_bytes"} {
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
		if m == nil {
			return "", fmt.Errorf("/metrics: no %s", name)
		}
		found = append(found, name+" "+string(m[1]))
	}
	return strings.Join(found, ", "), nil
}

// apiLoaded measures creation, the memory after it, and starts after kill -9 with all that was created.
func (b *bench) apiLoaded(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	s, err := load.Start(ctx, b.tako, dir)
	if err != nil {
		return err
	}
	if err := b.fill(ctx, s); err != nil {
		return errors.Join(err, s.Stop())
	}
	var killed load.Sample
	for range b.rounds {
		if err := s.Kill(); err != nil {
			return err
		}
		if s, err = load.Start(ctx, b.tako, dir); err != nil {
			return err
		}
		killed = append(killed, s.Took)
	}
	b.table.add(fmt.Sprintf("API: exec to ready after kill -9, %d objects and their revisions", b.objects), killed.Spread(), "<= 1.5 s", judge(killed.Median() <= killedMax))
	return s.Stop()
}

// fill creates small configs, and waits until their revisions are made.
func (b *bench) fill(ctx context.Context, s *load.Server) error {
	bodies, err := load.Configs(b.objects, 1)
	if err != nil {
		return err
	}
	took, err := s.CreateAll(ctx, writers, load.ConfigsPath, bodies)
	if err != nil {
		return err
	}
	rate := float64(b.objects) / took.Seconds()
	b.table.add(fmt.Sprintf("API: creates by REST, %d clients, %d NodeConfigs, fsync, revisions made meanwhile", writers, b.objects),
		perSecond(rate), ">= 1500/s", judge(rate >= createsMin))
	behind, err := s.Settled(ctx, b.objects)
	if err != nil {
		return err
	}
	b.table.add("API: the last of their revisions, after the last create", load.Milliseconds(behind), "stated", noVerdict)
	_, text, err := afterLoad(s)
	if err != nil {
		return err
	}
	b.table.add(fmt.Sprintf("API: memory after that load, %d objects and their revisions: RSS", b.objects), text, "stated", noVerdict)
	return nil
}

// apiMemory measures the memory of a server that was given half as many configs: with their revisions they are as many objects
// as the bar is about.
func (b *bench) apiMemory(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	configs := b.objects / 2
	bodies, err := load.Configs(configs, 1)
	if err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		if _, err := s.CreateAll(ctx, writers, load.ConfigsPath, bodies); err != nil {
			return err
		}
		if _, err := s.Settled(ctx, configs); err != nil {
			return err
		}
		resident, text, err := afterLoad(s)
		if err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("API: memory after load, %d objects, of which half are revisions: RSS", b.objects), text, "<= 300 MB", judge(resident <= loadedMax))
		return nil
	})
}

// afterLoad is the memory of a server: its RSS in kB, and all of it in words.
func afterLoad(s *load.Server) (resident int64, text string, err error) {
	anonymous, resident, err := load.Process(s.PID).Memory()
	if err != nil {
		return 0, "", err
	}
	peak, err := load.Process(s.PID).Peak()
	if err != nil {
		return 0, "", err
	}
	return resident, fmt.Sprintf("%s (RssAnon %s, peak RSS %s)", load.Megabytes(resident), load.Megabytes(anonymous), load.Megabytes(peak)), nil
}

// apiCreate measures creation of what no controller takes up.
func (b *bench) apiCreate(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	bodies, err := load.ConfigMaps(b.objects)
	if err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		took, err := s.CreateAll(ctx, writers, load.ConfigMapsPath, bodies)
		if err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("API: the same of %d ConfigMaps, which no controller takes up", b.objects),
			perSecond(float64(b.objects)/took.Seconds()), "stated", noVerdict)
		return nil
	})
}

// registryRate is what the registry's benchmark reports beside the time of one operation.
var registryRate = regexp.MustCompile(`(?m)^BenchmarkCreate\S*\s.*\s(\S+) creates/s`)

// apiRegistry measures creation inside the server, by the benchmark of the package.
func (b *bench) apiRegistry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandMax)
	defer cancel()
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkCreate$", "-benchtime", b.registry.String(), "./internal/apiserver/registry")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir) // on the disk, as everything else
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, tail(out))
	}
	m := registryRate.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%v: no rate in\n%s", cmd.Args, tail(out))
	}
	rate, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return err
	}
	b.table.add(fmt.Sprintf("API: creates in process through the registry, %d at once, fsync", writers), perSecond(rate), ">= 8000/s", judge(rate >= registryMin))
	return b.apiDisk(dir)
}

// apiDisk measures the least that a durable write of any store can cost: to append a page and wait for the disk. Those who wait
// together share one such write.
func (b *bench) apiDisk(dir string) (err error) {
	f, err := os.Create(filepath.Join(dir, "raw"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var all load.Sample
	for range b.repairs {
		start := time.Now()
		if _, err := f.Write(make([]byte, os.Getpagesize())); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		all = append(all, time.Since(start))
	}
	b.table.add(fmt.Sprintf("API: raw append and fdatasync beside it, %d times", len(all)), all.String(), "stated", noVerdict)
	return nil
}

// apiWatch measures how many events reach watchers that all watch the same, each with a connection of its own.
func (b *bench) apiWatch(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	bodies, err := load.ConfigMaps(b.changes)
	if err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		took, err := s.Deliver(ctx, b.watchers, bodies)
		if err != nil {
			return err
		}
		rate := float64(b.watchers*b.changes) / took.Seconds()
		_, resident, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("API: %d watchers, %d changes: deliveries", b.watchers, b.changes),
			fmt.Sprintf("%s (RSS %s)", perSecond(rate), load.Megabytes(resident)), ">= 50000/s", judge(rate >= deliveriesMin))
		return nil
	})
}

// apiList measures a list of everything in parts, and what it costs the server in memory.
func (b *bench) apiList(ctx context.Context) error {
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	bodies, err := load.Configs(b.objects, resources)
	if err != nil {
		return err
	}
	return b.serve(ctx, dir, func(s *load.Server) error {
		if _, err := s.CreateAll(ctx, writers, load.ConfigsPath, bodies); err != nil {
			return err
		}
		if _, err := s.Settled(ctx, b.objects); err != nil {
			return err
		}
		_, before, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		if err := load.Process(s.PID).ForgetPeak(); err != nil {
			return err
		}
		what := fmt.Sprintf("API: list of %d NodeConfigs of %d resources, in parts of %d", b.objects, resources, chunk)
		size, took, err := b.lists(ctx, s.Client())
		if err != nil {
			return err
		}
		b.table.add(what+", gzip as client-go asks for it", took.Spread(), "<= 1.5 s", judge(took.Median() <= listMax))
		if _, took, err = b.lists(ctx, s.Plain()); err != nil {
			return err
		}
		b.table.add(what+", not compressed", took.Spread(), "stated", noVerdict)
		_, after, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		peak, err := load.Process(s.PID).Peak()
		if err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("API: RSS before, at the most during and after those %d lists of %s", 2*b.rounds, load.Megabytes(size>>10)),
			fmt.Sprintf("%s, %s, %s", load.Megabytes(before), load.Megabytes(peak), load.Megabytes(after)), "bounded: stated", noVerdict)
		return nil
	})
}

// lists lets a client read the long list several times.
func (b *bench) lists(ctx context.Context, c *load.Client) (size int64, all load.Sample, err error) {
	defer c.Leave()
	for range b.rounds {
		var took time.Duration
		if size, took, err = c.List(ctx, load.ConfigsPath, b.objects, chunk); err != nil {
			return 0, nil, err
		}
		all = append(all, took)
	}
	return size, all, nil
}

func perSecond(rate float64) string { return fmt.Sprintf("%.0f/s", rate) }
