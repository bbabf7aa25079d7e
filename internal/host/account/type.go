package account

import (
	"context"
	"errors"
	"os"
	"slices"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// laneBatch is how many accounts are checked with one look at the files; a change takes about 30 ms each, so that a batch is over
	// in half a second.
	laneBatch = 16
	// useraddPath stands for all of shadow-utils: who has it has the others.
	useraddPath = "/usr/sbin/useradd"
)

// Options are what New and NewKeys need.
type Options struct {
	// Root is the host's own root; or a sandbox, where there are keys, and neither users nor groups.
	Root *disk.Root
	// Content takes the old content of files of keys. Nil keeps nothing.
	Content *content.Store
}

// Type is the resource types user and group: one Type serves both.
type Type struct {
	root      *disk.Root
	databases databases
}

var _ host.Type = (*Type)(nil)

// New makes the Type.
func New(o Options) *Type { return &Type{root: o.Root, databases: databases{root: o.Root}} }

// Lane returns the lane of accounts: their files are locked by whoever changes them, so there is one change at a time.
func (t *Type) Lane() converge.Lane {
	return converge.Lane{Name: "account", Parallel: 1, Batch: laneBatch}
}

// record is a user or a group. What look returns is comparable, and what the others get as sight is from look.
type record interface {
	host.Resource
	// doing says what is tried.
	doing() string
	// hashes reports whether anything has to be known of the password.
	hashes() bool
	memory() *memory
	// look finds the record.
	look(t *Type, s *snapshot) (sight any)
	// compare says what has to change, or why it cannot be.
	compare(sight any, s *snapshot) ([]host.Change, error)
	// next is the next program to run on the way from first, which was there before all of them, over now; nil at the end of the way.
	next(t *Type, first, now any, s *snapshot) (*call, error)
	// note tells what else a person should know after the way from first.
	note(t *Type, first any, s *snapshot) string
}

// memory is what a record remembers of itself.
type memory struct {
	state uint64 // of the databases, when it was last found to be as declared; 0 for never
	home  string // that must be there; empty for none
	// refusals counts how often in a row a lock was in the way.
	refusals int
}

// watches are the files of accounts. Shadow-utils replace them, and so do the names of the two last only where they exist.
func watches(names ...string) []host.Watch {
	var list []host.Watch
	for _, name := range names {
		list = append(list, host.Watch{Kind: host.WatchPath, Name: databaseDir + "/" + name})
	}
	return list
}

// Bind makes a user or a group ready.
func (t *Type) Bind(_ context.Context, d host.Declared) (host.Resource, error) {
	var r record
	switch res := &d.Resource; {
	case res.User != nil:
		u := newUser(res.User, res.User.NameOr(res.Name))
		u.ignored = res.Ignore
		u.watched = u.watchable()
		r = u
	case res.Group != nil:
		r = newGroup(res.Group, res.Group.NameOr(res.Name))
	default:
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "bind " + d.Title, Cause: errors.New("neither a user nor a group")}
	}
	if t.root.Path() != "/" {
		return nil, &reason.Error{Code: reason.UnsupportedInRoot, Doing: r.doing(), Hint: "a sandbox has files only: its accounts are those of the host"}
	}
	if _, err := os.Stat(useraddPath); err != nil {
		return nil, &reason.Error{Code: reason.NoAccountTools, Doing: r.doing(), Cause: err, Hint: "shadow-utils are needed (the package passwd or shadow-utils)"}
	}
	return r, nil
}

// Check looks at the files of accounts once for all.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	state, settled, err := t.databases.look()
	if ctx.Err() != nil {
		err = reason.Ended("look at accounts", ctx.Err())
	}
	var s *snapshot
	for i, res := range rs {
		r, p := res.(record), &plans[i]
		p.Resource = res
		remembered := err == nil && depth == host.Shallow && r.memory().state == state && t.homeIsThere(r)
		if remembered && settled {
			p.Recognised = true
			continue
		}
		if err == nil && s == nil {
			s, err = t.databases.read(slices.ContainsFunc(rs, func(r host.Resource) bool { return r.(record).hashes() }))
		}
		if err != nil {
			p.Err = err
			continue
		}
		r.memory().state = 0
		sight := r.look(t, s)
		if p.Changes, p.Err = r.compare(sight, s); p.Err != nil {
			continue
		}
		if len(p.Changes) > 0 {
			p.State = sight
			continue
		}
		r.memory().state, p.Recognised = state, remembered
	}
	return plans
}

// homeIsThere reports whether the home that must be there is. Where it cannot be told, nothing is to be made either.
func (t *Type) homeIsThere(r record) bool {
	home := r.memory().home
	if home == "" {
		return true
	}
	st, err := t.root.Stat(home)
	return err != nil || st.Exists()
}

// Apply changes one account after the other.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		w := way{Type: t, record: p.Resource.(record), first: p.State}
		results[i].Err = w.walk(ctx)
		results[i].Changed, results[i].Note = w.changed, w.text
	}
	return results
}

// way is what leads one account to what is declared.
type way struct {
	*Type
	record
	first   any
	changed bool
	text    string
}

func (w *way) walk(ctx context.Context) error {
	if err := w.mayBegin(ctx); err != nil {
		return err
	}
	s, now, err := w.see()
	if err != nil {
		return err
	}
	changes, err := w.compare(now, s)
	switch {
	case err != nil:
		return err
	case len(changes) == 0:
		return nil // somebody else has made it so
	case now != w.first:
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: w.doing()}
	}
	var before *call
	for {
		c, err := w.next(w.Type, w.first, now, s)
		if err != nil {
			return err
		}
		if c == nil || before != nil && slices.Equal(c.args, before.args) {
			break
		}
		output, err := run(ctx, c)
		var seeErr error
		if s, now, seeErr = w.see(); seeErr == nil {
			w.changed = w.changed || now != w.first
		}
		if err != nil {
			return toolError(w.doing(), c, output, err)
		}
		if seeErr != nil {
			return seeErr
		}
		before = c
	}
	w.text = w.note(w.Type, w.first, s)
	return w.arrived(now, s)
}

// arrived makes an error of what is not as declared after all programs have ended well.
func (w *way) arrived(now any, s *snapshot) error {
	left, err := w.compare(now, s)
	if err == nil && len(left) > 0 {
		err = &reason.Error{Code: reason.AccountToolFailed, Doing: w.doing(), Cause: errors.New("the programs ended well, and it is not as declared: " + left[0].Field + " is " + left[0].From)}
	}
	return err
}

// see looks at the account anew.
func (w *way) see() (*snapshot, any, error) {
	s, err := w.databases.read(w.hashes())
	if err != nil {
		return nil, nil, err
	}
	return s, w.look(w.Type, s), nil
}

// mayBegin says why nothing can even be tried.
func (w *way) mayBegin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return reason.Ended(w.doing(), err)
	}
	if os.Geteuid() != 0 {
		return &reason.Error{Code: reason.PermissionDenied, Doing: w.doing(), Hint: "run the agent as root"}
	}
	holder, err := lockHolder()
	if err == nil && holder != "" {
		err = lockError(w.doing(), holder, w.memory().refusals)
		w.memory().refusals++
		return err
	}
	w.memory().refusals = 0
	return err
}
