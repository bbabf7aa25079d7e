package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// SetHold keeps something of this host as it is, from when it returns until the hold ends, in the place of the hold of the same config and
// claim. It is the host's own: no server knows of it before it is reported. An agent need not run. The error is HoldInvalid, or that of the
// state directory.
func SetHold(ctx context.Context, stateDir string, h Hold) error {
	_, err := socket.Ask[reply](ctx, stateDir, request{Do: "hold", Hold: &h})
	if !reason.Is(err, reason.AgentNotRunning) {
		return err
	}
	st, err := store.Open(stateDir, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(hold.Set(st, h), st.Close())
}

// EndHolds ends the host's own hold of a config and a claim before its time, or, where both are empty, all of them. It returns those that
// have not ended by themselves.
func EndHolds(ctx context.Context, stateDir, config, claim string) ([]Hold, error) {
	r, err := socket.Ask[reply](ctx, stateDir, request{Do: "resume", Hold: &Hold{Config: config, Claim: claim}})
	if !reason.Is(err, reason.AgentNotRunning) {
		return r.Holds, err
	}
	st, err := store.Open(stateDir, time.Now())
	if err != nil {
		return nil, err
	}
	ended, err := hold.End(st, Hold{Config: config, Claim: claim})
	return ended, errors.Join(err, st.Close())
}

// holds are all that keep something of this host as it is: its own, and those of its cluster.
func (l *loop) holds() []catalog.Hold {
	list := hold.Own(l.store)
	if l.joined != nil {
		list = append(list, l.joined.own.Holds...)
	}
	return list
}

// changeHolds sets or ends a hold of the host, and lets it count.
func (l *loop) changeHolds(ctx context.Context, q request) (ended []Hold, err error) {
	if q.Hold == nil {
		q.Hold = &Hold{}
	}
	if q.Do == "hold" {
		err = hold.Set(l.store, *q.Hold)
	} else {
		ended, err = hold.End(l.store, *q.Hold)
	}
	l.endHolds(ctx)
	l.layGround(ctx)
	l.setAlarm()
	l.happened()
	return ended, err
}

// endHolds looks anew by what each resource is held, and at what is not held any more.
func (l *loop) endHolds(ctx context.Context) {
	now := time.Now()
	holds := l.holds()
	var free []converge.ID
	for i, p := range l.parts {
		was := p.hold
		if p.setHold(core.Held(holds, p.config, p.claim(), now)); was != nil && p.hold == nil {
			free = append(free, converge.ID(i))
		}
	}
	l.look(ctx, free)
}

// look looks at some parts again that nobody holds any more, or that something else is new about.
func (l *loop) look(ctx context.Context, ids []converge.ID) {
	if len(ids) > 0 {
		l.step(ctx, converge.Unheld{IDs: ids})
		l.step(ctx, converge.Examine{IDs: ids})
	}
}

// freed are the parts of an operation that were held when it began, and are not any more.
func (l *loop) freed(j job) []converge.ID {
	var ids []converge.ID
	for i, p := range j.parts {
		if j.holds[i] == nil {
			continue
		}
		if id := l.engine.Graph().ID(p.Key()); id != converge.None && l.parts[id].hold == nil && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
