package systemd

import (
	"context"
	"os"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	bus "tako.dev/tako/internal/systemd"
)

// Run tells sink of every attempt, and then of what changes. When the connection to systemd is lost it returns with BusDisconnected.
func (r *Runtime) Run(ctx context.Context, sink func(run.Status)) error {
	changes, err := r.bus.Follow(ctx)
	if err == nil {
		defer changes.End()
		r.setWatch(changes)
		defer r.setWatch(nil)
		t := teller{r: r, changes: changes, told: map[run.ID]run.Status{}, sink: sink}
		if err = t.all(ctx); err == nil {
			err = t.sweep(ctx)
		}
		if err == nil {
			err = t.mind(ctx)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *Runtime) setWatch(changes *bus.Follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = changes
}

// watching is what Run waits for; nil while it does not run.
func (r *Runtime) watching() *bus.Follower {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watch
}

// follow has Run be told of changes of an attempt that is just being started.
func (r *Runtime) follow(ctx context.Context, id run.ID) error {
	if changes := r.watching(); changes != nil {
		return changes.Add(ctx, unitOf(id))
	}
	return nil
}

// poke has Run look at an attempt.
func (r *Runtime) poke(id run.ID) {
	if changes := r.watching(); changes != nil {
		changes.Note(unitOf(id))
	}
}

// teller knows what was told.
type teller struct {
	r       *Runtime
	changes *bus.Follower
	told    map[run.ID]run.Status
	sink    func(run.Status)
}

// all tells of every attempt that is not as it was told, and begins to follow those that have not ended.
func (t *teller) all(ctx context.Context) error {
	followed := map[run.ID]bool{}
	for {
		list, err := t.r.List(ctx)
		if err != nil {
			return err
		}
		var units []string
		for _, s := range list {
			if s.Phase != run.Ended && !followed[s.ID] {
				followed[s.ID] = true
				units = append(units, unitOf(s.ID))
			}
		}
		if len(units) == 0 { // they are as they were listed, or a change of them will be told
			return t.tellAll(ctx, list)
		}
		if err := t.changes.Add(ctx, units...); err != nil {
			return err
		}
	}
}

func (t *teller) tellAll(ctx context.Context, list []run.Status) error {
	there := make(map[run.ID]run.Status, len(list))
	for _, s := range list {
		there[s.ID] = t.told[s.ID]
	}
	t.told = there // what was removed is forgotten
	for _, s := range list {
		if err := t.tell(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// sweep takes away what an agent has put into memory that was killed before it could have the attempt started.
func (t *teller) sweep(ctx context.Context) error {
	entries, err := os.ReadDir(t.r.tree.memory)
	if err != nil {
		return disk.Fault("list", t.r.tree.memory, err)
	}
	for _, e := range entries {
		id, ok := idOf(e.Name(), "")
		if !ok || t.r.starting(id) { // who does something with it just now takes care of it
			continue
		}
		if _, there, err := t.r.look(ctx, id); err != nil {
			return err
		} else if there {
			continue
		}
		if err := t.r.Remove(ctx, id); err != nil && !reason.Is(err, reason.TaskBusy) { // unless it was started meanwhile
			return err
		}
	}
	return nil
}

// mind tells of what changes.
func (t *teller) mind(ctx context.Context) error {
	for {
		events, err := t.changes.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := t.event(ctx, e); err != nil {
				return err
			}
		}
	}
}

func (t *teller) event(ctx context.Context, e bus.Event) error {
	if e.Kind == bus.Resync {
		return t.all(ctx)
	}
	id, ok := attemptOf(e.Unit)
	if !ok {
		return nil
	}
	s, there, err := t.r.look(ctx, id)
	if err != nil {
		return err
	}
	if _, known := t.told[id]; there && !known && s.Phase != run.Ended {
		// Who has started it may have had a Run before this one follow it.
		if err := t.changes.Add(ctx, e.Unit); err != nil {
			return err
		}
		if s, there, err = t.r.look(ctx, id); err != nil {
			return err
		}
	}
	if there {
		return t.tell(ctx, s)
	}
	if t.r.starting(id) {
		return nil // it is followed for what comes
	}
	delete(t.told, id)
	return t.changes.Drop(ctx, e.Unit)
}

func (t *teller) tell(ctx context.Context, s run.Status) error {
	if t.told[s.ID] != s {
		t.told[s.ID] = s
		t.sink(s)
	}
	if s.Phase != run.Ended {
		return nil
	}
	// It does not change any more. What is remembered is what may yet be told twice.
	delete(t.told, s.ID)
	return t.changes.Drop(ctx, unitOf(s.ID))
}

// starting reports whether something is just done with an attempt.
func (r *Runtime) starting(id run.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy[id] != nil
}
