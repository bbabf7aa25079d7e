package cli

import (
	"context"
	"reflect"
	"time"

	"tako.dev/tako/internal/cli/describe"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/live"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
)

// follow shows a feed until the context ends or the time is over, each of which is how a watch ends. Time 0 is for ever.
func (p *program) follow(ctx context.Context, feed follow.Feed, view follow.View, limit time.Duration) error {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return feed.Run(ctx, view)
}

// objectView writes each change as an object.
type objectView struct {
	objects *output.Objects
	kind    remote.Kind
}

func (v *objectView) Show(c follow.Change) error {
	return v.objects.Change(string(c.Type), output.Named{Name: remote.RefOf(v.kind, c.Object).String(), Object: c.Object})
}

func (v *objectView) Flush() error { return nil }

// tableView writes the list as a table, and each change as a row under it.
type tableView struct {
	program *program
	table   *output.Tables
	pending bool
}

func (v *tableView) Show(c follow.Change) error {
	v.table.Add(c.Table)
	if c.Type == remote.Deleted {
		v.table.Mark("(deleted)")
	}
	v.pending = true
	return nil
}

func (v *tableView) Flush() error {
	if !v.pending {
		return nil
	}
	v.pending = false
	return v.table.Write(v.program.Out, v.program.style())
}

// eventView writes what happened, sorted as far as it is known at once. That an event was forgotten is none.
type eventView struct {
	program  *program
	flags    *eventsFlags
	happened []describe.Happening
	isBegun  bool
}

func (v *eventView) Show(c follow.Change) error {
	if h := describe.HappeningOf(c.Object); c.Type != remote.Deleted && v.flags.shows(h) {
		v.happened = append(v.happened, h)
	}
	return nil
}

func (v *eventView) Flush() error {
	if v.isBegun && len(v.happened) == 0 {
		return nil
	}
	describe.SortHappenings(v.happened)
	err := v.program.writeEvents(v.happened, v.flags, !v.isBegun)
	v.happened, v.isBegun = nil, true
	return err
}

// watchStatus shows the fleet, and then what becomes of it: on a terminal in the same place, elsewhere below.
func (p *program) watchStatus(ctx context.Context, server *remote.Server, home string, f *statusFlags) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	var before *fleet.Status
	screen := live.Screen{Width: p.style().Width}
	show := func(ctx context.Context) error {
		all, err := fleet.Read(ctx, server, p.flags.Namespace, home)
		if err != nil {
			return err
		}
		s, was, now := page(all), before, time.Now()
		if was != nil && reflect.DeepEqual(s, was) {
			return nil
		}
		before = s
		return p.write(f.output, s, func() string {
			switch {
			case screen.Width > 0 && p.Getenv("TERM") != "dumb":
				return screen.Page(s.Text(now, p.style()) + "\nas of " + now.Format(time.TimeOnly) + "; Ctrl-C ends\n")
			case was == nil:
				return s.Text(now, p.style())
			}
			return s.Changes(was, now, p.style())
		})
	}
	source := live.Source{Server: server, Resources: fleet.Watched(), Namespace: p.flags.Namespace, Show: show, Say: p.warn}
	return source.Follow(ctx)
}
