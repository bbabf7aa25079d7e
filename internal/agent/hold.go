package agent

import (
	"context"
	"slices"
	"time"

	"tako.dev/tako/internal/agent/core"
	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
)

// holds are all that keep something of this host as it is: its own, and those of its cluster.
func (l *loop) holds() []catalog.Hold {
	list := hold.Own(l.store)
	if l.joined != nil {
		list = append(list, l.joined.own.Holds...)
	}
	return list
}

// changeHolds sets or ends a hold of the host, and lets it count.
func (l *loop) changeHolds(ctx context.Context, q local.Request) (ended []Hold, err error) {
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
