package durable

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// syncWorkers is how many files of one call are made durable at once: journals join the fsyncs that wait at the same
	// time into one commit. Measured on ext4 with two processors: 1,000 small files take 0.6 to 1.1 s one by one, 0.3 to
	// 0.4 s by fours; more workers gain nothing and cost a thread each.
	syncWorkers = 4
	// dirsAtOnce bounds the directories that one call holds open.
	dirsAtOnce = 64
)

// WriteAll writes files, replacing what is there atomically, and makes them durable with one fsync per directory at the
// end. results[i] belongs to specs[i]; one that fails leaves its old file as it was, no temporary, and the others alone.
// When ctx ends, what has not begun fails with Interrupted or OperationTimeout. No two specs may have the same path.
// Errors: see disk.Fault, and UntrustedSymlink, TypeInTheWay, MountPointFile, ConcurrentEdit, Immutable, OwnerNeedsRoot.
func WriteAll(ctx context.Context, r *disk.Root, specs []WriteSpec) []WriteResult {
	results := make([]WriteResult, len(specs))
	var groups []*writeGroup
	byDir := make(map[string]*writeGroup)
	for i := range specs {
		if err := disk.ValidPath(specs[i].Path); err != nil {
			results[i].Err = err
			continue
		}
		dir, _ := disk.Split(specs[i].Path)
		g := byDir[dir]
		if g == nil {
			g = &writeGroup{path: dir}
			byDir[dir] = g
			groups = append(groups, g)
		}
		g.members = append(g.members, i)
	}
	for len(groups) > 0 {
		n := min(dirsAtOnce, len(groups))
		writeGroups(ctx, r, groups[:n], specs, results)
		groups = groups[n:]
	}
	return results
}

// writeGroup is the files of one directory.
type writeGroup struct {
	path    string
	members []int // indices of specs and results
	dir     *disk.Dir
	handle  *os.File // for the fsync
}

// writeJob is one file of a group.
type writeJob struct {
	group *writeGroup
	index int
}

func writeGroups(ctx context.Context, r *disk.Root, groups []*writeGroup, specs []WriteSpec, results []WriteResult) {
	var jobs []writeJob
	for _, g := range groups {
		if err := g.open(r); err != nil {
			g.fail(results, err)
			continue
		}
		defer g.close()
		for _, i := range g.members {
			jobs = append(jobs, writeJob{group: g, index: i})
		}
	}
	each(jobs, func(j writeJob) {
		_, name := disk.Split(specs[j.index].Path)
		results[j.index] = writeFile(ctx, j.group.dir, name, &specs[j.index])
	})
	each(groups, func(g *writeGroup) { g.sync(results) })
}

// open opens the directory twice, once to work in and once for the fsync.
func (g *writeGroup) open(r *disk.Root) error {
	d, err := r.Dir(g.path)
	if err != nil {
		return err
	}
	f, err := openToChange(d)
	if err != nil {
		d.Close()
		return err
	}
	g.dir, g.handle = d, f
	return nil
}

func (g *writeGroup) close() {
	g.handle.Close()
	g.dir.Close()
}

// sync makes the renames of the group durable, if there were any.
func (g *writeGroup) sync(results []WriteResult) {
	if g.dir == nil {
		return
	}
	for _, i := range g.members {
		if results[i].Changed {
			if err := disk.Fsync(int(g.handle.Fd())); err != nil {
				g.fail(results, disk.Fault("make directory durable", g.path, err))
			}
			return
		}
	}
}

// fail gives an error to all members that have none yet.
func (g *writeGroup) fail(results []WriteResult, err error) {
	for _, i := range g.members {
		if results[i].Err == nil {
			results[i].Err = err
		}
	}
}

// each calls do for every item, from up to syncWorkers goroutines, and returns when all are done.
func each[T any](items []T, do func(T)) {
	if len(items) == 1 {
		do(items[0])
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(syncWorkers, len(items)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(items)); i = next.Add(1) - 1 {
				do(items[i])
			}
		})
	}
	all.Wait()
}

// stopped is the error of an operation that its context ended.
func stopped(op, p string, err error) error {
	code := reason.Interrupted
	if errors.Is(err, context.DeadlineExceeded) {
		code = reason.OperationTimeout
	}
	return &reason.Error{Code: code, Doing: op + " " + disk.Shown(p), Cause: err}
}
