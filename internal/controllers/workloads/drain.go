package workloads

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/node"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// The reasons of the condition Drained. One that cannot go on without somebody has the code of DisruptionStuck.
const (
	reasonDraining = "Draining"
	reasonDrained  = "Drained"
)

// leavingTold is how many instances the condition Drained names.
const leavingTold = 3

// unsettle has it told anew how far the drains are that a workload has instances under.
func (w *world) unsettle(of *workload) {
	for _, in := range of.instances {
		if h := w.hosts[in.o.Spec.Node]; in.here && h.drain != nil {
			w.unsettled[h.name] = true
		}
	}
}

// settle writes how far nodes are drained.
func (c *Workloads) settle(ctx context.Context, w *world) {
	var all []job
	for _, name := range slices.Sorted(maps.Keys(w.unsettled)) {
		h := w.hosts[name]
		if h == nil {
			continue
		}
		if want := w.drainedOf(h); !sameCondition(want, h.drained) {
			all = append(all, c.drainedJob(w, h, want))
		}
	}
	clear(w.unsettled)
	w.settleAt = time.Time{}
	c.write(ctx, all)
}

// drainedOf is what is to be told of a node; nil: nothing.
func (w *world) drainedOf(h *host) *metav1.Condition {
	if h.drain == nil {
		return nil
	}
	var there []fleet.Instance
	var left []*instance
	for in := range w.on[h.name] {
		if there = append(there, in.seen); in.here && !in.seen.Phase.Ended() {
			left = append(left, in)
		}
	}
	c := &metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionTrue, Reason: reasonDrained, ObservedGeneration: h.generation, LastTransitionTime: statuses.Seconds(w.now), Message: "nothing of any instance runs there"}
	if fleet.Drained(h.name, there) {
		return c
	}
	slices.SortFunc(left, func(a, b *instance) int { return cmp.Compare(keyOf(a.o).String(), keyOf(b.o).String()) })
	c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionFalse, reasonDraining, statuses.Seconds(h.drainAt)
	var stuck, others []string
	for _, in := range left {
		words, isStuck := w.whyThere(h, in)
		words = keyOf(in.o).String() + " " + words
		if isStuck {
			stuck = append(stuck, words)
		} else {
			others = append(others, words)
		}
	}
	told := slices.Concat(stuck, others)
	c.Message = fmt.Sprintf("%d instances are there still: %s", len(told), strings.Join(told[:min(len(told), leavingTold)], "; "))
	if more := len(told) - leavingTold; more > 0 {
		c.Message += fmt.Sprintf("; and %d more", more)
	}
	switch deadline := statuses.FromSeconds(h.drain.Deadline); {
	case !deadline.IsZero():
		c.Message += "; at " + deadline.UTC().Format(time.RFC3339) + " what is left is ended, whatever budgets say"
	case len(stuck) > 0:
		c.Reason = reason.DisruptionStuck.String()
	}
	c.Message = clip(c.Message)
	return c
}

// whyThere says why an instance is still on a node that is drained, and whether that stays so until somebody changes something.
func (w *world) whyThere(h *host, in *instance) (words string, stuck bool) {
	if stop := in.o.Spec.Stop; stop != nil {
		words = "is ending since " + stop.Since.UTC().Format(time.RFC3339)
		if h.seen.Presence == node.Gone {
			words += ", and nobody hears the node"
		}
		return words, false
	}
	if h.seen.Presence != node.Here {
		return "is not asked to end, because nobody hears the node", false
	}
	of := in.of
	s := of.told
	if s == nil && of.o != nil {
		s = &of.o.Status
	}
	if s == nil {
		return "has no workload any more", false
	}
	at := slices.IndexFunc(s.Leaving, func(c v1alpha1.WorkloadCulprit) bool { return c.Instance == in.o.Name })
	switch {
	case at < 0:
		return "is held by the disruption budget of workload " + of.key.Name, false // the status names some, and this is none of them
	case len(of.pending) > 0:
		if e := of.unplaced(w); e != nil {
			return fmt.Sprintf("is held by the disruption budget of workload %s, and what would stand in fits on no node: %s", of.key.Name, e), true
		}
	}
	c := &s.Leaving[at]
	words = fmt.Sprintf("is held by workload %s since %s (%s): %s", of.key.Name, h.drainAt.UTC().Format(time.RFC3339), c.Code, c.Message)
	return words, c.Code == reason.DisruptionStuck.String()
}

func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

// drainedJob writes the condition of a node. The rest of its status is the presence's, and is stored as it is.
func (c *Workloads) drainedJob(w *world, h *host, want *metav1.Condition) job {
	n := &v1alpha1.Node{}
	return job{
		do: func(ctx context.Context) error {
			if err := c.options.Objects.Get(ctx, types.NamespacedName{Name: h.name}, n); err != nil {
				return err
			}
			if n.UID != h.uid {
				return nil // it was made anew, and is told
			}
			if want == nil {
				meta.RemoveStatusCondition(&n.Status.Conditions, v1alpha1.ConditionDrained)
			} else {
				meta.SetStatusCondition(&n.Status.Conditions, *want)
			}
			return c.options.Objects.UpdateStatus(ctx, n)
		},
		done: func(err error) {
			if err != nil {
				w.unsettled[h.name], w.settleAt = true, w.now.Add(retryAfter)
				c.metrics.Failures.Inc()
				if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					c.options.Log.Warn("condition of a node is not written", "node", h.name, "err", err)
				}
				return
			}
			was := h.drained
			h.drained = want
			if want != nil && want.Status == metav1.ConditionTrue && (was == nil || was.Status != metav1.ConditionTrue) {
				about := core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNode, Name: h.name, UID: h.uid}
				c.options.Recorder.Tell(about, core.EventTypeNormal, "NodeDrained", want.Message)
			}
		},
	}
}
