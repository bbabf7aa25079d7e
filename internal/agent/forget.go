package agent

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/host"
)

// forgetEvery is how often old content is gone through: often enough for what is kept for days.
const forgetEvery = 24 * time.Hour

// errand is what one type needs to know to forget.
type errand struct {
	keeper    host.Keeper
	originals [][]byte
}

// errands lists the types that keep old content, each with the originals of its own resources and those of unknown ones.
func (l *loop) errands() []errand {
	originals := l.store.Originals()
	var list []errand
	seen := map[host.Keeper]bool{}
	for _, t := range l.opts.Types {
		keeper, ok := t.(host.Keeper)
		if !ok || seen[keeper] {
			continue
		}
		seen[keeper] = true
		e := errand{keeper: keeper}
		for key, data := range originals {
			if id := l.engine.Graph().ID(key); id == converge.None || l.opts.Types[l.parts[id].kind] == t {
				e.originals = append(e.originals, data)
			}
		}
		list = append(list, e)
	}
	return list
}

// forget drops old content that has been kept for long enough. It may run beside the loop.
func forget(ctx context.Context, list []errand) error {
	var errs []error
	for _, e := range list {
		errs = append(errs, e.keeper.Forget(ctx, e.originals))
	}
	return errors.Join(errs...)
}

// forgetDaily does that once a day, as it is done when the agent starts.
func (l *loop) forgetDaily(ctx context.Context) error {
	for clock.Pause(ctx, forgetEvery) {
		list, err := ask(ctx, l, func() ([]errand, error) { return l.errands(), nil })
		if err = errors.Join(err, forget(ctx, list)); err != nil {
			l.post(ctx, func() { l.book.Trouble("forget old content", err) })
		}
	}
	return nil
}
