package subscribe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/watch"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// SlowCheck is how often what the kernel does not tell about is looked at: often enough for a person who waits, seldom
// enough for 100,000 of them.
const SlowCheck = 30 * time.Second

// Subscriber is a vertex of the graph that wants to be told.
type Subscriber interface {
	Key() converge.Key
	// Watches lists what tells about it; empty means that nothing does. It is the same each time, unless Add is called.
	Watches() []host.Watch
}

// Units is the system bus, as far as it tells when a unit has changed.
type Units interface {
	Run(ctx context.Context, sink func(systemd.Event)) error
	Watch(ctx context.Context, units []string) error
}

// Options say what is listened to.
type Options struct {
	Root *disk.Root // where the paths of subscribers begin
	Bus  Units      // nil where there is no systemd
	// Lasting says that changes are waited for; without it nobody is told of declarations, and nobody remembers who wrote.
	Lasting bool
}

// Subscriptions knows what tells about what. Run and Wake apart, its methods are for one goroutine.
type Subscriptions struct {
	lasting      bool
	files        *watch.Watcher
	declarations *watch.Watcher // in a sandbox, which the declarations are outside of; otherwise files
	above        *disk.Root     // of declarations, in a sandbox
	polled       *watch.Polled  // for the kernel's own lists
	pulse        *pulse         // for what nothing tells about
	writers      *watch.Writers // nil where the kernel does not tell who wrote
	bus          Units
	wake         chan struct{} // has an item while there are news

	mailbox

	members []Subscriber  // by converge.ID
	slots   []watch.ID    // of members, by which the watchers know them: a key keeps its slot as long as there is a member of it
	bySlot  []converge.ID // whose a slot is
	free    []watch.ID
	units   map[string][]converge.ID
	dirs    map[string]int // directories that writers are remembered for, with the number of subscribers in each
	limited *reason.Error  // why the kernel does not tell about something
}

// declarationSlot is the slot of the declarations; subscribers have the slots from 1 on.
const declarationSlot watch.ID = 0

// New opens the descriptors, and starts nothing.
func New(o Options) (*Subscriptions, error) {
	files, err := watch.New(o.Root)
	if err != nil {
		return nil, err
	}
	s := &Subscriptions{lasting: o.Lasting, files: files, declarations: files, pulse: newPulse(), bus: o.Bus, wake: make(chan struct{}, 1),
		bySlot: []converge.ID{converge.None}, units: map[string][]converge.ID{}, dirs: map[string]int{}}
	if o.Root.Path() != "/" && o.Lasting {
		if s.above, err = disk.OpenRoot("/"); err != nil {
			return nil, errors.Join(err, files.Close())
		}
		if s.declarations, err = watch.New(s.above); err != nil {
			return nil, errors.Join(err, s.above.Close(), files.Close())
		}
	}
	if s.polled, err = watch.NewPolled(); err != nil {
		return nil, errors.Join(err, s.closeWatchers())
	}
	// Without the right to know who wrote, the agent goes on without.
	if o.Lasting {
		s.writers, _ = watch.NewWriters(o.Root, files.Watches)
	}
	return s, nil
}

// Close gives the descriptors back. Run must have returned.
func (s *Subscriptions) Close() error {
	errs := []error{s.closeWatchers(), s.polled.Close()}
	if s.writers != nil {
		errs = append(errs, s.writers.Close())
	}
	return errors.Join(errs...)
}

func (s *Subscriptions) closeWatchers() error {
	if s.declarations == s.files {
		return s.files.Close()
	}
	return errors.Join(s.files.Close(), s.declarations.Close(), s.above.Close())
}

// Run listens until the context ends. A source that fails before that is told to trouble, from a goroutine of Run's, and the
// others go on.
func (s *Subscriptions) Run(ctx context.Context, trouble func(what string, err error)) {
	var sources sync.WaitGroup
	defer sources.Wait()
	run := func(what string, f func() error) {
		sources.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				trouble(what, err)
			}
		})
	}
	run("watch files", func() error { return s.files.Run(ctx, s.filesChanged) })
	run("watch time", func() error { return s.pulse.run(ctx, s.filesChanged) })
	if s.declarations != s.files {
		run("watch declarations", func() error { return s.declarations.Run(ctx, s.filesChanged) })
	}
	run("watch the kernel's lists", func() error { return s.polled.Run(ctx, s.filesChanged) })
	if s.writers != nil {
		run("watch writers", func() error { return s.writers.Run(ctx) })
	}
	if s.bus == nil {
		return
	}
	run("watch units", func() error {
		err := s.bus.Run(ctx, s.unitChanged)
		if reason.Is(err, reason.NoSystemd) {
			return nil // each service says so itself
		}
		return err
	})
}

// Wake has an item while there are news.
func (s *Subscriptions) Wake() <-chan struct{} { return s.wake }

// directories lists the directories that a declaration path stands for: itself and those below it.
func directories(p string) []string {
	var dirs []string
	// What cannot be listed is told by reading the declarations.
	_ = filepath.WalkDir(p, func(at string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, at)
		}
		return nil
	})
	return dirs
}

// Swap watches what the members of a new graph need and drops what only those of the old one did; members[id] belongs to the
// vertex id. What both need is not interrupted. Everything is watched also when the bus is an error.
func (s *Subscriptions) Swap(ctx context.Context, members []Subscriber) error {
	type known struct {
		slot    watch.ID
		watches []host.Watch
	}
	before := make(map[converge.Key]known, len(s.members))
	for i, m := range s.members {
		before[m.Key()] = known{s.slots[i], m.Watches()}
	}
	s.members, s.slots = members, make([]watch.ID, len(members))
	for i := range s.bySlot {
		s.bySlot[i] = converge.None
	}
	for i, m := range members {
		was, stays := before[m.Key()]
		slot, now := was.slot, m.Watches()
		if !stays {
			slot = s.newSlot()
		}
		s.slots[i], s.bySlot[slot] = slot, converge.ID(i)
		for _, w := range missing(was.watches, now) {
			s.unwatch(w, slot)
		}
		for _, w := range missing(now, was.watches) {
			s.watch(w, slot)
		}
		delete(before, m.Key())
	}
	for _, gone := range before {
		for _, w := range gone.watches {
			s.unwatch(w, gone.slot)
		}
		s.free = append(s.free, gone.slot)
	}
	return s.watchUnits(ctx)
}

// fewWatches is up to where a list is searched from its start: all have less, but what is about everything below a directory.
const fewWatches = 16

// missing lists the watches of one list that another does not have.
func missing(of, from []host.Watch) []host.Watch {
	if slices.Equal(of, from) {
		return nil
	}
	has := func(w host.Watch) bool { return slices.Contains(from, w) }
	if len(from) > fewWatches {
		set := make(map[host.Watch]bool, len(from))
		for _, w := range from {
			set[w] = true
		}
		has = func(w host.Watch) bool { return set[w] }
	}
	return slices.DeleteFunc(slices.Clone(of), has)
}

// newSlot is a number by which the watcher knows nobody.
func (s *Subscriptions) newSlot() watch.ID {
	if last := len(s.free) - 1; last >= 0 {
		slot := s.free[last]
		s.free = s.free[:last]
		return slot
	}
	s.bySlot = append(s.bySlot, converge.None)
	return watch.ID(len(s.bySlot) - 1)
}

// present reports whether a member is the one of a vertex of the present graph: another graph may have come meanwhile.
func (s *Subscriptions) present(id converge.ID, m Subscriber) bool {
	return id != converge.None && int(id) < len(s.members) && s.members[id] == m
}

// Add watches for a member that had nothing to watch when the present graph came. One of another graph is passed over.
func (s *Subscriptions) Add(ctx context.Context, id converge.ID, m Subscriber) error {
	if !s.present(id, m) {
		return nil
	}
	for _, w := range m.Watches() {
		s.watch(w, s.slots[id])
	}
	return s.watchUnits(ctx)
}

func (s *Subscriptions) watch(w host.Watch, slot watch.ID) {
	switch w.Kind {
	case host.WatchPath:
		s.limit(s.files.Watch(w.Name, slot))
		s.remember(filepath.Dir(w.Name))
	case host.WatchEntries:
		s.limit(s.files.WatchDir(w.Name, slot))
	case host.WatchNames:
		s.limit(s.files.WatchNames(w.Name, slot))
	case host.WatchPolled:
		s.limit(s.polled.Watch(w.Name, slot))
	case host.WatchTime:
		s.pulse.watch(w.Name, slot)
	case host.WatchUnit: // all units are told to the bus at once
	}
}

func (s *Subscriptions) unwatch(w host.Watch, slot watch.ID) {
	switch w.Kind {
	case host.WatchPath:
		s.files.Unwatch(w.Name, slot)
		s.forget(filepath.Dir(w.Name))
	case host.WatchEntries:
		s.files.UnwatchDir(w.Name, slot)
	case host.WatchNames:
		s.files.UnwatchNames(w.Name, slot)
	case host.WatchPolled:
		s.polled.Unwatch(w.Name, slot)
	case host.WatchTime:
		s.pulse.unwatch(w.Name, slot)
	case host.WatchUnit:
	}
}

// limit notes why the kernel does not tell about something.
func (s *Subscriptions) limit(err error) {
	if err != nil {
		s.limited = reason.Of(err)
	}
}

// remember asks who writes in a directory. Where that is not to be had, reports go without.
func (s *Subscriptions) remember(dir string) {
	if s.writers == nil {
		return
	}
	if s.dirs[dir]++; s.dirs[dir] == 1 {
		_ = s.writers.Add(dir)
	}
}

// rememberAgain asks anew for all directories, because one that was not there may be there now, or be another one.
func (s *Subscriptions) rememberAgain() {
	if s.writers == nil {
		return
	}
	for dir := range s.dirs {
		_ = s.writers.Add(dir)
	}
}

func (s *Subscriptions) forget(dir string) {
	if s.writers == nil || s.dirs[dir] == 0 {
		return
	}
	if s.dirs[dir]--; s.dirs[dir] == 0 {
		delete(s.dirs, dir)
		s.writers.Remove(dir)
	}
}

// watchUnits tells the bus which units matter.
func (s *Subscriptions) watchUnits(ctx context.Context) error {
	units := map[string][]converge.ID{}
	for i, m := range s.members {
		for _, w := range m.Watches() {
			if w.Kind == host.WatchUnit {
				units[w.Name] = append(units[w.Name], converge.ID(i))
			}
		}
	}
	none := len(s.units) == 0 && len(units) == 0
	s.units = units
	if s.bus == nil || none {
		return nil
	}
	names := make([]string, 0, len(units))
	for name := range units {
		names = append(names, name)
	}
	slices.Sort(names)
	return s.bus.Watch(ctx, names)
}

// WatchDeclarations watches the files and directories that the declarations are read from, and what is in them by now.
func (s *Subscriptions) WatchDeclarations(paths []string) {
	if !s.lasting {
		return
	}
	for _, f := range paths {
		p, err := filepath.Abs(f)
		if err != nil {
			continue
		}
		s.limit(s.declarations.Watch(p, declarationSlot))
		for _, dir := range directories(p) {
			s.limit(s.declarations.WatchDir(dir, declarationSlot))
		}
	}
}

// Writer says who changed one of the paths that are watched last, of those who did after a time; empty where the kernel told of none.
func (s *Subscriptions) Writer(watches []host.Watch, after time.Time) string {
	if s.writers == nil {
		return ""
	}
	by, known := newestWriter(s.writers.Last, watches, after)
	if !known {
		return ""
	}
	return writerText(by)
}

// newestWriter is the newest writer of paths after a time. What tells of a file's owner, such as /etc/group, was mostly written long before.
func newestWriter(last func(dir, name string) (watch.Writer, bool), watches []host.Watch, after time.Time) (newest watch.Writer, known bool) {
	for _, w := range watches {
		if w.Kind != host.WatchPath {
			continue
		}
		dir, name := filepath.Split(w.Name)
		if by, ok := last(strings.TrimSuffix(dir, "/"), name); ok && by.At.After(after) && (!known || by.At.After(newest.At)) {
			newest, known = by, true
		}
	}
	return newest, known
}

// writerText names a writer for people. Of one that had ended before anybody could look, its number is all that is known.
func writerText(by watch.Writer) string {
	if by.Comm == "" {
		return fmt.Sprintf("pid %d, which had ended at once", by.PID)
	}
	return fmt.Sprintf("uid %d, pid %d (%s)", by.UID, by.PID, by.Comm)
}

// watcher is what the kernel may refuse to tell.
type watcher interface {
	Retry() []watch.ID
	Unwatched() []watch.ID
}

// watchers lists the watchers.
func (s *Subscriptions) watchers() []watcher {
	all := []watcher{s.files, s.polled}
	if s.declarations != s.files {
		all = append(all, s.declarations)
	}
	return all
}

// Unheard is what the kernel does not tell about, after trying once more to make it.
func (s *Subscriptions) Unheard() News {
	n := News{slots: map[watch.ID]struct{}{}}
	for _, w := range s.watchers() {
		for _, slot := range slices.Concat(w.Retry(), w.Unwatched()) {
			if slot == declarationSlot {
				n.Declarations = true
				continue
			}
			n.slots[slot] = struct{}{}
		}
	}
	if s.Unwatched() == nil {
		s.limited = nil
	}
	return n
}

// Unwatched is nil when the kernel tells about everything.
func (s *Subscriptions) Unwatched() *reason.Error {
	slow := 0 // each resource is one, and so are the declarations
	for _, w := range s.watchers() {
		slow += len(w.Unwatched())
	}
	if slow == 0 {
		return nil
	}
	e := &reason.Error{Code: reason.Unwatched, Doing: fmt.Sprintf("watch %d resources or declarations", slow),
		Cause: fmt.Errorf("they are checked every %v instead", SlowCheck), Hint: "raise fs.inotify.max_user_watches and max_user_instances"}
	if s.limited != nil {
		e.Cause = fmt.Errorf("%w; they are checked every %v instead", s.limited, SlowCheck)
	}
	return e
}

// IsSlow reports whether a member is to be checked slowly because the kernel does not tell about it.
func (s *Subscriptions) IsSlow(id converge.ID) bool {
	if id == converge.None || int(id) >= len(s.slots) {
		return false
	}
	slot := s.slots[id]
	return slices.Contains(s.files.Unwatched(), slot) || slices.Contains(s.polled.Unwatched(), slot)
}

// Counts returns how many directories are watched for subscribers, and how often the kernel lost events about them.
func (s *Subscriptions) Counts() (watches int, overflows uint64) {
	st := s.files.Stats()
	return st.Watches, st.Overflows
}
