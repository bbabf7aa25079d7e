package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"tako.dev/tako/bench/load"
)

// Bars of the way from a commit to the API.
const (
	hookMax      = time.Second
	oneOfManyMax = 5 * time.Second
)

const (
	pushed    = 100 // files of a commit
	pushes    = 20  // commits one after the other
	pushFast  = 5   // with -quick
	checks    = 30  // looks that find nothing new
	checkFast = 10  // with -quick
	// apart is the pause between two calls of a forge: those that come within a second of one another wait for one another.
	apart = 2 * time.Second
	// peerObjects is how many objects kubectl is given, which takes as long for each of many.
	peerObjects     = 1000
	peerObjectsFast = 200
)

// follow starts a server, and a repository that forges serve, and stops both.
func (b *bench) follow(ctx context.Context, do func(*load.Server, *load.Forge) error) (err error) {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	f, err := load.NewForge(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	return b.serve(ctx, filepath.Join(dir, "server"), func(s *load.Server) error { return do(s, f) })
}

// configMaps are n files with an object each, the numbers of which begin with first, all with a text.
func configMaps(first, n int, text string) map[string][]byte {
	files := make(map[string][]byte, n)
	for i := first; i < first+n; i++ {
		files[fmt.Sprintf("d%02d/f%05d.yaml", i%100, i)] = fmt.Appendf(nil, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: f%05d\n  labels: {app: bench}\ndata:\n  text: %q\n  more: %q\n", i, text, content(i))
	}
	return files
}

// nodeConfigs are the same of the kind that hosts follow.
func nodeConfigs(n int, text string) map[string][]byte {
	files := make(map[string][]byte, n)
	for i := range n {
		files[fmt.Sprintf("n%05d.yaml", i)] = fmt.Appendf(nil, "apiVersion: tako.dev/v1alpha1\nkind: NodeConfig\nmetadata:\n  name: n%05d\nspec:\n  resources:\n    - name: one\n      file: {path: /etc/n%05d, content: %q}\n", i, i, text)
	}
	return files
}

// measurePush measures how long the files of a commit take into the API, from the call of the forge on.
func measurePush(ctx context.Context, b *bench) error {
	kinds := []struct {
		name, path string
		files      func(text string) map[string][]byte
	}{
		{"ConfigMaps", load.ConfigMapsPath, func(text string) map[string][]byte { return configMaps(0, pushed, text) }},
		{"NodeConfigs", load.ConfigsPath, func(text string) map[string][]byte { return nodeConfigs(pushed, text) }},
	}
	rounds := pushes
	if b.quick {
		rounds = pushFast
	}
	for _, k := range kinds {
		err := b.follow(ctx, func(s *load.Server, f *load.Forge) error {
			c := s.Client()
			defer c.Leave()
			commit, err := f.Commit(ctx, k.files("round 0"))
			if err = errors.Join(err, s.Follow(ctx, f.URL)); err != nil {
				return err
			}
			var took load.Sample
			for round := 1; round <= rounds; round++ {
				if err := errors.Join(c.Applied(ctx, commit), load.Pause(ctx, apart)); err != nil {
					return err
				}
				text := fmt.Sprintf("round %d", round)
				if commit, err = f.Commit(ctx, k.files(text)); err != nil {
					return err
				}
				one, err := c.Await(ctx, k.path, text, pushed, func() error { return c.Call(ctx) })
				if err != nil {
					return err
				}
				took = append(took, one)
			}
			b.table.add(fmt.Sprintf("source: webhook to the last of %d %s, a file each, seen by a watch", pushed, k.name), took.String(), "<= 1 s", judge(took.Median() <= hookMax))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureNothing measures what a look costs that finds nothing new.
func measureNothing(ctx context.Context, b *bench) error {
	rounds := checks
	if b.quick {
		rounds = checkFast
	}
	return b.follow(ctx, func(s *load.Server, f *load.Forge) error {
		c := s.Client()
		defer c.Leave()
		commit, err := f.Commit(ctx, configMaps(0, pushed, "same"))
		if err = errors.Join(err, s.Follow(ctx, f.URL)); err != nil {
			return err
		}
		if err := errors.Join(c.Applied(ctx, commit), load.Pause(ctx, apart)); err != nil {
			return err
		}
		before, err := countWrites(ctx, c)
		if err != nil {
			return err
		}
		cpu, gits, err := b.checkCost(ctx, s, c, rounds, false)
		if err != nil {
			return err
		}
		idle, _, err := b.checkCost(ctx, s, c, rounds, true)
		if err != nil {
			return err
		}
		lists, fetches := f.Lists.Load(), f.Fetches.Load()
		if _, _, err := b.checkCost(ctx, s, c, rounds, false); err != nil {
			return err
		}
		lists, fetches = f.Lists.Load()-lists, f.Fetches.Load()-fetches
		after, err := countWrites(ctx, c)
		if err != nil {
			return err
		}
		writes := 0
		for name, version := range after {
			if before[name] != version {
				writes++
			}
		}
		n := int64(rounds)
		b.table.add(fmt.Sprintf("source: %d looks that find nothing new: ls-remotes, fetches, objects written", rounds),
			fmt.Sprintf("%d, %d, %d", lists, fetches, writes), "one, none, none each", judge(lists == n && fetches == 0 && writes == 0))
		b.table.add("source: one look that finds nothing new: CPU of git and of the server",
			fmt.Sprintf("%s and %s", load.Milliseconds(gits/time.Duration(rounds)), load.Milliseconds(max(0, cpu-idle)/time.Duration(rounds))), "stated", noVerdict)
		return nil
	})
}

// checkCost has a Source look so often, or only waits as long, and returns the CPU time of the server and that of what it has started.
func (b *bench) checkCost(ctx context.Context, s *load.Server, c *load.Client, rounds int, idle bool) (server, children time.Duration, err error) {
	looks, err := c.Looks(ctx)
	if err != nil {
		return 0, 0, err
	}
	before, err := load.Process(s.PID).CPU()
	if err != nil {
		return 0, 0, err
	}
	beforeOf, err := load.Process(s.PID).Children()
	if err != nil {
		return 0, 0, err
	}
	for range rounds {
		if !idle {
			err = c.Call(ctx)
		}
		if err = errors.Join(err, load.Pause(ctx, apart)); err != nil {
			return 0, 0, err
		}
	}
	after, err := load.Process(s.PID).CPU()
	if err != nil {
		return 0, 0, err
	}
	afterOf, err := load.Process(s.PID).Children()
	if err == nil && !idle {
		err = c.Looked(ctx, looks+float64(rounds))
	}
	return after - before, afterOf - beforeOf, err
}

// countWrites are the versions of all that a look could have written.
func countWrites(ctx context.Context, c *load.Client) (map[string]string, error) {
	all := map[string]string{}
	for _, path := range []string{load.ConfigMapsPath, load.SourcesPath, load.EventsPath} {
		versions, _, err := c.Versions(ctx, path)
		if err != nil {
			return nil, err
		}
		for name, version := range versions {
			all[path+"/"+name] = version
		}
	}
	return all, nil
}

// measureMany measures a repository of many objects.
func measureMany(ctx context.Context, b *bench) error {
	if err := b.pathPrograms(ctx); err != nil {
		return err
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	f, err := load.NewForge(ctx, dir)
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "server")
	commit, err := b.manyFirst(ctx, data, f)
	if err == nil {
		err = b.manyAgain(ctx, data, commit)
	}
	return errors.Join(err, f.Stop())
}

// manyFirst measures the first apply of them, and changes of one.
func (b *bench) manyFirst(ctx context.Context, dir string, f *load.Forge) (commit string, err error) {
	what := fmt.Sprintf("source: %d objects in one repository, ", b.objects)
	err = b.serve(ctx, dir, func(s *load.Server) error {
		c := s.Client()
		defer c.Leave()
		if commit, err = f.Commit(ctx, configMaps(0, b.objects, "first")); err != nil {
			return err
		}
		if err := load.Pause(ctx, b.rest); err != nil {
			return err
		}
		before, _, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		watched := load.Process(s.PID).WatchPeak(ctx)
		cpu, _ := load.Process(s.PID).CPU()
		start := time.Now()
		err = s.Follow(ctx, f.URL)
		if err == nil {
			err = c.Applied(ctx, commit)
		}
		took := time.Since(start)
		used, failed := load.Process(s.PID).CPU()
		peak := watched.End()
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		b.table.add(what+"first apply until Ready", fmt.Sprintf("%.1f s (CPU %.1f s)", took.Seconds(), (used-cpu).Seconds()), "stated", noVerdict)
		var one load.Sample
		for round := range b.rounds {
			if err := load.Pause(ctx, apart); err != nil {
				return err
			}
			text := fmt.Sprintf("one %d", round)
			if commit, err = f.Commit(ctx, configMaps(b.objects/2, 1, text)); err != nil {
				return err
			}
			took, err := c.Await(ctx, load.ConfigMapsPath, text, 1, func() error { return c.Call(ctx) })
			if err = errors.Join(err, c.Applied(ctx, commit)); err != nil {
				return err
			}
			one = append(one, took)
		}
		b.table.add(what+"one of them changed, from the webhook", one.Spread(), "<= 5 s", judge(one.Median() <= oneOfManyMax))
		c.Leave()
		if err := load.Pause(ctx, b.rest); err != nil {
			return err
		}
		after, _, err := load.Process(s.PID).Memory()
		if err != nil {
			return err
		}
		b.table.add(fmt.Sprintf("%sRssAnon of the server before, at the most, and %v after", what, b.rest), fmt.Sprintf("%s, %s, %s", load.Megabytes(before), load.Megabytes(peak), load.Megabytes(after)), "stated", noVerdict)
		kept, err := s.Kept()
		b.table.add(what+"what the server keeps of the repository", load.Megabytes(kept>>10), "stated", noVerdict)
		return errors.Join(err, b.kubectl(ctx, s, what, took))
	})
	return commit, err
}

// kubectl measures what the usual way takes with the same server, in a namespace of its own.
func (b *bench) kubectl(ctx context.Context, s *load.Server, what string, ours time.Duration) error {
	count := peerObjects
	if b.quick {
		count = peerObjectsFast
	}
	const bar = "stated"
	if _, err := exec.LookPath("kubectl"); err != nil {
		b.table.skip(what+"kubectl apply of such files", bar, err)
		return nil
	}
	dir, err := b.newDir()
	if err != nil {
		return err
	}
	if err := load.WriteFiles(dir, configMaps(0, count, "first")); err != nil {
		return err
	}
	c := s.Client()
	defer c.Leave()
	if err := c.Post(ctx, "/api/v1/namespaces", []byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "peer"}}`)); err != nil {
		return err
	}
	run := func(args ...string) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, "kubectl", append(args, "--kubeconfig", s.Kubeconfig(), "--namespace", "peer", "--recursive", "--filename", dir)...)
		start := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("kubectl %v: %w: %s", args, err, out[max(0, len(out)-500):])
		}
		return time.Since(start), nil
	}
	first, err := run("apply", "--server-side")
	if err != nil {
		return err
	}
	same, err := run("diff", "--server-side")
	if err != nil {
		return err
	}
	each := first / time.Duration(count)
	b.table.add(fmt.Sprintf("source: kubectl apply --server-side of %d such files", count),
		fmt.Sprintf("%s, %s each: ours is 1/%.1f", load.Milliseconds(first), load.Milliseconds(each), float64(each)*float64(b.objects)/float64(ours)), bar, noVerdict)
	b.table.add(fmt.Sprintf("source: kubectl diff --server-side of the same %d files", count), fmt.Sprintf("%s, %s each", load.Milliseconds(same), load.Milliseconds(same/time.Duration(count))), bar, noVerdict)
	return nil
}

// manyAgain measures a server that starts with all of it there.
func (b *bench) manyAgain(ctx context.Context, dir, commit string) error {
	what := fmt.Sprintf("source: %d objects in one repository, ", b.objects)
	return b.serve(ctx, dir, func(s *load.Server) error {
		c := s.Client()
		defer c.Leave()
		watched := load.Process(s.PID).WatchPeak(ctx)
		start := time.Now()
		err := errors.Join(c.Looked(ctx, 1), c.Applied(ctx, commit))
		took := time.Since(start)
		peak := watched.End()
		if err != nil {
			return err
		}
		cpu, err := load.Process(s.PID).CPU()
		if err != nil {
			return err
		}
		b.table.add(what+"restarted, from ready until all of it is looked at", fmt.Sprintf("%.1f s (CPU %.1f s since exec)", took.Seconds(), cpu.Seconds()), "stated", noVerdict)
		c.Leave()
		if err := load.Pause(ctx, b.rest); err != nil {
			return err
		}
		after, _, err := load.Process(s.PID).Memory()
		b.table.add(fmt.Sprintf("%srestarted, RssAnon at the most, and %v after", what, b.rest), fmt.Sprintf("%s, %s", load.Megabytes(peak), load.Megabytes(after)), "stated", noVerdict)
		return err
	})
}
