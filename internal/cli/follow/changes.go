package follow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
)

// Change is one object as it is, or was when it went.
type Change struct {
	Type   remote.EventType
	Object *unstructured.Unstructured // with tables, its metadata; of one that went unseen, what names it
	Table  remote.Table               // with tables, of one row
}

// View shows changes.
type View interface {
	// Show shows one change.
	Show(Change) error
	// Flush ends what belongs together: a list, or one change after it.
	Flush() error
}

// Feed says which objects are followed, and how they come.
type Feed struct {
	Server *remote.Server
	Query  remote.Query
	Tables bool              // as the server shows them
	Say    func(text string) // told once that the server is away, and why; must be set
}

// Run shows every object that there is, and then every change, once each, until the context ends, which is no error. A watch
// that breaks goes on from its place. Where the server has forgotten that, it lists again and shows what is different: what
// is new, what has changed, and what has gone meanwhile. The first list must succeed. Errors are *failure.Error, or those of
// the view.
func (f Feed) Run(ctx context.Context, view View) error {
	r := &running{Feed: f, view: view, known: map[types.UID]known{}}
	place, err := r.list(ctx)
	if err != nil && ctx.Err() == nil {
		return r.end(err, "list ")
	}
	isTold := false
	for ctx.Err() == nil {
		if err == nil {
			if place, err = r.watch(ctx, place); err == nil {
				isTold = false
			}
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil && !r.passes(err) {
			return r.end(err, "watch ")
		}
		if err != nil && !isTold {
			f.Say(failure.Of(err, "watch "+f.Query.Kind.Resource).Error() + "; going on")
			isTold = true
		}
		// After a watch that ended well too: a server that ends every watch at once is not asked in a hot loop.
		select {
		case <-ctx.Done():
		case <-time.After(RetryDelay):
		}
		if errors.Is(err, remote.ErrExpired) || r.listFailed {
			place, err = r.list(ctx)
		} else {
			err = nil
		}
	}
	return nil
}

// known is what was shown of an object last.
type known struct {
	version string
	last    Change
}

// running is a feed that runs.
type running struct {
	Feed
	view  View
	known map[types.UID]known
	// shown is the error of the view, which ends everything and is no matter of the server.
	shown      error
	listFailed bool // the last list, so that the place is not known
}

func (r *running) passes(err error) bool { return r.shown == nil && IsPassing(err) }

func (r *running) end(err error, doing string) error {
	if r.shown != nil {
		return r.shown
	}
	return failure.Of(err, doing+r.Query.Kind.Resource)
}

// list shows what is different from what is known: first what has gone, because another object may have its name by now.
func (r *running) list(ctx context.Context) (place string, err error) {
	there := map[types.UID]bool{}
	isFirst := len(r.known) == 0
	var different []Change
	seen := func(c Change) error {
		there[c.Object.GetUID()] = true
		if isFirst {
			return r.show(c)
		}
		if r.known[c.Object.GetUID()].version != c.Object.GetResourceVersion() {
			different = append(different, c)
		}
		return nil
	}
	if r.Tables {
		place, err = r.Server.Tables(ctx, r.Query, func(part remote.Table) error {
			for _, row := range part.Rows {
				c := Change{remote.Added, row.Object, remote.Table{Columns: part.Columns, Rows: []remote.Row{row}}}
				if err := seen(c); err != nil {
					return err
				}
			}
			return nil
		})
	} else {
		place, err = r.Server.List(ctx, r.Query, func(o *unstructured.Unstructured) error { return seen(Change{Type: remote.Added, Object: o}) })
	}
	if r.listFailed = err != nil; r.listFailed {
		return place, err
	}
	for _, c := range append(r.gone(there), different...) {
		if err := r.show(c); err != nil {
			return place, err
		}
	}
	return place, r.flush()
}

// gone is what is known and not there any more, by namespace and name.
func (r *running) gone(there map[types.UID]bool) []Change {
	var gone []Change
	for uid, k := range r.known {
		if !there[uid] {
			k.last.Type = remote.Deleted
			gone = append(gone, k.last)
		}
	}
	slices.SortFunc(gone, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
	})
	return gone
}

func (r *running) watch(ctx context.Context, from string) (string, error) {
	if r.Tables {
		return r.Server.WatchTables(ctx, r.Query, from, func(t remote.EventType, part remote.Table) error {
			if len(part.Rows) == 0 {
				return nil
			}
			return r.showNow(Change{t, part.Rows[0].Object, part})
		})
	}
	return r.Server.Watch(ctx, r.Query, from, func(t remote.EventType, o *unstructured.Unstructured) error {
		return r.showNow(Change{Type: t, Object: o})
	})
}

// show shows a change that was not shown before.
func (r *running) show(c Change) error {
	uid, version := c.Object.GetUID(), c.Object.GetResourceVersion()
	before, isKnown := r.known[uid]
	switch {
	case c.Type == remote.Deleted:
		delete(r.known, uid)
	case isKnown && before.version == version:
		return nil
	default:
		if isKnown {
			c.Type = remote.Modified
		}
		r.known[uid] = known{version, nameOf(c)}
	}
	r.shown = r.view.Show(c)
	return r.shown
}

func (r *running) showNow(c Change) error {
	if err := r.show(c); err != nil {
		return err
	}
	return r.flush()
}

func (r *running) flush() error {
	if r.shown == nil {
		r.shown = r.view.Flush()
	}
	return r.shown
}

// nameOf is what is kept of a change to tell of the object's end: its row, and of an object what names it. The rest may be
// large, and there may be many.
func nameOf(c Change) Change {
	name := &unstructured.Unstructured{Object: map[string]any{}}
	name.SetGroupVersionKind(c.Object.GroupVersionKind())
	name.SetNamespace(c.Object.GetNamespace())
	name.SetName(c.Object.GetName())
	name.SetUID(c.Object.GetUID())
	name.SetResourceVersion(c.Object.GetResourceVersion())
	name.SetLabels(c.Object.GetLabels())
	table := remote.Table{Columns: c.Table.Columns}
	for _, row := range c.Table.Rows {
		table.Rows = append(table.Rows, remote.Row{Cells: row.Cells, Object: name})
	}
	return Change{Object: name, Table: table}
}
