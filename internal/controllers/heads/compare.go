package heads

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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

// compare finds what differs now and still does when it can be no longer on its way.
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
	stored, err := s.list(ctx, at)
	if err != nil {
		return err
	}
	suspects := differing(stored, s.seen(), at)
	if len(suspects) == 0 {
		return nil
	}
	select {
	case <-time.After(h.lag):
	case <-ctx.Done():
		return ctx.Err()
	}
	for name := range differing(stored, s.seen(), at) {
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

// comparePage is how many objects are read at once: what is in memory of a whole fleet is their versions.
const comparePage = 500

// list reads the versions of all objects, by name, as they were at a revision of the store. That comes from etcd itself, as the server's cache
// keeps no states of the past (apiserver.spareMemory): what etcd's watch has not told the cache, the cache does not know, and takes itself
// for fresh all the same.
func (s *source) list(ctx context.Context, at uint64) (versions map[string]uint64, err error) {
	versions = map[string]uint64{}
	page := metav1.ListOptions{Limit: comparePage, ResourceVersion: strconv.FormatUint(at, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	for {
		list, err := s.versions.ListWithContext(ctx, page)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err == nil {
				versions[m.GetName()] = number(m.GetResourceVersion())
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		described, err := meta.ListAccessor(list)
		if err != nil || described.GetContinue() == "" {
			return versions, err
		}
		page = metav1.ListOptions{Limit: comparePage, Continue: described.GetContinue()}
	}
}

// differing are the names of what the view has in an older version than was stored at a moment, not at all, or still. What it has in a
// newer one came later.
func differing(stored, seen map[string]uint64, at uint64) map[string]bool {
	differ := map[string]bool{}
	for name, version := range stored {
		if seen[name] < version {
			differ[name] = true
		}
	}
	for name, version := range seen {
		if _, there := stored[name]; !there && version <= at {
			differ[name] = true
		}
	}
	return differ
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
