package swarm

import (
	"fmt"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/wire"
)

// start starts the instances of the state that was just acted on, and ends the others: each runs at once and is ready, and what does not run any
// more has left nothing to tell.
func (h *host) start(now time.Time) error {
	own, err := h.own()
	if err != nil {
		return err
	}
	since := make(map[string]int64, len(h.runs))
	for i := range h.runs {
		since[h.runs[i].UID] = h.runs[i].Since
	}
	h.runs = make([]wire.Instance, 0, len(own.Instances)) // a report may still be read of the ones before
	for i := range own.Instances {
		one := &own.Instances[i]
		next := wire.Instance{UID: one.UID, Attempt: 1, Phase: wire.InstanceRunning, Ready: true, Since: now.UnixMilli()}
		if was, known := since[one.UID]; known {
			next.Since = was
		}
		if one.Stop {
			next.Phase, next.Ready = wire.InstanceDone, false
		}
		h.runs = append(h.runs, next)
	}
	h.runs = wire.FitInstances(h.runs)
	return nil
}

// own is what the state has for this host alone.
func (h *host) own() (catalog.Own, error) {
	for _, l := range h.state.List {
		if l.ID != wire.OwnLayer {
			continue
		}
		trie, held, err := h.store.Trie(l.Root)
		if err != nil || !held {
			return catalog.Own{}, fmt.Errorf("the own layer %s is held: %v: %w", l.Root, held, err)
		}
		var failed error
		own, err := catalog.DecodeOwn(func(yield func(catalog.Digest, []byte) bool) {
			for row, err := range trie.From(catalog.Digest{}) {
				var body []byte
				if err == nil {
					body, err = h.store.Body(l.Root, row.Key)
				}
				if failed = err; err != nil || !yield(row.Key, body) {
					return
				}
			}
		})
		if failed != nil {
			return catalog.Own{}, failed
		}
		return own, err
	}
	return catalog.Own{}, nil
}

// runningOf is how many of some instances run.
func runningOf(all []wire.Instance) (n int) {
	for i := range all {
		if all[i].Phase == wire.InstanceRunning {
			n++
		}
	}
	return n
}
