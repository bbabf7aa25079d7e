package watch

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// ID is the caller's name for whoever wants to know about a path. The Watcher gives it no meaning.
type ID int32

// Event tells which IDs must look again.
type Event struct {
	IDs []ID
	// Name is the entry of the watched directory that changed. It is empty when the directory itself came, went or was
	// replaced, so that anything in it may differ.
	Name string
	// Overflow says that the kernel lost events: every ID must look again, and IDs is nil.
	Overflow bool
	// Unwatched says that the kernel does not tell about these IDs from now on; see Unwatched and Retry.
	Unwatched bool
}

// Stats are the counts of a Watcher.
type Stats struct {
	Watches   int    // kernel watches in use
	Unwatched int    // IDs that the kernel does not tell about
	Events    uint64 // events read
	Overflows uint64 // times the kernel lost events
}

// Watcher tells when what is at a path may have changed. It has one inotify descriptor, one watch for each directory that
// matters, and a map entry for each path.
//
// Subscribe, then look: what happens after Watch has returned is told, whether or not Run has begun to read. A directory
// that has appeared is listed by the caller after its mark, and the watch was there before the mark. Not told is what the
// kernel does not tell: a mount over a directory, and the replacement of a directory three levels or more above the path.
//
// Watch, Unwatch and the other methods may be called from several goroutines, also from the sink of Run.
type Watcher struct {
	root   *disk.Root
	opened chan struct{} // closed when there is a descriptor

	mu        sync.Mutex // guards all below, and the file's being there
	file      *os.File   // nil as long as the limit on inotify instances is reached
	fd        int
	cause     error // why file is nil
	ways      map[string]*way
	nodes     map[int32]*node
	share     int // see shareOfNames
	events    uint64
	overflows uint64
}

// New opens the descriptor. Where the limit on inotify instances is reached it returns a Watcher all the same, whose
// IDs are all unwatched until Retry succeeds.
func New(root *disk.Root) (*Watcher, error) {
	w := &Watcher{root: root, opened: make(chan struct{}), ways: make(map[string]*way), nodes: make(map[int32]*node), share: shareOfNames()}
	if err := w.open(); err != nil && !limited(err) {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "open inotify", Cause: err}
	}
	return w, nil
}

func (w *Watcher) open() error {
	w.file, w.fd, w.cause = openInotify()
	if w.cause == nil {
		close(w.opened)
	}
	return w.cause
}

// Close gives the descriptor back. Run must have returned, and no other method may follow.
func (w *Watcher) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// Watch marks id whenever what is at a path may have changed: content, owner, mode, type, being there. The path need not
// exist. An error of code WatchLimit says that the kernel does not tell: the id is kept, listed by Unwatched, and the
// caller must look by himself. Adding the same again does nothing.
func (w *Watcher) Watch(p string, id ID) error {
	if err := disk.ValidPath(p); err != nil {
		return err
	}
	dir, name := disk.Split(p)
	if name == "" {
		return &reason.Error{Code: reason.Unwatched, Doing: "watch /", Hint: "the root has no parent that would tell; use WatchDir for its entries"}
	}
	return w.add(dir, name, id)
}

// WatchDir marks id whenever any entry of the directory at a path may have changed, or the directory itself was replaced.
// Otherwise it is like Watch.
func (w *Watcher) WatchDir(p string, id ID) error {
	if err := disk.ValidPath(p); err != nil {
		return err
	}
	return w.add(p, "", id)
}

// WatchNames is WatchDir for who does not care what is in the entries: an event that only a content has changed is not told. It is for
// trees of many directories, so it takes no more than a share of the watches that the kernel allows; beyond that it is WatchLimit.
func (w *Watcher) WatchNames(p string, id ID) error {
	if err := disk.ValidPath(p); err != nil {
		return err
	}
	return w.add(p, namesOnly, id)
}

// Unwatch undoes Watch. Events that were read before may still come.
func (w *Watcher) Unwatch(p string, id ID) {
	if disk.ValidPath(p) != nil || p == "/" {
		return // was never watched
	}
	dir, name := disk.Split(p)
	w.remove(dir, name, id)
}

// UnwatchDir undoes WatchDir.
func (w *Watcher) UnwatchDir(p string, id ID) { w.remove(p, "", id) }

// UnwatchNames undoes WatchNames.
func (w *Watcher) UnwatchNames(p string, id ID) { w.remove(p, namesOnly, id) }

func (w *Watcher) add(dir, name string, id ID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	y := w.ways[dir]
	fresh := y == nil
	if fresh {
		y = &way{dir: dir}
		w.ways[dir] = y
	}
	if y.add(name, id); fresh || errors.Is(y.cause, errShare) && !y.isNames() {
		w.settle(y)
	}
	if y.cause == nil {
		return nil
	}
	return &reason.Error{
		Code: reason.WatchLimit, Doing: "watch " + disk.Shown(disk.Join(dir, strings.TrimSuffix(name, namesOnly))), Cause: y.cause,
		Hint: "raise fs.inotify.max_user_watches or fs.inotify.max_user_instances; an ordinary user can watch only what he may read",
	}
}

func (w *Watcher) remove(dir, name string, id ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	y := w.ways[dir]
	if y == nil {
		return
	}
	if y.remove(name, id); y.empty() {
		w.attach(y, 0, nil)
		delete(w.ways, dir)
	}
}

// Watches reports whether somebody watches an entry of a directory.
func (w *Watcher) Watches(dir, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	y := w.ways[dir]
	if y == nil {
		return false
	}
	_, ok := y.entries[name]
	return ok || len(y.all)+len(y.names) > 0
}

// Unwatched lists the IDs that the kernel does not tell about, sorted.
func (w *Watcher) Unwatched() []ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unwatchedLocked()
}

func (w *Watcher) unwatchedLocked() []ID {
	var ids []ID
	for _, y := range w.ways {
		if y.cause != nil {
			ids = y.marked(ids, "", false)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Retry tries again to watch what is unwatched. It returns the IDs that are watched now; they must look once more, because
// nothing told them until now.
func (w *Watcher) Retry() []ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file == nil && w.open() != nil {
		return nil
	}
	w.share = shareOfNames()
	var ids []ID
	for _, y := range w.ways {
		if y.cause == nil {
			continue
		}
		if w.settle(y); y.cause == nil {
			ids = y.marked(ids, "", false)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Stats returns the counts.
func (w *Watcher) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{Watches: len(w.nodes), Unwatched: len(w.unwatchedLocked()), Events: w.events, Overflows: w.overflows}
}

// Run reads events and gives those that concern somebody to sink, in order, from its own goroutine, until ctx ends; it
// returns ctx's error then. The sink should only note what it is told: while it runs, the kernel's queue fills. The IDs
// are the sink's to keep. Run must not be called twice at once.
func (w *Watcher) Run(ctx context.Context, sink func([]Event)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.opened:
	}
	return readEvents(ctx, w.file, inotifyBuffer, func(b []byte) {
		if events := w.take(b); len(events) > 0 {
			sink(events)
		}
	})
}

// mark is one entry of one way that changed.
type mark struct {
	way    *way
	name   string
	inside bool // only what is in the entry
}

// round is what one read has told, without repetition, in order.
type round struct {
	broken   []*way
	marks    []mark
	seen     map[mark]bool // with an empty name, a broken way
	overflow bool
}

// mendWay notes that a way must be walked again.
func (r *round) mendWay(y *way) {
	if m := (mark{way: y}); !r.seen[m] {
		r.seen[m] = true
		r.broken = append(r.broken, y)
	}
}

// markEntry notes that an entry changed.
func (r *round) markEntry(y *way, name string, inside bool) {
	if m := (mark{way: y, name: name, inside: inside}); !r.seen[m] {
		r.seen[m] = true
		r.marks = append(r.marks, m)
	}
}

// take turns one read into events: first it notes what every event touches, then it walks broken ways again, and only
// then it marks.
func (w *Watcher) take(b []byte) []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := round{seen: make(map[mark]bool)}
	if err := parseNotices(b, func(n notice) { w.note(&r, n) }); err != nil {
		// The kernel never cuts an event short; if it did, something would be lost.
		r.overflow = true
	}
	if r.overflow {
		return w.startOver()
	}
	var events []Event
	for _, y := range r.broken {
		if w.settle(y); !y.empty() {
			events = append(events, Event{IDs: y.marked(nil, "", false), Unwatched: y.cause != nil})
		}
	}
	for _, m := range r.marks {
		if !r.seen[mark{way: m.way}] {
			events = append(events, Event{IDs: m.way.marked(nil, m.name, m.inside), Name: m.name})
		}
	}
	return events
}

const (
	// goneMask: the directory that is watched is not where it was.
	goneMask = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_UNMOUNT | unix.IN_IGNORED
	// comeAndGoMask: an entry is not what it was.
	comeAndGoMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	// insideMask: what is in an entry is not what it was.
	insideMask = unix.IN_MODIFY | unix.IN_CLOSE_WRITE
)

// note finds out what one event touches.
func (w *Watcher) note(r *round, n notice) {
	w.events++
	if n.mask&unix.IN_Q_OVERFLOW != 0 {
		r.overflow = true
		return
	}
	node := w.nodes[n.wd]
	if node == nil {
		return // the last event of a watch that we gave back
	}
	if n.mask&goneMask != 0 {
		for _, y := range node.ends {
			r.mendWay(y)
		}
		for _, ways := range node.holds {
			for _, y := range ways {
				r.mendWay(y)
			}
		}
		if n.mask&unix.IN_IGNORED != 0 {
			delete(w.nodes, n.wd)
		}
		return
	}
	if n.name == "" || strings.HasPrefix(n.name, disk.TempPrefix) {
		return
	}
	inside := n.mask&insideMask == n.mask
	for _, y := range node.ends {
		if _, ok := y.entries[n.name]; ok || len(y.all) > 0 || len(y.names) > 0 && !inside {
			r.markEntry(y, n.name, inside)
		}
	}
	for _, y := range node.holds[n.name] {
		// A change of attributes matters to a way that could not go on here.
		if n.mask&comeAndGoMask != 0 || y.wd == 0 {
			r.mendWay(y)
		}
	}
}

// startOver walks all ways again after events were lost.
func (w *Watcher) startOver() []Event {
	w.overflows++
	events := []Event{{Overflow: true}}
	for _, y := range w.ways {
		if w.settle(y); y.cause != nil {
			events = append(events, Event{IDs: y.marked(nil, "", false), Unwatched: true})
		}
	}
	return events
}
