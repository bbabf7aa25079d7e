package heads

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/apiserver/missed"
)

const (
	// lagMax is how long a change may be on its way in a watch before it counts as lost: many times what it takes.
	lagMax = 5 * time.Second
	// compareMax bounds one comparison.
	compareMax = time.Minute
)

// keepComparing reads everything again, and again, and puts right what the watches have not told.
func (h *Heads) keepComparing(ctx context.Context) {
	every := time.NewTicker(h.options.Compare)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		for _, s := range []*source{h.assignments, h.nodes} {
			if err := h.compare(ctx, s); err != nil && ctx.Err() == nil {
				h.options.Log.Warn("what is in the store cannot be compared with what is in view", "kind", s.kind, "err", err)
			}
		}
	}
}

// compare finds what differs now and still does when it can be no longer on its way. That etcd has told the server's caches everything is for
// package missed to see; here it is also about what has not come from there.
func (h *Heads) compare(ctx context.Context, s *source) error {
	if !s.synced.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, compareMax)
	defer cancel()
	at, err := h.options.Revision(ctx)
	if err != nil {
		return err
	}
	stored, err := h.options.Objects.Versions(ctx, v1alpha1.SchemeGroupVersion.WithKind(s.kind), at)
	if err != nil {
		return err
	}
	suspects := missed.Differing(stored, s.seen(), at)
	if len(suspects) == 0 {
		return nil
	}
	select {
	case <-time.After(h.lag):
	case <-ctx.Done():
		return ctx.Err()
	}
	for name := range missed.Differing(stored, s.seen(), at) {
		if !suspects[name] {
			continue
		}
		lost, err := s.repair(ctx, name, at)
		if err != nil {
			return err
		}
		if lost {
			h.metrics.lost.Inc()
			h.options.Log.Error("a watch has not told of a change", "kind", s.kind, "name", name, "version", stored[name])
		}
	}
	return nil
}

// repair brings one object into the view as it is now, and reports whether the view had something else.
func (s *source) repair(ctx context.Context, name string, at uint64) (lost bool, err error) {
	o, err := s.get(ctx, name)
	seen, in := s.seen()[name]
	switch {
	case apierrors.IsNotFound(err):
		s.leave(name, at)
		return in, nil
	case err != nil:
		return false, err
	}
	s.enter(o)
	return seen < number(o.GetResourceVersion()), nil
}
