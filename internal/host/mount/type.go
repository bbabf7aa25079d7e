package mount

import (
	"context"
	"errors"
	"hash/maphash"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

const (
	// laneBatch is how many are looked at with one reading of the kernel's list.
	laneBatch = 16
	// laneParallel lets others go on while a server does not answer.
	laneParallel = 4
	fieldReload  = "daemon-reload"
)

// Options are what Types needs.
type Options struct {
	Root *disk.Root
	Bus  *systemd.Bus // nil in a sandbox only
	// Content takes the old content of fstab. Nil keeps nothing.
	Content *content.Store
}

// bus is what mounts need of systemd; see systemd.Bus.
type bus interface {
	Unit(ctx context.Context, unit string) (systemd.UnitState, error)
	Reload(ctx context.Context) error
}

var _ bus = (*systemd.Bus)(nil)

// Type is the resource type of mounts, or that of swap.
type Type struct {
	kind declare.ResourceType
	list *kernelList
	seed maphash.Seed
	*fstab
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// Types makes both types, which share fstab.
func Types(o Options) map[declare.ResourceType]host.Type {
	f := &fstab{root: o.Root, store: o.Content, Sweeper: durable.NewSweeper(o.Root)}
	if o.Bus != nil {
		f.bus = o.Bus
	}
	return map[declare.ResourceType]host.Type{
		declare.TypeMount: &Type{kind: declare.TypeMount, list: &kernelList{name: mountinfo}, seed: maphash.MakeSeed(), fstab: f},
		declare.TypeSwap:  &Type{kind: declare.TypeSwap, list: &kernelList{name: swapsFile}, seed: maphash.MakeSeed(), fstab: f},
	}
}

// Lane returns the lane of one of the types.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(t.kind), Parallel: laneParallel, Batch: laneBatch}
}

// thing is one mount or one swap: what is declared of it.
type thing interface {
	// doing says what is tried.
	doing() string
	// mine says which lines of fstab are its own.
	mine(l fstabLine) bool
	// look finds out how it is. What it returns is comparable.
	look(c *call) (sight any, err error)
	// compare says what Apply can change, and what is in the way that it cannot. It is pure.
	compare(sight any) (changes []host.Change, obstacle error)
	// apply makes the changes.
	apply(ctx context.Context, t *Type, sight any, done *work) error
	// original is what undo needs to put back what is there now.
	original(sight any) any
	// undo takes it back: to what an original says, or, with nil, to nothing that is declared.
	undo(ctx context.Context, t *Type, original []byte) error
}

// work is what was done.
type work struct {
	changed bool
	stale   bool // systemd has to read fstab
	note    string
}

// resource is one bound thing.
type resource struct {
	thing
	list    string // the kernel's
	unit    string // what systemd makes of the line in fstab; "" when there is to be none
	file    string // a path at which a change counts too; "" for none
	seen    uint64 // the signs under which it was last found as declared; 0 for never
	settled bool   // every later change shows in the signs
}

// Watches lists what tells that it was touched.
func (r *resource) Watches() []host.Watch {
	w := []host.Watch{{Kind: host.WatchPolled, Name: r.list}, {Kind: host.WatchPath, Name: fstabFile}}
	if r.file != "" {
		w = append(w, host.Watch{Kind: host.WatchPath, Name: r.file})
	}
	return w
}

// Bind makes a mount or a swap ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	bound := &resource{list: t.list.name}
	switch r := &d.Resource; {
	case t.kind == declare.TypeMount && r.Mount != nil:
		m := bindMount(r.Mount)
		bound.thing, bound.unit = m, m.unit()
	case t.kind == declare.TypeSwap && r.Swap != nil:
		s := bindSwap(r.Swap)
		bound.thing, bound.unit, bound.file = s, s.unit(), s.file()
	default:
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a " + string(t.kind))}
	}
	if t.root.Path() != "/" {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: bound.doing(), Hint: "a sandbox has files only: what is mounted is the host's"}
	}
	return bound, nil
}

// call is one look at several of them.
type call struct {
	*Type
	turn   uint64 // of the kernel's list
	fstab  disk.Stat
	signed bool // the stat is good
	lines  []fstabLine
	table  *table
	areas  []area
	read   bool // lines and the list are there
}

func (t *Type) newCall() *call {
	c := &call{Type: t, turn: t.list.look()}
	st, err := t.root.Stat(fstabFile)
	c.fstab, c.signed = st, err == nil
	return c
}

// load reads what things are looked for in, once.
func (c *call) load() error {
	if c.read {
		return nil
	}
	body, turn, err := c.list.read()
	if err != nil {
		return err
	}
	c.turn = turn
	if c.kind == declare.TypeMount {
		c.table = parseTable(body)
	} else {
		c.areas = parseSwaps(body)
	}
	f, err := c.readFile(fstabFile)
	if err != nil {
		return err
	}
	c.lines, c.read = parseFstab(f.body), true
	return nil
}

// signs are what may be compared instead of a thing; newest is the last change of a file among them. They are read before what they stand for.
func (c *call) signs(r *resource) (sum uint64, newest int64, ok bool) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	maphash.WriteComparable(&h, c.turn)
	maphash.WriteComparable(&h, c.fstab.Signature)
	newest, ok = c.fstab.Ctime, c.signed && c.turn != 0
	if r.file != "" {
		st, err := c.root.Stat(r.file)
		maphash.WriteComparable(&h, st.Signature)
		newest, ok = max(newest, st.Ctime), ok && err == nil
	}
	return h.Sum64() | 1, newest, ok
}

// stale asks systemd whether it has yet to read fstab. Where it cannot be asked nothing needs to be done.
func (c *call) stale(ctx context.Context, r *resource) bool {
	if c.bus == nil || r.unit == "" {
		return false
	}
	state, err := c.bus.Unit(ctx, r.unit)
	return err == nil && state.NeedDaemonReload
}

// Check looks at mounts or swaps.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	now := disk.Tick()
	c := t.newCall()
	for i, res := range rs {
		p := &plans[i]
		p.Resource = res
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended(res.(*resource).doing(), err)
			continue
		}
		c.check(ctx, res.(*resource), depth, now, p)
	}
	return plans
}

func (c *call) check(ctx context.Context, r *resource, depth host.Depth, now int64, p *host.Plan) {
	before, _, sound := c.signs(r)
	known := depth == host.Shallow && sound && before == r.seen
	if known && r.settled {
		p.Recognised = true
		return
	}
	r.seen = 0
	if p.Err = c.load(); p.Err != nil {
		return
	}
	sum, newest, ok := c.signs(r)
	sight, err := r.look(c)
	if err != nil {
		p.Err = err
		return
	}
	changes, obstacle := r.compare(sight)
	if obstacle == nil && c.stale(ctx, r) {
		changes = append(changes, host.Change{Field: fieldReload, From: "fstab changed", To: "read"})
	}
	switch {
	case len(changes) > 0:
		p.Changes, p.State = changes, sight
	case obstacle != nil:
		p.Err = obstacle
	case ok:
		r.seen, r.settled, p.Recognised = sum, newest < now, known
	}
}

// Apply makes the changes one after the other, has systemd read fstab once, and looks again.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	works := make([]work, len(plans))
	stale := false
	for i, p := range plans {
		r := p.Resource.(*resource)
		if err := ctx.Err(); err != nil {
			results[i].Err = reason.Ended(r.doing(), err)
			continue
		}
		results[i].Err = t.apply(ctx, r, &p, &works[i])
		results[i].Changed, results[i].Note = works[i].changed, works[i].note
		stale = stale || works[i].stale
	}
	var reloadErr error
	if stale {
		reloadErr = t.reload(ctx)
	}
	for i, p := range plans {
		switch {
		case works[i].stale && reloadErr != nil && results[i].Err == nil:
			results[i].Err = reloadErr
		case works[i].stale && reloadErr == nil:
			results[i].Changed = true
		}
		if results[i].Err == nil {
			results[i].Err = t.confirm(p.Resource.(*resource))
		}
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource, p *host.Plan, done *work) error {
	r.seen = 0
	c := t.newCall()
	if err := c.load(); err != nil {
		return err
	}
	now, err := r.look(c)
	if err != nil {
		return err
	}
	changes, obstacle := r.compare(now)
	for _, planned := range p.Changes {
		done.stale = done.stale || planned.Field == fieldReload
	}
	switch {
	case len(changes) == 0:
		return obstacle // somebody else has made it so, or there is only the daemon-reload
	case now != p.State:
		done.stale = false
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing()}
	}
	return r.thing.apply(ctx, t, now, done)
}

// confirm looks at what was just done.
func (t *Type) confirm(r *resource) error {
	before := disk.Tick()
	c := t.newCall()
	if err := c.load(); err != nil {
		return err
	}
	sum, newest, ok := c.signs(r)
	now, err := r.look(c)
	if err != nil {
		return err
	}
	left, obstacle := r.compare(now)
	if len(left) > 0 {
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("all was done, and " + left[0].Field + " is " + disk.Shown(left[0].From) + " again")}
	}
	if obstacle == nil && ok {
		r.seen, r.settled = sum, newest < before
	}
	return obstacle
}

// Original describes what is there.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	c := t.newCall()
	if err := c.load(); err != nil {
		return nil, err
	}
	sight, err := r.look(c)
	if err != nil {
		return nil, err
	}
	return marshal(r.thing.original(sight), oldLines(c.lines, r.mine))
}

// Remove takes back what was declared.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, original []byte) error {
	r := res.(*resource)
	r.seen = 0
	return host.Undo(ctx, r.doing(), how, original, func(ctx context.Context, original []byte) error { return r.undo(ctx, t, original) })
}
