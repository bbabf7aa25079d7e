package file

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// entriesMax bounds what one directory may have: its names are sorted in memory, and whoever may write there may make millions.
	entriesMax = 100_000
	// treeEntriesMax is ours: 3 s of looking. treeChangesMax is as many as may be purged at once, see declare.Directory.
	treeEntriesMax = 1_000_000
	treeChangesMax = 100_000
	// purgeMax and purgeShare are the default limit: what is easily looked through, and in a large tree one entry in purgeShare.
	purgeMax   = 100
	purgeShare = 10
	// shownMax is how many entries a plan names, and toldMax how many a refusal does: a line, and a screenful.
	shownMax = 8
	toldMax  = 40
	// lostFound is what the file system's own check needs in its root, fsck(8).
	lostFound = "lost+found"
)

// action is what is to be done with one entry.
type action struct {
	dir, name string
	found     disk.Signature
	remove    bool
	spec      durable.AttributeSpec // otherwise
}

func (a *action) path() string { return disk.Join(a.dir, a.name) }

// mark is a number that stands for an action on an entry as it was seen. Times and size of a directory change with its entries.
func (a *action) mark() uint64 {
	type what struct {
		dir, name      string
		found          disk.Signature
		remove         bool
		mode, uid, gid int
	}
	return maphash.Comparable(treeSeed, what{a.dir, a.name, mark(a.found), a.remove, a.spec.Mode, a.spec.UID, a.spec.GID})
}

// survey is one look at everything below a tree.
type survey struct {
	t      *Trees
	r      *tree
	want   entry
	places []host.Place // what is others', sorted by path
	listed bool         // the actions themselves are wanted, and not only their marks

	top     disk.Signature // of the tree itself
	actions []action
	dirs    []string // directories that were looked into, sorted
	entries int
	removed tally
	set     tally
	left    tally // what is left alone although it is not as declared
	leftErr error // why, of the first
}

// tally counts entries, keeps a mark of each, and the names of the first.
type tally struct {
	n     int
	marks []uint64
	first []string
}

func (t *tally) add(mark uint64, text func() string) {
	t.n++
	t.marks = append(t.marks, mark)
	if len(t.first) < toldMax {
		t.first = append(t.first, text())
	}
}

// text lists the first entries, and says how many more there are.
func (t *tally) text(most int) string {
	shown := t.first[:min(most, len(t.first))]
	text := strings.Join(shown, ", ")
	if more := t.n - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// treeSeed makes the marks of this process: who does not know it cannot make two entries that have one.
var treeSeed = maphash.MakeSeed()

// survey looks at everything below. Before anything is done it makes sure that nothing declared is reached by another way: through a
// symlink that leads here.
func (t *Trees) survey(ctx context.Context, r *tree, listed bool) (*survey, error) {
	want, err := t.wanted(ctx, r)
	if err != nil {
		return nil, err
	}
	places := t.others(r.below(r.path), r.path)
	s := &survey{t: t, r: r, want: want, places: places, listed: listed}
	if err := s.run(ctx); err != nil || s.removed.n+s.set.n == 0 {
		return s, err
	}
	aliases := t.aliases(r)
	if len(aliases) == 0 {
		return s, nil
	}
	s = &survey{t: t, r: r, want: want, places: t.others(append(aliases, places...), r.path), listed: listed}
	return s, s.run(ctx)
}

// others adds what is the agent's own to what is declared below, sorted and each once.
func (t *Trees) others(places []host.Place, dir string) []host.Place {
	all := slices.Clone(places)
	for _, p := range t.keep {
		if strings.HasPrefix(p.Path, dir+"/") {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b host.Place) int {
		if a.Path == b.Path && a.Whole != b.Whole { // the one that is about more counts
			if a.Whole {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
	return slices.CompactFunc(all, func(a, b host.Place) bool { return a.Path == b.Path })
}

// aliases lists what is declared elsewhere and stands below the tree all the same, because a symlink leads there.
func (t *Trees) aliases(r *tree) []host.Place {
	home := t.physical(r.path)
	if home == "" {
		return nil
	}
	var found []host.Place
	seen := map[string]string{}
	for _, p := range r.below("/") {
		dir, name := split(p.Path)
		at, known := seen[dir]
		if !known {
			at = t.physical(dir)
			seen[dir] = at
		}
		rest, inside := strings.CutPrefix(disk.Join(at, name), home+"/")
		if alias := r.path + "/" + rest; at != "" && inside && alias != p.Path {
			found = append(found, host.Place{Path: alias, Whole: p.Whole})
		}
	}
	return found
}

// physical is the path of a directory without symlinks; empty where there is none.
func (t *Trees) physical(dir string) string {
	d, err := t.root.Dir(dir)
	if err != nil {
		return ""
	}
	defer d.Close()
	p, err := os.Readlink(disk.ProcPath(d.FD()))
	if err != nil {
		return ""
	}
	return p
}

func (s *survey) run(ctx context.Context) error {
	d, err := s.t.root.Dir(s.r.path)
	if err != nil {
		return err
	}
	defer d.Close()
	top, err := d.Stat("")
	if err != nil {
		return err
	}
	s.top = top.Signature
	_, err = s.walk(ctx, d, "", 1)
	slices.Sort(s.dirs)
	return err
}

// within is the part of places that is below a directory.
func within(places []host.Place, dir string) []host.Place {
	byPath := func(p host.Place, path string) int { return strings.Compare(p.Path, path) }
	from, _ := slices.BinarySearchFunc(places, dir+"/", byPath)
	upto, _ := slices.BinarySearchFunc(places, dir+string('/'+1), byPath)
	return places[from:upto]
}

// standing finds what is declared at a path.
func standing(places []host.Place, path string) (host.Place, bool) {
	at, found := slices.BinarySearchFunc(places, path, func(p host.Place, path string) int { return strings.Compare(p.Path, path) })
	if !found {
		return host.Place{}, false
	}
	return places[at], true
}

// walk looks at the entries of an open directory, whose path below the tree is relative. kept says that one of them stays.
func (s *survey) walk(ctx context.Context, d *disk.Dir, relative string, depth int) (kept bool, err error) {
	if err := ctx.Err(); err != nil {
		return true, ended("look below", s.r.path, err)
	}
	names, err := d.Names(entriesMax)
	if err != nil {
		s.leave(d.Path(), &reason.Error{Code: reason.EntryRefused, Doing: "look into " + disk.Shown(d.Path()), Cause: err, Hint: "name it in `ignore`"})
		return true, nil
	}
	places := within(s.places, d.Path())
	for _, name := range names {
		below := name
		if relative != "" {
			below = relative + "/" + name
		}
		if s.ignored(below) || name == lostFound && isMountRoot(d) {
			kept = true
			continue
		}
		stays, err := s.entry(ctx, d, name, below, places, depth)
		if err != nil {
			return true, err
		}
		kept = kept || stays
	}
	return kept, nil
}

// isMountRoot reports whether an open directory is the root of a file system.
func isMountRoot(d *disk.Dir) bool {
	st, err := d.Stat("")
	return err == nil && st.MountRoot
}

func (s *survey) ignored(relative string) bool {
	for _, p := range s.r.ignore {
		if p.Match(relative) {
			return true
		}
	}
	return false
}

// entry looks at one entry, and at what is below it.
func (s *survey) entry(ctx context.Context, d *disk.Dir, name, relative string, places []host.Place, depth int) (kept bool, err error) {
	now, err := d.Stat(name)
	switch {
	case err != nil && s.t.uid == 0 && reason.Is(err, reason.PermissionDenied):
		return true, nil // a file system that an ordinary user has mounted, which not even root may look at: a mount like others
	case err != nil:
		s.leave(d.Join(name), err)
		return true, nil
	case !now.Exists():
		return false, nil
	case now.MountRoot:
		return true, nil
	}
	place, others, inner := host.Place{}, false, []host.Place(nil)
	if len(places) > 0 {
		path := d.Join(name)
		place, others = standing(places, path)
		inner = within(places, path)
	}
	if others && place.Whole {
		return true, nil
	}
	if s.entries++; s.entries > s.t.entriesMost {
		return true, &reason.Error{Code: reason.EntryRefused, Doing: "look below " + disk.Shown(s.r.path),
			Cause: fmt.Errorf("it has more than %d entries", s.t.entriesMost), Hint: "name what has many in `ignore`, or declare a smaller `depth`"}
	}
	full := len(inner) > 0 // something is to stand below it
	if isDirectory(now.Signature) {
		stays, err := s.descend(ctx, d, name, relative, now, depth)
		if err != nil {
			return true, err
		}
		full = full || stays
	}
	switch {
	case others:
		return true, nil
	case s.r.purge && !full:
		s.remove(d, name, relative, now)
		return false, nil
	}
	s.attributes(d, name, relative, now)
	return true, nil
}

// descend looks into a directory. At the last level it is not looked into, so it stays.
func (s *survey) descend(ctx context.Context, d *disk.Dir, name, relative string, seen disk.Stat, depth int) (kept bool, err error) {
	if depth >= s.r.depth {
		return true, nil
	}
	sub, err := d.Sub(name)
	if err != nil {
		if again, _ := d.Stat(name); mark(again.Signature) == mark(seen.Signature) {
			s.leave(d.Join(name), err)
		}
		return true, nil
	}
	defer sub.Close()
	// What is opened must be what was seen: it may have been swapped, or something mounted over it. Whoever did that has caused an event, so
	// it is looked at again.
	now, err := sub.Stat("")
	if err != nil || now.Dev != seen.Dev || now.Ino != seen.Ino || now.MountRoot {
		return true, nil
	}
	s.dirs = append(s.dirs, sub.Path())
	return s.walk(ctx, sub, relative, depth+1)
}

// leave notes something that cannot be made as declared. The survey goes on.
func (s *survey) leave(path string, err error) {
	if s.leftErr == nil {
		s.leftErr = err
	}
	s.left.add(0, func() string { return disk.Shown(path) })
}

func (s *survey) remove(d *disk.Dir, name, relative string, now disk.Stat) {
	if s.removed.n >= s.t.changesMost { // more than may be removed at all
		s.removed.n++
		return
	}
	a := action{dir: d.Path(), name: name, found: now.Signature, remove: true}
	s.removed.add(a.mark(), func() string { return disk.Shown(relative) })
	if s.listed {
		s.actions = append(s.actions, a)
	}
}

// attributes compares owner and mode of an entry with what all are to have.
func (s *survey) attributes(d *disk.Dir, name, relative string, now disk.Stat) {
	if s.r.recurse == nil {
		return
	}
	a := action{dir: d.Path(), name: name, found: now.Signature, spec: durable.AttributeSpec{Path: d.Join(name), Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep}}
	if s.want.uid != durable.Keep && now.UID != uint32(s.want.uid) {
		a.spec.UID = s.want.uid
	}
	if s.want.gid != durable.Keep && now.GID != uint32(s.want.gid) {
		a.spec.GID = s.want.gid
	}
	rule, has := s.rule(now.Type())
	mode := rule.Of(now.Perm())
	if a.spec.UID == durable.Keep && a.spec.GID == durable.Keep && (!has || mode == now.Perm()) {
		return
	}
	if has { // also where only the owner changes: that takes setuid away
		if now.Type() == unix.S_IFREG && (a.spec.UID != durable.Keep || a.spec.GID != durable.Keep) {
			// The bits of who had the file are not for who gets it: what he has put there would run as somebody else.
			mode &^= unix.S_ISUID | unix.S_ISGID
		}
		a.spec.Mode = int(mode)
	}
	if now.Type() == unix.S_IFREG && now.Nlink > 1 {
		s.leave(d.Join(name), &reason.Error{Code: reason.EntryRefused, Doing: "set owner and mode of " + disk.Shown(d.Join(name)),
			Cause: errors.New("it has " + strconv.FormatUint(uint64(now.Nlink-1), 10) + " other hard links, which may be anywhere"),
			Hint:  "remove the other links, or name it in `ignore`"})
		return
	}
	if s.set.n >= s.t.changesMost {
		s.leave(d.Join(name), &reason.Error{Code: reason.EntryRefused, Doing: "set owner and mode of " + disk.Shown(d.Join(name)),
			Cause: fmt.Errorf("more than %d entries are not as declared", s.t.changesMost), Hint: "wait: the first of them are changed now, and the others after them"})
		return
	}
	s.set.add(a.mark(), func() string { return disk.Shown(relative) + " (" + s.difference(&a) + ")" })
	if s.listed {
		s.actions = append(s.actions, a)
	}
}

// difference says in words what is to be set.
func (s *survey) difference(a *action) string {
	var changes []string
	if a.spec.UID != durable.Keep {
		changes = append(changes, "owner "+s.t.owners.name(users, a.found.UID)+" -> "+s.t.owners.name(users, uint32(a.spec.UID)))
	}
	if a.spec.GID != durable.Keep {
		changes = append(changes, "group "+s.t.owners.name(groups, a.found.GID)+" -> "+s.t.owners.name(groups, uint32(a.spec.GID)))
	}
	if m := a.spec.Mode; m != durable.Keep && uint32(m) != a.found.Perm() {
		changes = append(changes, "mode "+modeText(a.found.Perm())+" -> "+modeText(uint32(m)))
	}
	return strings.Join(changes, ", ")
}

// rule is the rule for the mode of an entry of a type, if there is one.
func (s *survey) rule(kind uint32) (declare.ModeRule, bool) {
	switch kind {
	case unix.S_IFREG:
		return s.want.files, s.r.recurse.FileMode != ""
	case unix.S_IFDIR:
		return s.want.dirs, s.r.recurse.DirectoryMode != ""
	}
	return declare.ModeRule{}, false
}

// limit is how many entries may be removed.
func (s *survey) limit() int {
	if s.r.limit > 0 {
		return s.r.limit
	}
	return min(max(purgeMax, s.entries/purgeShare), s.t.changesMost)
}

func (s *survey) overLimit() bool { return s.removed.n > s.limit() }

// marks are those of everything that is to be done.
func (s *survey) marks() map[uint64]bool {
	all := s.set.marks
	if !s.overLimit() {
		all = append(all, s.removed.marks...)
	}
	marks := make(map[uint64]bool, len(all))
	for _, m := range all {
		marks[m] = true
	}
	return marks
}

// refusal is why not everything will be as declared; nil where it will.
func (s *survey) refusal() error {
	if s.overLimit() {
		return &reason.Error{Code: reason.PurgeOverLimit, Doing: "purge " + disk.Shown(s.r.path),
			Cause: fmt.Errorf("nothing declares %d of %d entries, and at most %d may be removed at once", s.removed.n, s.entries, s.limit()),
			Hint:  fmt.Sprintf("if all of them are to go, declare `limit: %d`; what is to stay is declared, or named in `ignore`", s.removed.n), Evidence: reason.Clip([]byte(s.removed.text(toldMax)))}
	}
	if s.left.n <= 1 {
		return s.leftErr
	}
	first := *reason.Of(s.leftErr)
	first.Evidence = reason.Clip([]byte(s.left.text(toldMax)))
	first.Hint = strings.TrimPrefix(first.Hint+fmt.Sprintf("; so it is with %d more", s.left.n-1), "; ")
	return &first
}

// changes says what will be done, for a person.
func (s *survey) changes() []host.Change {
	var changes []host.Change
	if s.set.n > 0 {
		changes = append(changes, host.Change{Field: "recurse", From: entriesText(s.set.n), To: s.set.text(shownMax)})
	}
	if s.removed.n > 0 && !s.overLimit() {
		changes = append(changes, host.Change{Field: "purge", From: entriesText(s.removed.n), To: "removed: " + s.removed.text(shownMax)})
	}
	return changes
}

func entriesText(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return strconv.Itoa(n) + " entries"
}
