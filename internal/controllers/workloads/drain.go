package workloads

import (
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
	fleet "tako.dev/tako/internal/fleet/workload"
)

// The reasons of the condition Drained.
const (
	reasonDraining = "Draining"
	reasonDrained  = "Drained"
)

// leavingTold is how many instances the condition Drained names.
const leavingTold = 3

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
	var names []string
	for in := range w.on[h.name] {
		if there = append(there, in.seen); in.here && !in.seen.Phase.Ended() {
			names = append(names, keyOf(in.o).String())
		}
	}
	if fleet.Drained(h.name, there) {
		return &metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionTrue, Reason: reasonDrained, Message: "nothing of any instance runs there"}
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d instances are there still: %s", len(names), strings.Join(names[:min(len(names), leavingTold)], ", "))
	if more := len(names) - leavingTold; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return &metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse, Reason: reasonDraining, Message: text}
}

func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
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
				c.metrics.failures.Inc()
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
