package workloads

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// shown is what whoever reads an instance is told of it that stands nowhere. The loop's goroutine writes, any may read.
type shown struct {
	mu  sync.RWMutex // guards what follows
	all map[types.UID]*v1alpha1.InstanceStatus
	// leases are the shortest ones of what is declared, by environment: it is replaced, and never changed.
	leases map[string]time.Duration
}

// Lease is the shortest lease of what is declared in an environment, for which its hosts have to be heard often enough; 0: nothing has one. It may be
// called by any goroutine.
func (c *Workloads) Lease(environment string) time.Duration {
	c.shown.mu.RLock()
	defer c.shown.mu.RUnlock()
	return c.shown.leases[environment]
}

// showLeases has the readers see the leases of what is declared now.
func (c *Workloads) showLeases(w *world) {
	if !w.redeclared {
		return
	}
	w.redeclared = false
	leases := map[string]time.Duration{}
	for key, of := range w.workloads {
		if of.o == nil {
			continue
		}
		lease := fleet.Lease(&of.o.Spec)
		if was := leases[key.Namespace]; lease > 0 && (was == 0 || lease < was) {
			leases[key.Namespace] = lease
		}
	}
	c.shown.mu.Lock()
	defer c.shown.mu.Unlock()
	c.shown.leases = leases
}

// Describe fills into an instance what is known of it and not stored. It replaces fields of the status, and changes nothing that they point to.
// It may be called by any goroutine.
func (c *Workloads) Describe(in *v1alpha1.Instance) {
	c.shown.mu.RLock()
	s := c.shown.all[in.UID]
	c.shown.mu.RUnlock()
	if s == nil {
		return
	}
	stored := in.Status
	in.Status = *s
	in.Status.Usage = c.usageOf(in)
	in.Status.Abandoned, in.Status.Losses = stored.Abandoned, stored.Losses
	if statuses.PhaseOf(stored.Phase).Ended() {
		in.Status.Phase, in.Status.Failure, in.Status.Ended = stored.Phase, stored.Failure, stored.Ended
	}
}

// show has the readers see what has changed.
func (c *Workloads) show(w *world) {
	if len(w.fresh) == 0 {
		return
	}
	c.shown.mu.Lock()
	defer c.shown.mu.Unlock()
	if c.shown.all == nil {
		c.shown.all = map[types.UID]*v1alpha1.InstanceStatus{}
	}
	for in := range w.fresh {
		if w.uids[in.o.UID] == in {
			c.shown.all[in.o.UID] = in.status()
		} else {
			delete(c.shown.all, in.o.UID)
		}
	}
	clear(w.fresh)
}

// status is what is told of an instance.
func (in *instance) status() *v1alpha1.InstanceStatus {
	s := &in.seen
	to := &v1alpha1.InstanceStatus{
		Phase: statuses.PhaseName(s.Phase), Ready: s.Phase == fleet.Running && !s.ReadySince.IsZero(), ReadySince: statuses.SecondsOrNone(s.ReadySince), Attempt: int64(s.Attempt),
		Failure: statuses.EncodeFailure(s.Failure), Requests: in.of.requestsOf(s.Revision).told,
	}
	switch revision := in.o.Spec.Revision; s.Taken {
	case "":
	case declared.HashIn(in.o.Spec.Workload, revision):
		to.Revision = revision
	default:
		to.Revision = in.o.Spec.Workload + "-" + s.Taken
	}
	if s.Phase.Ended() {
		to.Ended = statuses.SecondsOrNone(in.over)
	}
	if r := in.said; r != nil {
		to.Restarts = int32(r.Restarts)
		for _, p := range r.Ports {
			if to.Ports == nil {
				to.Ports = map[string]int32{}
			}
			to.Ports[p.Name] = int32(p.Number)
		}
	}
	if l := in.wish; l != nil {
		to.Leave = &v1alpha1.InstanceLeave{Code: statuses.CodeText(l.Why), Since: metav1.NewTime(l.Since), Force: statuses.SecondsOrNone(l.Force)}
		if l.Why == reason.Preempted {
			to.Leave.For = in.room
		}
	}
	return to
}
