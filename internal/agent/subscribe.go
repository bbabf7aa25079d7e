package agent

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
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// slowCheck is how often what the kernel does not tell about is looked at: often enough for a person who waits, seldom
// enough for 100,000 of them.
const slowCheck = 30 * time.Second

// news is what has been told since the loop last listened. It is a set: the same told twice is told once, so it never
// holds more than what is watched.
type news struct {
	slots        map[disk.ID]struct{}
	units        map[string]struct{}
	everything   bool // the kernel lost events
	allUnits     bool // the bus was away
	declarations bool
	limits       bool // the kernel has stopped telling about something
	replaced     bool // a watched directory came, went or was replaced
}

// subscriptions knows what tells about what: which path, directory or unit belongs to which parts.
type subscriptions struct {
	files        *disk.Watcher
	declarations *disk.Watcher // in a sandbox, which the declarations are outside of; otherwise files
	writers      *disk.Writers // nil where the kernel does not tell who wrote
	bus          Units
	wake         chan struct{} // has an item while there are news

	mu   sync.Mutex // guards news, which the sources add to
	news news

	// The rest belongs to the loop's goroutine.
	slots   map[converge.Key]disk.ID
	free    []disk.ID
	parts   []*part
	bySlot  []converge.ID
	units   map[string][]converge.ID
	dirs    map[string]int // directories that writers are remembered for, with the number of parts in each
	limited *reason.Error  // why the kernel does not tell about something
}

// declarationSlot is the slot of the declarations; parts have the slots from 1 on.
const declarationSlot disk.ID = 0

func subscribe(o *Options) (*subscriptions, error) {
	files, err := disk.NewWatcher(o.Root)
	if err != nil {
		return nil, err
	}
	s := &subscriptions{files: files, declarations: files, bus: o.Bus, wake: make(chan struct{}, 1),
		slots: map[converge.Key]disk.ID{}, bySlot: []converge.ID{converge.None}, units: map[string][]converge.ID{}, dirs: map[string]int{}}
	if o.Root.Path() != "/" && o.Watch {
		above, err := disk.OpenRoot("/")
		if err != nil {
			return nil, errors.Join(err, files.Close())
		}
		if s.declarations, err = disk.NewWatcher(above); err != nil {
			return nil, errors.Join(err, files.Close())
		}
	}
	// Without the right to know who wrote, the agent goes on without.
	if o.Watch {
		s.writers, _ = disk.NewWriters(o.Root, files.Watches)
	}
	return s, nil
}

func (s *subscriptions) close() error {
	errs := []error{s.files.Close()}
	if s.declarations != s.files {
		errs = append(errs, s.declarations.Close())
	}
	if s.writers != nil {
		errs = append(errs, s.writers.Close())
	}
	return errors.Join(errs...)
}

// filesChanged is the sink of the watcher of files.
func (s *subscriptions) filesChanged(events []disk.Event) {
	s.tell(func(n *news) {
		for _, ev := range events {
			n.everything = n.everything || ev.Overflow
			n.limits = n.limits || ev.Unwatched
			n.replaced = n.replaced || ev.Name == ""
			for _, id := range ev.IDs {
				if id == declarationSlot {
					n.declarations = true
					continue
				}
				if n.slots == nil {
					n.slots = map[disk.ID]struct{}{}
				}
				n.slots[id] = struct{}{}
			}
		}
		n.declarations = n.declarations || n.everything
	})
}

// unitChanged is the sink of the bus.
func (s *subscriptions) unitChanged(ev systemd.Event) {
	s.tell(func(n *news) {
		if ev.Kind != systemd.UnitChanged {
			n.allUnits = true
			return
		}
		if n.units == nil {
			n.units = map[string]struct{}{}
		}
		n.units[ev.Unit] = struct{}{}
	})
}

// tell adds to the news and wakes the loop. It never waits for it.
func (s *subscriptions) tell(add func(*news)) {
	s.mu.Lock()
	add(&s.news)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriptions) take() news {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.news
	s.news = news{}
	return n
}

// touched translates news into vertices, sorted.
func (s *subscriptions) touched(n news) []converge.ID {
	if n.everything {
		return s.all(func(*part) bool { return true })
	}
	var ids []converge.ID
	for slot := range n.slots {
		if int(slot) < len(s.bySlot) && s.bySlot[slot] != converge.None {
			ids = append(ids, s.bySlot[slot])
		}
	}
	if n.allUnits {
		for _, of := range s.units {
			ids = append(ids, of...)
		}
	}
	for unit := range n.units {
		ids = append(ids, s.units[unit]...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (s *subscriptions) all(match func(*part) bool) []converge.ID {
	var ids []converge.ID
	for i, p := range s.parts {
		if match(p) {
			ids = append(ids, converge.ID(i))
		}
	}
	return ids
}

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

// swap watches what the new parts need and drops what only old ones did. What both need is not interrupted.
func (s *subscriptions) swap(ctx context.Context, parts []*part) error {
	old := s.parts
	s.parts = parts
	kept := make(map[converge.Key]bool, len(parts))
	bySlot := make([]converge.ID, len(s.bySlot))
	for i := range bySlot {
		bySlot[i] = converge.None
	}
	s.bySlot = bySlot
	for i, p := range parts {
		kept[p.key()] = true
		p.slot = s.slot(p.key())
		s.bySlot[p.slot] = converge.ID(i)
	}
	before := map[converge.Key][]host.Watch{}
	for _, p := range old {
		before[p.key()] = p.watches()
	}
	for _, p := range parts {
		now := p.watches()
		for _, w := range before[p.key()] {
			if !slices.Contains(now, w) {
				s.unwatch(w, p.slot)
			}
		}
		for _, w := range now {
			if !slices.Contains(before[p.key()], w) {
				s.watch(w, p.slot)
			}
		}
	}
	for _, p := range old {
		if kept[p.key()] {
			continue
		}
		for _, w := range before[p.key()] {
			s.unwatch(w, p.slot)
		}
		s.free = append(s.free, p.slot)
		delete(s.slots, p.key())
	}
	return s.watchUnits(ctx)
}

func (s *subscriptions) slot(k converge.Key) disk.ID {
	if slot, known := s.slots[k]; known {
		return slot
	}
	var slot disk.ID
	if last := len(s.free) - 1; last >= 0 {
		slot, s.free = s.free[last], s.free[:last]
	} else {
		slot = disk.ID(len(s.bySlot))
		s.bySlot = append(s.bySlot, converge.None)
	}
	s.slots[k] = slot
	return slot
}

// watches lists what tells about a part. What is being undone, or is not applicable, is not watched.
func (p *part) watches() []host.Watch {
	if p.res == nil || p.removal != nil || p.when != "" {
		return nil
	}
	return p.res.Watches()
}

// add watches a part that could not be bound before.
func (s *subscriptions) add(ctx context.Context, p *part) error {
	if slot, known := s.slots[p.key()]; !known || slot != p.slot {
		return nil // another graph has come meanwhile
	}
	for _, w := range p.watches() {
		s.watch(w, p.slot)
	}
	return s.watchUnits(ctx)
}

func (s *subscriptions) watch(w host.Watch, slot disk.ID) {
	switch w.Kind {
	case host.WatchPath:
		s.limit(s.files.Watch(w.Name, slot))
		s.remember(filepath.Dir(w.Name))
	case host.WatchEntries:
		s.limit(s.files.WatchDir(w.Name, slot))
	case host.WatchUnit: // all units are told to the bus at once
	}
}

func (s *subscriptions) unwatch(w host.Watch, slot disk.ID) {
	switch w.Kind {
	case host.WatchPath:
		s.files.Unwatch(w.Name, slot)
		s.forget(filepath.Dir(w.Name))
	case host.WatchEntries:
		s.files.UnwatchDir(w.Name, slot)
	case host.WatchUnit:
	}
}

// limit notes why the kernel does not tell about something.
func (s *subscriptions) limit(err error) {
	if err != nil {
		s.limited = reason.Of(err)
	}
}

// remember asks who writes in a directory. Where that is not to be had, reports go without.
func (s *subscriptions) remember(dir string) {
	if s.writers == nil {
		return
	}
	if s.dirs[dir]++; s.dirs[dir] == 1 {
		_ = s.writers.Add(dir)
	}
}

// rememberAgain asks anew for all directories, because one that was not there may be there now, or be another one.
func (s *subscriptions) rememberAgain() {
	for dir := range s.dirs {
		_ = s.writers.Add(dir)
	}
}

func (s *subscriptions) forget(dir string) {
	if s.writers == nil || s.dirs[dir] == 0 {
		return
	}
	if s.dirs[dir]--; s.dirs[dir] == 0 {
		delete(s.dirs, dir)
		s.writers.Remove(dir)
	}
}

// watchUnits tells the bus which units matter.
func (s *subscriptions) watchUnits(ctx context.Context) error {
	units := map[string][]converge.ID{}
	for i, p := range s.parts {
		for _, w := range p.watches() {
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

// watchDeclarations watches the files and directories that the declarations are read from.
func (s *subscriptions) watchDeclarations(o *Options) {
	if !o.Watch {
		return
	}
	for _, f := range o.Files {
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

// writer says who changed a part last, where the kernel told and it was a path.
func (s *subscriptions) writer(p *part) string {
	if s.writers == nil || p.res == nil {
		return ""
	}
	for _, w := range p.res.Watches() {
		if w.Kind != host.WatchPath {
			continue
		}
		dir, name := filepath.Split(w.Name)
		if by, known := s.writers.Last(strings.TrimSuffix(dir, "/"), name); known {
			return fmt.Sprintf("uid %d, pid %d (%s)", by.UID, by.PID, by.Comm)
		}
	}
	return ""
}

// watchers lists the watchers, one or two.
func (s *subscriptions) watchers() []*disk.Watcher {
	if s.declarations == s.files {
		return []*disk.Watcher{s.files}
	}
	return []*disk.Watcher{s.files, s.declarations}
}

// unheard is what the kernel does not tell about, after trying once more to make it.
func (s *subscriptions) unheard() news {
	n := news{slots: map[disk.ID]struct{}{}}
	for _, w := range s.watchers() {
		for _, slot := range slices.Concat(w.Retry(), w.Unwatched()) {
			if slot == declarationSlot {
				n.declarations = true
				continue
			}
			n.slots[slot] = struct{}{}
		}
	}
	if s.unwatched() == nil {
		s.limited = nil
	}
	return n
}

// unwatched is nil when the kernel tells about everything.
func (s *subscriptions) unwatched() *reason.Error {
	slow := 0 // each resource is one, and so are the declarations
	for _, w := range s.watchers() {
		slow += len(w.Unwatched())
	}
	if slow == 0 {
		return nil
	}
	e := &reason.Error{Code: reason.Unwatched, Doing: fmt.Sprintf("watch %d resources or declarations", slow),
		Cause: fmt.Errorf("they are checked every %v instead", slowCheck), Hint: "raise fs.inotify.max_user_watches and max_user_instances"}
	if s.limited != nil {
		e.Cause = fmt.Errorf("%w; they are checked every %v instead", s.limited, slowCheck)
	}
	return e
}

// isSlow reports whether a part is checked slowly because the kernel does not tell about it.
func (s *subscriptions) isSlow(p *part) bool { return slices.Contains(s.files.Unwatched(), p.slot) }

func (s *subscriptions) counts() (watches int, overflows uint64) {
	st := s.files.Stats()
	return st.Watches, st.Overflows
}
