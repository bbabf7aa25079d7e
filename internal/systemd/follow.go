package systemd

import (
	"context"
	"errors"
	"maps"
	"slices"

	"tako.dev/tako/internal/reason"
)

// Follower is told of changes of units that somebody asks for beside those of Watch, over the same connection. It lives as long as that
// connection. Its methods may be called from any goroutine, Next from one at a time.
type Follower struct {
	bus     *Bus
	session *session
	pending *pending
}

// Follow begins to follow units, none at first. End gives it back. Errors: BusDisconnected, NoSystemd.
func (b *Bus) Follow(ctx context.Context) (*Follower, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, "follow units")
	if err != nil {
		return nil, err
	}
	return &Follower{bus: b, session: s, pending: newPending()}, nil
}

// Add follows units by their main names. The caller looks at them after Add has returned, so that no change falls between. Errors:
// OperationTimeout, BusDisconnected.
func (f *Follower) Add(ctx context.Context, units ...string) error {
	f.bus.mu.Lock()
	for _, unit := range units {
		if list := f.bus.followed[unit]; !slices.Contains(list, f) {
			f.bus.followed[unit] = append(slices.Clip(list), f) // a list is replaced, never changed: changed reads it
		}
	}
	f.bus.mu.Unlock()
	return f.sync(ctx)
}

// Drop follows a unit no longer. Errors: as Add.
func (f *Follower) Drop(ctx context.Context, unit string) error {
	f.bus.mu.Lock()
	f.bus.dropLocked(unit, f)
	f.bus.mu.Unlock()
	return f.sync(ctx)
}

// Note has Next tell of a unit that is to be looked at for another reason than a change that systemd tells of.
func (f *Follower) Note(unit string) { f.pending.addUnits([]string{unit}) }

// End follows nothing any more.
func (f *Follower) End() {
	f.bus.mu.Lock()
	for unit := range f.bus.followed {
		f.bus.dropLocked(unit, f)
	}
	f.bus.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	_ = f.sync(ctx) // a rule too many costs a few wake-ups and goes with the next change
}

func (f *Follower) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.bus.opts.CallTimeout)
	defer cancel()
	return f.bus.syncRules(ctx, f.session)
}

// Next waits for changes: UnitChanged for what is followed, and Resync where some may have been missed. It ends with BusDisconnected when the
// connection is lost, and with OperationTimeout when ctx ends.
func (f *Follower) Next(ctx context.Context) ([]Event, error) {
	const doing = "follow units"
	for {
		select {
		case <-ctx.Done():
			return nil, callError(doing, ctx.Err())
		case <-f.session.conn.Context().Done():
			return nil, &reason.Error{Code: reason.BusDisconnected, Doing: doing, Cause: errors.New("connection lost")}
		case <-f.pending.wake:
		}
		events, renewed := f.pending.take()
		if renewed {
			return []Event{{Kind: Resync}}, nil
		}
		if len(events) > 0 {
			return events, nil
		}
	}
}

// dropLocked takes a follower from a unit.
func (b *Bus) dropLocked(unit string, f *Follower) {
	rest := slices.DeleteFunc(slices.Clone(b.followed[unit]), func(o *Follower) bool { return o == f })
	if len(rest) == 0 {
		delete(b.followed, unit)
		return
	}
	b.followed[unit] = rest
}

// resyncFollowers tells all followers that they may have missed something.
func (b *Bus) resyncFollowers() {
	b.mu.Lock()
	all := map[*Follower]struct{}{}
	for _, list := range b.followed {
		for _, f := range list {
			all[f] = struct{}{}
		}
	}
	b.mu.Unlock()
	for f := range all {
		f.pending.addRenew()
	}
}

// rulesLocked are the match rules for all units that anybody is interested in.
func (b *Bus) rulesLocked(withJobs bool) []string {
	names := slices.Collect(maps.Keys(b.interest.wantedAs))
	for unit := range b.followed {
		if _, both := b.interest.wantedAs[unit]; !both {
			names = append(names, unit)
		}
	}
	return rulesFor(names, withJobs)
}
