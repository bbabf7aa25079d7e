package file

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/glob"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Trees is a Type whose directories may also be about everything below them: what has another owner or mode than all are to have, and
// what nothing declares.
//
//	check: the directory itself, as Type does
//	       survey: walk down, by open directories, never through a symlink or into a mount; nothing of an entry is kept but a number
//	               that stands for what is to be done with it
//	apply: the directory itself
//	       survey again: what is to be done with an entry, and was planned so, is done; what has changed since is left for the next check
//
// Between the two somebody may swap what he owns; so each change is made to the inode that was seen, or not at all.
type Trees struct {
	*Type
	keep []host.Place // is nobody's to change: the agent's own state
	// entriesMost bounds how many entries of one tree are looked at, and changesMost how many are changed at once: whoever may write below a
	// tree may make millions, and neither the time nor the memory is his alone.
	entriesMost, changesMost int
}

var (
	_ host.Type    = (*Trees)(nil)
	_ host.Sweeper = (*Trees)(nil)
	_ host.Keeper  = (*Trees)(nil)
)

// NewTrees makes Trees. keep are paths that are left alone with all that is below them.
func NewTrees(t *Type, keep ...string) *Trees {
	trees := &Trees{Type: t, entriesMost: treeEntriesMax, changesMost: treeChangesMax}
	for _, p := range keep {
		trees.keep = append(trees.keep, host.Place{Path: p, Whole: true})
	}
	return trees
}

// tree is a directory that is about everything below it.
type tree struct {
	*resource
	recurse      *declare.Recurse // nil where only what nothing declares matters
	purge        bool
	ignore       []glob.Pattern
	limit, depth int
	below        func(string) []host.Place

	mu      sync.Mutex // guards watched and found
	watched []string   // directories below whose entries are watched, sorted
	found   []string   // those that the last check came through
}

// Encloses is the directory's path.
func (r *tree) Encloses() string { return r.path }

// Watches are those of the directory itself, and of the entries of each directory below.
func (r *tree) Watches() []host.Watch {
	r.mu.Lock()
	defer r.mu.Unlock()
	watches := append(r.resource.Watches(), host.Watch{Kind: host.WatchNames, Name: r.path})
	return append(watches, entriesOf(r.watched)...)
}

// Follow takes over what the last check has found.
func (r *tree) Follow() (drop, add []host.Watch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.watched, r.found) {
		return nil, nil
	}
	drop, add = entriesOf(missing(r.watched, r.found)), entriesOf(missing(r.found, r.watched))
	r.watched = r.found
	return drop, add
}

// missing lists what is in one sorted list and not in another.
func missing(of, from []string) []string {
	var list []string
	for _, s := range of {
		if _, there := slices.BinarySearch(from, s); !there {
			list = append(list, s)
		}
	}
	return list
}

func entriesOf(dirs []string) []host.Watch {
	watches := make([]host.Watch, len(dirs))
	for i, dir := range dirs {
		watches[i] = host.Watch{Kind: host.WatchNames, Name: dir}
	}
	return watches
}

// Bind makes a file, directory or symlink ready.
func (t *Trees) Bind(ctx context.Context, d host.Declared) (host.Resource, error) {
	bound, err := t.Type.Bind(ctx, d)
	dir := d.Resource.Directory
	if err != nil {
		return nil, err
	}
	if dir == nil || !dir.Below() || d.Leaving {
		return bound, nil
	}
	if d.Below == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("nobody tells what else is declared below it")}
	}
	r := &tree{resource: bound.(*resource), recurse: dir.Recurse, purge: dir.Purge, limit: dir.Limit, depth: dir.Depth, below: d.Below}
	if r.depth == 0 {
		r.depth = declare.TreeDepthMax
	}
	for _, text := range dir.Ignore {
		p, mistake := glob.Parse(text)
		if mistake != "" {
			return nil, &reason.Error{Code: reason.InvalidValue, Doing: "bind " + d.Title, Cause: errors.New(mistake)}
		}
		r.ignore = append(r.ignore, p)
	}
	if _, err := t.wanted(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// entry is what everything below a tree is to have.
type entry struct {
	uid, gid    int // or durable.Keep
	files, dirs declare.ModeRule
}

// wanted finds out what everything below is to have, by what its names mean now.
func (t *Trees) wanted(ctx context.Context, r *tree) (entry, error) {
	e := entry{uid: durable.Keep, gid: durable.Keep}
	if r.recurse == nil {
		return e, nil
	}
	own := resource{path: r.path}
	own.uid, own.gid = t.uid, t.gid
	if err := t.resolve(ctx, &own, users, r.recurse.Owner, &own.uid); err != nil {
		return e, err
	}
	if err := t.resolve(ctx, &own, groups, r.recurse.Group, &own.gid); err != nil {
		return e, err
	}
	if r.recurse.Owner != "" {
		e.uid = int(own.uid)
	}
	if r.recurse.Group != "" {
		e.gid = int(own.gid)
	}
	e.files, _ = r.recurse.FileMode.Rule(false)
	e.dirs, _ = r.recurse.DirectoryMode.Rule(true)
	return e, nil
}

// treeStep is what Apply needs of a plan of a tree: its State.
type treeStep struct {
	self    *step           // of the directory itself; nil where that is as declared
	top     disk.Signature  // of the directory, as it was seen
	planned map[uint64]bool // marks of what is to be done below
	refused error           // why not everything below will be as declared
}

// Check looks at all resources, and at what is below those that are about that.
func (t *Trees) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := t.Type.Check(ctx, plainResources(rs), depth)
	for i, r := range rs {
		if r, ok := r.(*tree); ok {
			t.checkTree(ctx, r, &plans[i])
		}
	}
	return plans
}

// plainResources are resources without what is below them.
func plainResources(rs []host.Resource) []host.Resource {
	out := slices.Clone(rs)
	for i, r := range rs {
		if r, ok := r.(*tree); ok {
			out[i] = r.resource
		}
	}
	return out
}

// checkTree adds what is below to the plan of the directory itself.
func (t *Trees) checkTree(ctx context.Context, r *tree, p *host.Plan) {
	p.Resource = r
	if p.Err != nil {
		return
	}
	var next treeStep
	if len(p.Changes) > 0 {
		self := p.State.(step)
		if next.self = &self; self.anew {
			p.State = next // nothing is below it yet
			return
		}
	}
	s, err := t.survey(ctx, r, false)
	if err != nil {
		*p = host.Plan{Resource: r, Err: err}
		return
	}
	r.mu.Lock()
	r.found = s.dirs
	r.mu.Unlock()
	next.top, next.planned, next.refused = s.top, s.marks(), s.refusal()
	if len(p.Changes)+len(next.planned) == 0 && next.refused != nil {
		*p = host.Plan{Resource: r, Err: next.refused}
		return
	}
	p.Changes = append(p.Changes, s.changes()...)
	if p.State = next; len(next.planned) > 0 {
		p.Recognised = false
	}
}

// Apply makes things as declared, and then what is below them.
func (t *Trees) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	var own []host.Plan
	var at []int
	for i, p := range plans {
		if r, ok := p.Resource.(*tree); ok {
			next := p.State.(treeStep)
			if next.self == nil {
				continue
			}
			p.Resource, p.State = r.resource, *next.self
		}
		own, at = append(own, p), append(at, i)
	}
	for k, res := range t.Type.Apply(ctx, own) {
		results[at[k]] = res
	}
	for i, p := range plans {
		if r, ok := p.Resource.(*tree); ok && results[i].Err == nil {
			t.carryOutBelow(ctx, r, p.State.(treeStep), &results[i])
		}
	}
	return results
}

// Original describes what is at the path. What is below is not put back.
func (t *Trees) Original(ctx context.Context, r host.Resource) ([]byte, error) {
	return t.Type.Original(ctx, plainResources([]host.Resource{r})[0])
}

// Remove undoes a resource. A directory with entries stays.
func (t *Trees) Remove(ctx context.Context, r host.Resource, how declare.OnRemove, original []byte) error {
	return t.Type.Remove(ctx, plainResources([]host.Resource{r})[0], how, original)
}

// Forget drops the old contents that nobody has needed for long, and the notes of where they stood.
func (t *Trees) Forget(ctx context.Context, originals [][]byte) error {
	if err := t.Type.Forget(ctx, originals); err != nil || t.store == nil {
		return err
	}
	return t.store.TidyVersions()
}

// isDirectory tells a directory from everything else.
func isDirectory(sig disk.Signature) bool { return sig.Type() == unix.S_IFDIR }
