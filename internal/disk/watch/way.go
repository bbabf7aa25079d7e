package watch

import (
	"slices"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
)

// wayTries bounds how often a way is walked while it changes under our feet. Whoever changes it also causes events, which
// break the way again, so giving up loses nothing.
const wayTries = 16

// way is how one directory, as its path names it, is reached, and who wants to know about it. Many ways may end in one
// directory. The Watcher's mutex guards it.
type way struct {
	dir     string          // the directory's path
	entries map[string]ID   // who watches an entry
	more    map[string][]ID // those beyond the first, which are rare
	all     []ID            // who watches every entry
	names   []ID            // who watches which entries there are, and whose they are, but not what is in them
	holds   []hold          // what the way depends on
	wd      int32           // watch of the directory itself; 0 while it cannot be reached
	cause   error           // why the kernel does not tell us about this way; nil when it does
}

// hold is one thing a way depends on: an entry of a watched directory.
type hold struct {
	wd   int32
	name string
}

// node is one watched directory.
type node struct {
	ends  []*way            // ways that end here
	holds map[string][]*way // ways that pass an entry of it
}

func (y *way) empty() bool { return len(y.entries)+len(y.all)+len(y.names) == 0 }

// namesOnly stands for an entry where an ID is added that watches which entries there are. No entry is called so.
const namesOnly = "/"

// add adds an ID to an entry; the empty entry is all of them.
func (y *way) add(name string, id ID) {
	if name == namesOnly {
		if !slices.Contains(y.names, id) {
			y.names = append(y.names, id)
		}
		return
	}
	if name == "" {
		if !slices.Contains(y.all, id) {
			y.all = append(y.all, id)
		}
		return
	}
	first, taken := y.entries[name]
	switch {
	case !taken:
		if y.entries == nil {
			y.entries = make(map[string]ID)
		}
		y.entries[name] = id
	case first != id && !slices.Contains(y.more[name], id):
		if y.more == nil {
			y.more = make(map[string][]ID)
		}
		y.more[name] = append(y.more[name], id)
	}
}

// remove is the inverse of add.
func (y *way) remove(name string, id ID) {
	drop := func(ids []ID) []ID { return slices.DeleteFunc(ids, func(v ID) bool { return v == id }) }
	switch name {
	case namesOnly:
		y.names = drop(y.names)
		return
	case "":
		y.all = drop(y.all)
		return
	}
	rest := y.more[name]
	if first, ok := y.entries[name]; ok && first == id {
		if len(rest) == 0 {
			delete(y.entries, name)
			return
		}
		y.entries[name] = rest[0]
		rest = rest[1:]
	} else {
		rest = drop(rest)
	}
	if len(rest) == 0 {
		delete(y.more, name)
		return
	}
	y.more[name] = rest
}

// marked appends the IDs that an event on an entry concerns; the empty name is every entry. inside says that it is about what is in the
// entry, and about nothing else.
func (y *way) marked(ids []ID, name string, inside bool) []ID {
	ids = append(ids, y.all...)
	if !inside {
		ids = append(ids, y.names...)
	}
	if name != "" {
		if id, ok := y.entries[name]; ok {
			ids = append(append(ids, id), y.more[name]...)
		}
		return ids
	}
	for _, id := range y.entries {
		ids = append(ids, id)
	}
	for _, more := range y.more {
		ids = append(ids, more...)
	}
	return ids
}

// settle makes the watches of a way those that it needs: it walks the way, adds a watch at each place that matters, and
// walks again until nothing new was needed. The first walk may see what was there before its watch; the last one cannot.
func (w *Watcher) settle(y *way) {
	if w.file == nil {
		y.cause = w.cause
		return
	}
	if w.takesTooMany(y) {
		w.attach(y, 0, nil)
		y.cause = errShare
		return
	}
	for range wayTries {
		wd, holds, err := w.survey(y.dir)
		same := wd == y.wd && slices.Equal(holds, y.holds)
		w.attach(y, wd, holds)
		y.cause = err
		if err != nil {
			// Half a way would look like a whole one.
			w.attach(y, 0, nil)
			return
		}
		if same {
			return
		}
	}
}

// survey walks to a directory and watches what the way depends on: every directory that holds a symlink on it, the last
// directory that is there, and the one that holds that. wd is 0 if the directory itself cannot be reached. Watches that
// attach does not take over stay in the kernel until drop.
func (w *Watcher) survey(dir string) (wd int32, holds []hold, err error) {
	watch := func(fd int, name string, mask uint32) error {
		wd, err := w.addWatch(fd, mask)
		// Symlinks that lead to one another come by again and again.
		if h := (hold{wd: wd, name: name}); err == nil && !slices.Contains(holds, h) {
			holds = append(holds, h)
		}
		return err
	}
	var limit error
	k := w.root.Walker(func(fd int, name string) error {
		limit = watch(fd, name, holdMask)
		return limit
	})
	defer k.Close()
	walkErr := k.Walk(dir)
	if limit != nil || k.Top() < 0 {
		return 0, holds, firstError(limit, walkErr)
	}
	if fd, name := k.Holder(); fd >= 0 {
		if err := watch(fd, name, holdMask); err != nil {
			return 0, holds, err
		}
	}
	if walkErr != nil {
		return 0, holds, watch(k.Top(), k.Failed(), holdMask)
	}
	wd, err = w.addWatch(k.Top(), entryMask)
	return wd, holds, err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// addWatch watches an open directory. A descriptor's path under /proc always leads to that very directory.
func (w *Watcher) addWatch(fd int, mask uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(w.fd, disk.ProcPath(fd), mask|addFlags)
	if err != nil {
		return 0, err
	}
	if w.nodes[int32(wd)] == nil {
		w.nodes[int32(wd)] = &node{}
	}
	return int32(wd), nil
}

// attach gives a way new dependencies and lets go of those that it had.
func (w *Watcher) attach(y *way, wd int32, holds []hold) {
	oldWD, oldHolds := y.wd, y.holds
	y.wd, y.holds = wd, holds
	if wd != 0 {
		n := w.nodes[wd]
		if !slices.Contains(n.ends, y) {
			n.ends = append(n.ends, y)
		}
	}
	for _, h := range holds {
		n := w.nodes[h.wd]
		if n.holds == nil {
			n.holds = make(map[string][]*way)
		}
		if !slices.Contains(n.holds[h.name], y) {
			n.holds[h.name] = append(n.holds[h.name], y)
		}
	}
	if oldWD != 0 && oldWD != wd {
		w.detach(oldWD, func(n *node) { n.ends = without(n.ends, y) })
	}
	for _, h := range oldHolds {
		if !slices.Contains(holds, h) {
			w.detach(h.wd, func(n *node) {
				if n.holds[h.name] = without(n.holds[h.name], y); len(n.holds[h.name]) == 0 {
					delete(n.holds, h.name)
				}
			})
		}
	}
}

// detach takes something from a node, and gives the watch back when nothing needs it any more.
func (w *Watcher) detach(wd int32, take func(*node)) {
	n := w.nodes[wd]
	if n == nil {
		return
	}
	take(n)
	w.drop(wd)
}

// drop gives a watch back if no way uses it.
func (w *Watcher) drop(wd int32) {
	if n := w.nodes[wd]; n != nil && len(n.ends) == 0 && len(n.holds) == 0 {
		delete(w.nodes, wd)
		// It fails only if the kernel has taken the watch away already.
		_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
	}
}

func without(ways []*way, y *way) []*way {
	return slices.DeleteFunc(ways, func(v *way) bool { return v == y })
}
