package assignments

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/layers"
)

// job is one object to write. do may run beside others; done is called by the loop's goroutine afterwards.
type job struct {
	do   func(context.Context) error
	done func(error)
}

// write writes what differs from what is stored: in order, because somebody waits for the first of them, which are Assignments.
func write(ctx context.Context, jobs []job) {
	errs := make([]error, len(jobs))
	var group errgroup.Group
	group.SetLimit(writesMax)
	for i, j := range jobs {
		group.Go(func() error {
			call, cancel := context.WithTimeout(ctx, callMax)
			defer cancel()
			errs[i] = j.do(call)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	for i, j := range jobs {
		j.done(errs[i])
	}
}

// assignmentJobs are the Assignments that differ from what they are to be, by name.
func (a *Assignments) assignmentJobs(ctx context.Context, w *world, now time.Time) []job {
	var jobs []job
	names := w.dirtyHosts()
	for _, name := range names {
		w.orders.caughtUp(w.hosts[name]) // with what was decided just now
	}
	w.workloads.compile(ctx, a.options.Layers, names, now)
	for _, name := range names {
		w.workloads.patience.planned(name)
		h := w.hosts[name]
		p := planner{layers: a.options.Layers, host: h, configs: w.configs, now: now, workloads: &w.workloads, orders: w.orders}
		next, err := p.plan(ctx)
		if err != nil {
			a.options.Log.Error("assignment cannot be made", "node", name, "err", err)
			w.wakeHost(h, now.Add(retryAfter))
			continue
		}
		h.dirty = false
		w.wakeHost(h, next.wakeAt)
		a.keepLeft(h.uid, next.left)
		if next.retry {
			w.wakeHost(h, earlier(h.wakeAt, now.Add(retryAfter)))
		}
		if h.assigned != nil && next.is(&h.assigned.Spec, h.assigned.Annotations[sealedFor]) {
			continue
		}
		if w.placed[name] != nil && h.assigned == nil {
			continue // that of an earlier node of this name has to go first, and its end is told
		}
		jobs = append(jobs, a.assignmentJob(w, h, next))
	}
	return jobs
}

// dirtyHosts are the names of those whose Assignments are to be planned, in order. Before something was decided about one, there is nothing
// to plan. Most rounds are about the reports of hosts, after which there is none, and must not cost an order of all names.
func (w *world) dirtyHosts() []string {
	var names []string
	for name := range w.planned {
		switch h := w.hosts[name]; {
		case h == nil || !h.dirty:
			delete(w.planned, name)
		case h.rows != nil: // otherwise nothing was decided about it yet
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *Assignments) assignmentJob(w *world, h *host, next *plan) job {
	o := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	write := a.options.Objects.Create
	if h.assigned != nil {
		o = h.assigned.DeepCopy()
		write = func(ctx context.Context, o runtime.Object) error { return a.options.Objects.Update(ctx, o) }
	}
	o.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNode, Name: h.name, UID: h.uid}}
	delete(o.Annotations, sealedFor)
	if next.sealedFor != "" {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, sealedFor, next.sealedFor)
	}
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == finalizer })
	if next.spec.Own != nil && len(next.spec.Own.Keys) > 0 {
		o.Finalizers = append(o.Finalizers, finalizer)
	}
	o.Spec = next.spec
	return job{
		do: func(ctx context.Context) error {
			// Before what says so is overwritten: a server that dies here finds it again.
			if err := a.expose(ctx, next.leaver); err != nil {
				return err
			}
			return write(ctx, o)
		},
		done: func(err error) {
			if err != nil {
				a.notWritten(w, h, err)
				return
			}
			if h.assigned != nil && o.Spec.FetchWindowSeconds < h.assigned.Spec.FetchWindowSeconds {
				h.placedAt = time.Now() // from now on hosts wait no longer, and none of them is late for having waited
			}
			switch {
			case h.assigned == nil || !h.assigned.Spec.SameConfigs(&o.Spec):
				h.placedAt, h.since = time.Now(), 0
				w.touchConfigs(h)
			case h.since == 0:
				h.since = versionOf(h.assigned)
			}
			w.placed[h.name], h.assigned = o, o
			a.keepHeads(w, []string{h.name})
		},
	}
}

// notWritten has a host planned anew. Where somebody else has written, the watch tells what.
func (a *Assignments) notWritten(w *world, h *host, err error) {
	w.wakeHost(h, earlier(h.wakeAt, time.Now().Add(retryAfter)))
	w.again = true
	w.touchConfigs(h)
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		a.options.Log.Warn("assignment is not written", "node", h.name, "err", err)
	}
}

// keepHeads notes what the Assignments of these names are signed as.
func (a *Assignments) keepHeads(w *world, names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		p := w.placed[name]
		if p == nil {
			continue
		}
		if was, known := a.heads[p.Spec.NodeUID]; known && was.Version == int64(versionOf(p)) {
			continue // it was written here, and is told again
		}
		list, err := layers.ListOf(p.Spec.Layers, ownRoot(p.Spec.Own))
		if err != nil {
			continue // nobody can sign it either
		}
		to, err := root(list)
		if err != nil {
			continue
		}
		head := v1alpha1.AppliedHead{Version: int64(versionOf(p)), Root: "sha256:" + to.String()}
		switch was, known := a.heads[p.Spec.NodeUID]; {
		case known && !w.enforces(name, was.Version):
			head.Since = was.Since // it was behind before, and is still: however fast states come, that is one time
		case known || len(p.Spec.Layers) == 0:
			now := metav1.Now()
			head.Since = &now
		default: // it was there before this server: since its newest layer at the earliest
			newest := slices.MaxFunc(p.Spec.Layers, func(a, b v1alpha1.AssignedLayer) int { return a.Since.Compare(b.Since.Time) })
			head.Since = &newest.Since
		}
		a.heads[p.Spec.NodeUID] = head
	}
	if len(a.heads) > 2*len(w.placed)+100 {
		a.forgetHeadsLocked(w)
	}
}

// enforces says whether a host has told that it enforces a version.
func (w *world) enforces(name string, version int64) bool {
	h := w.hosts[name]
	return h != nil && h.seen.Report != nil && h.seen.Report.Enforced.Version == uint64(version)
}

// forgetHeadsLocked lets those go whose Assignments have gone.
func (a *Assignments) forgetHeadsLocked(w *world) {
	there := make(map[types.UID]bool, len(w.placed))
	for _, p := range w.placed {
		there[p.Spec.NodeUID] = true
	}
	maps.DeleteFunc(a.heads, func(node types.UID, _ v1alpha1.AppliedHead) bool { return !there[node] })
	maps.DeleteFunc(a.left, func(node types.UID, _ map[types.UID]error) bool { return !there[node] })
}
