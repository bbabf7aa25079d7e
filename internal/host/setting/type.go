package setting

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// laneBatch is how many settings are looked at with one look at what they share; a change takes a few milliseconds each.
const laneBatch = 64

// Options are what New needs.
type Options struct {
	// Root is the host's own root; or a sandbox, where there are files, and no kernel.
	Root *disk.Root
	// Content takes the old content of files. Nil keeps nothing.
	Content *content.Store
}

// Type is one of the resource types of settings.
type Type struct {
	kind  declare.ResourceType
	root  *disk.Root
	store *content.Store // or nil
	bind  func(*Type, *declare.Resource) (thing, error)
	seed  maphash.Seed
	// Sweeper is for what a killed run has left beside the files.
	*durable.Sweeper

	mu    sync.Mutex // guards later
	later later      // for parameters of the kernel
}

var (
	_ host.Type    = (*Type)(nil)
	_ host.Sweeper = (*Type)(nil)
)

// Types makes all types of settings.
func Types(o Options) map[declare.ResourceType]host.Type {
	types, sweeper := map[declare.ResourceType]host.Type{}, durable.NewSweeper(o.Root)
	for kind, bind := range map[declare.ResourceType]func(*Type, *declare.Resource) (thing, error){
		declare.TypeSysctl: bindSysctl, declare.TypeKernelModule: bindModule, declare.TypeHostname: bindHostname,
		declare.TypeHostEntry: bindHostEntry, declare.TypeTimezone: bindTimezone, declare.TypeLocale: bindLocale,
	} {
		types[kind] = &Type{kind: kind, root: o.Root, store: o.Content, bind: bind, seed: maphash.MakeSeed(), Sweeper: sweeper}
	}
	return types
}

// Lane returns the lane of one type of settings. Those of one type may share a file, so there is one change at a time.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: string(t.kind), Parallel: 1, Batch: laneBatch}
}

// sandbox reports whether there are files only.
func (t *Type) sandbox() bool { return t.root.Path() != "/" }

// thing is one setting: what is declared of it.
type thing interface {
	// doing says what is tried.
	doing() string
	watches() []host.Watch
	// sign adds all that can show that the setting is not as it was, for the price of a stat each.
	sign(s *signs)
	// look finds out how the setting is. What it returns is comparable.
	look(c *call) (sight any, err error)
	// compare says what Apply can change, and what is in the way that it cannot. It is pure.
	compare(sight any) (changes []host.Change, obstacle error)
	// apply makes the changes.
	apply(ctx context.Context, t *Type, sight any) (done work, err error)
	// original is what undo needs to put back what is there now.
	original(t *Type, sight any) ([]byte, error)
	// undo takes the setting back: to what original says, or, with nil, to nothing that is declared.
	undo(ctx context.Context, t *Type, original []byte) error
}

// work is what was done.
type work struct {
	changed bool
	note    string
}

// resource is one bound setting.
type resource struct {
	thing
	seen    uint64 // the signs under which it was last found as declared; 0 for never
	settled bool   // every later change shows in the signs
}

// Watches lists what tells that the setting was touched.
func (r *resource) Watches() []host.Watch { return r.watches() }

// Bind makes a setting ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	if d.Resource.Type() != t.kind {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("not a " + string(t.kind))}
	}
	b, err := t.bind(t, &d.Resource)
	if err != nil {
		return nil, err
	}
	return &resource{thing: b}, nil
}

// kernelOnly refuses a sandbox for what is not about files.
func (t *Type) kernelOnly(b thing) (thing, error) {
	if t.sandbox() {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: b.doing(), Hint: "a sandbox has files only: its kernel is the host's"}
	}
	return b, nil
}

// expanded makes an error of what is wrong with a text that was expanded here, and how that is helped.
func expanded(doing string, mistake func(string) (message, hint string), text string) error {
	message, hint := mistake(text)
	if message == "" {
		return nil
	}
	return &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: errors.New(message), Hint: "see what $(...) stands for on this host; " + hint}
}

// call is one look at settings: what several of them are in is looked at once.
type call struct {
	*Type
	stats  map[string]disk.Stat
	lines  []hostsLine // of /etc/hosts
	parsed bool        // they are
}

// signs are what may be compared instead of a setting.
type signs struct {
	*call
	sum    maphash.Hash
	newest int64 // the last change of a file
	failed bool  // something could not be looked at, so that it must be looked at closely
}

// file adds what stands at a path.
func (s *signs) file(p string) {
	st, known := s.stats[p]
	if !known {
		var err error
		st, err = s.root.Stat(p)
		s.failed = s.failed || err != nil
		if err == nil && s.stats != nil {
			s.stats[p] = st
		}
	}
	s.newest = max(s.newest, st.Ctime)
	maphash.WriteComparable(&s.sum, st.Signature)
}

// text adds what was read.
func (s *signs) text(text string) { maphash.WriteComparable(&s.sum, text) }

// number adds what stands for something else.
func (s *signs) number(n uint64) { maphash.WriteComparable(&s.sum, n) }

// result is never 0.
func (s *signs) result() uint64 { return s.sum.Sum64() | 1 }

func (c *call) newSigns() *signs {
	s := &signs{call: c}
	s.sum.SetSeed(c.seed)
	return s
}

func (c *call) signsOf(b thing) *signs {
	s := c.newSigns()
	b.sign(s)
	return s
}

// Check looks at settings.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	t.mu.Lock()
	t.later.stale = true
	t.mu.Unlock()
	now := disk.Tick()
	c := &call{Type: t, stats: map[string]disk.Stat{}}
	for i, res := range rs {
		p := &plans[i]
		p.Resource = res
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended(res.(*resource).doing(), err)
			continue
		}
		c.check(res.(*resource), depth, now, p)
	}
	return plans
}

func (c *call) check(r *resource, depth host.Depth, now int64, p *host.Plan) {
	s := c.signsOf(r.thing)
	known := depth == host.Shallow && !s.failed && s.result() == r.seen
	if known && r.settled {
		p.Recognised = true
		return
	}
	r.seen = 0
	sight, err := r.look(c)
	if err != nil {
		p.Err = err
		return
	}
	changes, obstacle := r.compare(sight)
	switch {
	case len(changes) > 0:
		p.Changes, p.State = changes, sight
	case obstacle != nil:
		p.Err = obstacle
	default:
		r.seen, r.settled, p.Recognised = s.result(), s.newest < now, known
	}
}

// Apply changes one setting after the other.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		r := p.Resource.(*resource)
		if err := ctx.Err(); err != nil {
			results[i].Err = reason.Ended(r.doing(), err)
			continue
		}
		done, err := t.apply(ctx, r, p.State)
		results[i] = host.Result{Err: err, Changed: done.changed, Note: done.note}
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource, was any) (work, error) {
	r.seen = 0
	now, err := r.look(&call{Type: t})
	if err != nil {
		return work{}, err
	}
	changes, obstacle := r.compare(now)
	switch {
	case len(changes) == 0:
		return work{}, obstacle // somebody else has made it so
	case now != was:
		return work{}, &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing()}
	}
	done, err := r.thing.apply(ctx, t, now)
	if err != nil {
		return done, err
	}
	before := disk.Tick()
	after := &call{Type: t}
	s := after.signsOf(r.thing)
	if now, err = r.look(after); err != nil {
		return done, err
	}
	left, obstacle := r.compare(now)
	switch {
	case len(left) > 0:
		return done, &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(),
			Cause: errors.New("all was done, and " + left[0].Field + " is " + shown(left[0].From) + " again")}
	case obstacle != nil:
		return done, obstacle
	case !s.failed:
		r.seen, r.settled = s.result(), s.newest < before
	}
	return done, nil
}

// Original describes the setting.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	sight, err := r.look(&call{Type: t})
	if err != nil {
		return nil, err
	}
	return r.thing.original(t, sight)
}

// Remove takes back what was declared.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, original []byte) error {
	r := res.(*resource)
	r.seen = 0
	return host.Undo(ctx, r.doing(), how, original, func(ctx context.Context, original []byte) error { return r.undo(ctx, t, original) })
}
