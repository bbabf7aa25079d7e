package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/bench/load"
)

// Bars of repairs.
const (
	medianOver = time.Millisecond     // above the median of the raw loop
	p99Over    = 5 * time.Millisecond // above its p99
)

// The pace of drift, as in drift.py.
const (
	lookPause  = 200 * time.Microsecond
	driftPause = 50 * time.Millisecond
	repairMax  = 5 * time.Second
)

// drifting is how many files drift in turn under the readers: so many that none drifts more than five times within a minute,
// however long the readers take, since that is taken for a fight and left alone. Five turns are 50,000 repairs, and a disk
// makes about as many durable renames in a minute.
const drifting = 10_000

// kind is a way for a file to drift.
type kind string

const (
	appended kind = "append"
	replaced kind = "replace"
	chmodded kind = "chmod"
	unlinked kind = "unlink"
)

var kinds = [...]kind{appended, replaced, chmodded, unlinked}

// drift changes a file.
func drift(k kind, path string) error {
	switch k {
	case appended:
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("drift\n")
		return errors.Join(err, f.Close())
	case replaced:
		return replace(path, "drift\n")
	case chmodded:
		return os.Chmod(path, 0o666)
	}
	return os.Remove(path)
}

// replace puts another file in the place of one, atomically.
func replace(path, content string) error {
	if err := os.WriteFile(path+".x", []byte(content), fileMode); err != nil {
		return err
	}
	return os.Rename(path+".x", path)
}

// repaired waits until a file is as declared and returns how long that took.
func (r *resident) repaired(ctx context.Context, i int) (time.Duration, error) {
	path, want := r.path(i), content(i)
	start := time.Now()
	for {
		right, err := isAs(path, want)
		took := time.Since(start)
		if err != nil || right {
			return took, err
		}
		if took > repairMax {
			return took, fmt.Errorf("%s was not repaired within %v", path, repairMax)
		}
		if err := ctx.Err(); err != nil {
			return took, err
		}
		rest := unix.NsecToTimespec(int64(lookPause))
		// Not a timer of the runtime: an idle one waits in whole milliseconds. A wait cut short only looks sooner.
		_ = unix.Nanosleep(&rest, nil)
	}
}

// isAs reports whether a file has a content and the declared mode.
func isAs(path, want string) (bool, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || st.Mode() != fileMode || st.Size() != int64(len(want)) {
		return false, err
	}
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(have) == want, err
}

// raw is the least that a durable replacement of a file can cost: write, fsync, rename, fsync of the directory.
func raw(dir string) (time.Duration, error) {
	temp, final := filepath.Join(dir, ".raw.tmp"), filepath.Join(dir, ".raw")
	start := time.Now()
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, fileMode)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(make([]byte, 64))
	if err = errors.Join(err, f.Sync(), f.Close(), os.Rename(temp, final)); err != nil {
		return 0, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	err = errors.Join(d.Sync(), d.Close())
	return time.Since(start), err
}

// measureRepair measures how soon drift is repaired among few and among many files, against the raw loop on the same file system in the
// same seconds.
func measureRepair(ctx context.Context, b *bench) error {
	for _, files := range []int{managed, many} {
		if err := b.repair(ctx, files); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) repair(ctx context.Context, files int) error {
	s, err := b.newSite(files)
	if err != nil {
		return err
	}
	beside, err := b.newDir()
	if err != nil {
		return err
	}
	repairs, limit := map[kind]load.Sample{}, load.Sample{}
	err = b.keep(ctx, s, func(r *resident) error {
		// Each file drifts once at most, so that no repair is taken for a fight.
		order := rand.Perm(files)
		for i := range b.repairs * len(kinds) {
			k, file := kinds[i%len(kinds)], order[i%len(order)]
			start := time.Now()
			if err := drift(k, r.path(file)); err != nil {
				return err
			}
			if _, err := r.repaired(ctx, file); err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
			repairs[k] = append(repairs[k], time.Since(start))
			took, err := raw(beside)
			if err != nil {
				return err
			}
			limit = append(limit, took)
			if err := load.Pause(ctx, driftPause); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.table.add(fmt.Sprintf("raw loop beside %d files, %d times", files, len(limit)), limit.String(), "", noVerdict)
	median, p99 := limit.Median()+medianOver, limit.At(0.99)+p99Over
	for _, k := range kinds {
		got := repairs[k]
		b.table.add(fmt.Sprintf("repair of one of %d files after %s, %d times", files, k, len(got)), got.String(),
			fmt.Sprintf("median <= %s, p99 <= %s", load.Milliseconds(median), load.Milliseconds(p99)), judge(got.Median() <= median && got.At(0.99) <= p99))
	}
	return nil
}

// measureTorn reads files without a pause while they drift and are repaired: every read must find the whole of the one or
// the whole of the other content.
func measureTorn(ctx context.Context, b *bench) error {
	s, err := b.newSite(drifting)
	if err != nil {
		return err
	}
	var c readers
	rounds := 0
	err = b.keep(ctx, s, func(r *resident) error {
		ctx, cancel := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		c.file.Store(-1)
		for range readersAtOnce {
			all.Go(func() { c.read(ctx, r) })
		}
		for ; c.reads.Load() < b.reads; rounds++ {
			i := rounds % drifting
			c.file.Store(int64(i))
			if err := replace(r.path(i), content(i)+"drift\n"); err != nil {
				return err
			}
			if _, err := r.repaired(ctx, i); err != nil {
				return fmt.Errorf("repair %d: %w", rounds+1, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	bad := c.torn.Load() + c.missing.Load()
	b.table.add("torn, empty or missing reads while repairing", fmt.Sprintf("%d torn or empty, %d missing, in %d reads and %d repairs",
		c.torn.Load(), c.missing.Load(), c.reads.Load(), rounds), fmt.Sprintf("0 in %d", b.reads), judge(bad == 0))
	return nil
}

// readersAtOnce leaves one core of two to the agent: starved of it, it would repair less often while more is read.
const readersAtOnce = 1

// readers read the file that is drifting now.
type readers struct {
	file                 atomic.Int64
	reads, torn, missing atomic.Int64
}

func (c *readers) read(ctx context.Context, r *resident) {
	for ctx.Err() == nil {
		i := int(c.file.Load())
		if i < 0 {
			continue
		}
		want := content(i)
		path := r.path(i)
		for range readsOfOne {
			have, err := os.ReadFile(path)
			switch {
			case err != nil:
				c.missing.Add(1)
			case string(have) != want && string(have) != want+"drift\n":
				c.torn.Add(1)
			}
			c.reads.Add(1)
		}
	}
}

// readsOfOne is how many reads go by before a reader asks which file drifts now.
const readsOfOne = 16
