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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/controllers/statuses"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// countsEvery is how often the status of a workload is written because other numbers of instances are how far: as in package assignments.
const countsEvery = 500 * time.Millisecond

// statusesMax is how many of those are written in each countsEvery, of all workloads together, so that any number of instances that come and go
// leave the store to what is decided: ours, about a fifth of what a store on a disk takes.
const statusesMax = 8 * writesMax

// telling is how much may be told yet.
type telling struct {
	since time.Time // the countsEvery that is counted
	told  int       // statuses written in it
}

// left is how many statuses may be written now.
func (t *telling) left(now time.Time) int {
	if !now.Before(t.since.Add(countsEvery)) || now.Before(t.since) { // a clock that was set back is no reason to be silent
		t.since, t.told = now, 0
	}
	return statusesMax - t.told
}

// mayAt is when a status may be written that may be at some time.
func (t *telling) mayAt(at time.Time) time.Time {
	if next := t.since.Add(countsEvery); t.told >= statusesMax && at.Before(next) {
		return next
	}
	return at
}

// letter is what is to be told about a workload.
type letter struct {
	mayWrite time.Time                // before, only what is urgent is
	written  time.Time                // when it was last
	told     *v1alpha1.WorkloadStatus // as it was decided last; nil: as it is stored
}

// storeStale writes the statuses that differ in what is only told, not too often: first those that were written longest ago.
func (c *Workloads) storeStale(ctx context.Context, w *world, now time.Time) {
	var all []job
	left := w.telling.left(now)
	if left <= 0 {
		return
	}
	for _, of := range slices.SortedFunc(maps.Keys(w.stale), func(a, b *workload) int {
		return cmp.Or(a.written.Compare(b.written), cmp.Compare(a.key.String(), b.key.String()))
	}) {
		if len(all) >= left {
			break
		}
		if w.dirty[of] || now.Before(of.mayWrite) {
			continue // what is decided next is newer, and comes at once
		}
		status := of.newest(w)
		if sameStatus(&status, &of.o.Status) {
			delete(w.stale, of)
			continue
		}
		if differsByMeasures(&status, &of.o.Status) && now.Before(of.written.Add(measuredEvery)) {
			delete(w.stale, of) // what is measured next has it told, in time
			continue
		}
		all = append(all, c.statusJob(w, of, status, func(err error) {
			if err != nil {
				of.mayWrite = w.now.Add(retryAfter)
				c.failed(w, of, "status", err)
			}
		}))
	}
	w.telling.told += len(all)
	c.write(ctx, all)
}

// newest is the status as the last decision has left it, with what the scheduler has found since.
func (of *workload) newest(w *world) v1alpha1.WorkloadStatus {
	s := *of.o.Status.DeepCopy()
	if of.told != nil {
		conditions := s.Conditions
		s = *of.told.DeepCopy()
		s.Conditions = conditions
	}
	of.explain(&s, w)
	of.conclude(&s, w.now)
	return s
}

// verdict is how a workload stands, for programs: one of the conditions is True.
type verdict struct{ condition, reason, message string }

// conclude sets Ready, Reconciling and Stalled.
func (of *workload) conclude(s *v1alpha1.WorkloadStatus, now time.Time) {
	v := of.verdict(s, now)
	s.Conditions = slices.Clone(s.Conditions)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message, ObservedGeneration: of.o.Generation, LastTransitionTime: statuses.Seconds(now),
	}
	if v.condition == v1alpha1.ConditionReady {
		ready.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if v.condition != kind {
			meta.RemoveStatusCondition(&s.Conditions, kind)
			continue
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: v.reason, Message: v.message, ObservedGeneration: of.o.Generation, LastTransitionTime: statuses.Seconds(now),
		})
	}
}

func (of *workload) verdict(s *v1alpha1.WorkloadStatus, now time.Time) verdict {
	if of.o.Spec.Schedule != nil {
		return verdict{v1alpha1.ConditionReady, "Scheduled", s.Message}
	}
	if s.Job != nil && s.Job.Result != "" {
		return jobVerdict(s.Job)
	}
	words := wordsOf(s)
	phase := pace.Phase(s.Phase)
	short := s.AvailableReplicas < s.Wanted || s.PendingReplicas > 0
	switch {
	case of.o.Spec.Mode == declared.RunToCompletion:
		return verdict{v1alpha1.ConditionReconciling, "Running", words}
	case phase == pace.Empty:
		return verdict{v1alpha1.ConditionReady, s.Phase, "no instance is wanted"}
	case phase == pace.Complete && !short:
		return verdict{v1alpha1.ConditionReady, s.Phase, words}
	case phase == pace.Complete:
		return verdict{v1alpha1.ConditionReconciling, "Unavailable", words}
	case phase == pace.Halted, phase == pace.Paused, phase == pace.RolledBack, phase == pace.Waiting && of.awaitsApproval(s.Rollout, now):
		return verdict{v1alpha1.ConditionStalled, s.Phase, words}
	}
	return verdict{v1alpha1.ConditionReconciling, cmp.Or(s.Phase, string(pace.Waiting)), words}
}

// awaitsApproval: nothing goes on until people say so. A pause that is not over yet is no such case: it goes on by itself, or is looked at by then.
func (of *workload) awaitsApproval(r *v1alpha1.WorkloadRollout, now time.Time) bool {
	declare := &of.o.Spec.Rollout
	if r == nil || r.Held == nil {
		return false
	}
	if a := approvalOf(of.o); a.Revision == r.Goal && a.Step >= int(r.Step) {
		return false // what it waits for now is a gate
	}
	if at := int(r.Step); declare.Strategy == declared.Canary && at < len(declare.Steps) {
		step := &declare.Steps[at]
		return step.PromotionOrDefault(declare) == declared.ManualPromotion && !now.Before(r.Held.Add(step.PauseOrDefault()))
	}
	return declare.PromotionOrDefault() == declared.ManualPromotion
}

func jobVerdict(j *v1alpha1.JobStatus) verdict {
	words := fmt.Sprintf("%d instances have ended well, %d badly", j.Succeeded, j.Failed)
	switch {
	case j.Over == nil:
		return verdict{v1alpha1.ConditionReconciling, "Ending", words + "; what still runs is ending"}
	case j.Result == string(jobs.Complete):
		return verdict{v1alpha1.ConditionReady, j.Result, words}
	}
	return verdict{v1alpha1.ConditionStalled, j.Result, words}
}

// culpritsTold is how many instances a condition names: the status has the others.
const culpritsTold = 3

// wordsOf says how a workload stands.
func wordsOf(s *v1alpha1.WorkloadStatus) string {
	text := fmt.Sprintf("%d of %d instances are available", s.AvailableReplicas, s.Wanted)
	if r := s.Rollout; r != nil && r.Goal != "" && pace.Phase(s.Phase) != pace.Complete {
		text += fmt.Sprintf(", %d have %s", s.UpdatedReplicas, r.Goal)
	}
	if s.Message != "" {
		text += "; " + s.Message
	}
	if s.Pending != nil && s.PendingReplicas > 0 {
		text += fmt.Sprintf("; %d have no node: %s", s.PendingReplicas, s.Pending.Message)
	}
	for i, c := range s.Culprits {
		if i == culpritsTold {
			text += fmt.Sprintf("; and %d more", len(s.Culprits)-i)
			break
		}
		text += "; " + strings.TrimSpace("instance "+c.Instance+": "+c.Message)
		if c.Code != "" {
			text += " (" + c.Code + ")"
		}
	}
	return clip(text)
}

// wordsMax bounds, in bytes, the message of a condition: the API has 32,768, and nobody reads more than a screen.
const wordsMax = 2048

func clip(text string) string {
	if len(text) <= wordsMax {
		return text
	}
	return strings.ToValidUTF8(text[:wordsMax-len("…")], "") + "…"
}

// tell makes the Events about what has become of a workload since its status was written last.
func (c *Workloads) tell(of *workload, was *v1alpha1.WorkloadStatus) {
	is := &of.o.Status
	say := func(kind, why, words string) { c.options.Recorder.Tell(of.reference(), kind, why, words) }
	words := ""
	if ready := meta.FindStatusCondition(is.Conditions, v1alpha1.ConditionReady); ready != nil {
		words = ready.Message
	}
	target := func(s *v1alpha1.WorkloadStatus) string {
		if s.Rollout == nil {
			return ""
		}
		return s.Rollout.Target
	}
	if is.Phase != was.Phase || target(is) != target(was) {
		switch phase := pace.Phase(is.Phase); {
		case of.o.Spec.Mode == declared.RunToCompletion:
		case phase == pace.Halted:
			say(core.EventTypeWarning, "RolloutHalted", words)
		case phase == pace.RollingBack:
			say(core.EventTypeWarning, "RollingBack", words)
		case phase == pace.RolledBack:
			say(core.EventTypeWarning, "RolledBack", words)
		case phase == pace.Complete:
			say(core.EventTypeNormal, "RolloutComplete", words)
		case phase == pace.Paused:
			say(core.EventTypeNormal, "RolloutPaused", words)
		case target(is) != target(was) && target(was) != "":
			say(core.EventTypeNormal, "RolloutStarted", words)
		}
	}
	switch {
	case is.Pending != nil && was.Pending == nil:
		say(core.EventTypeWarning, "InstancesPending", is.Pending.Message)
	case is.Pending == nil && was.Pending != nil && is.PendingReplicas == 0:
		say(core.EventTypeNormal, "InstancesPlaced", "all instances have a node")
	}
	if is.AbandonedReplicas > was.AbandonedReplicas {
		say(core.EventTypeWarning, "InstancesLost", fmt.Sprintf("%d instances are given up, because their nodes are not heard, and others stand in for them", is.AbandonedReplicas))
	}
	c.tellScale(of, was.Scale)
	if is.Job != nil && is.Job.Result != "" && (was.Job == nil || was.Job.Result == "") {
		kind, why := core.EventTypeWarning, "JobFailed"
		if is.Job.Result == string(jobs.Complete) {
			kind, why = core.EventTypeNormal, "JobComplete"
		}
		say(kind, why, is.Job.Result+": "+words)
	}
}

// tellDisplaced makes the Event about an instance that is to make room.
func (c *Workloads) tellDisplaced(in *instance, room *group) {
	if in.of.o == nil {
		return
	}
	whom := "others"
	if room != nil {
		whom = room.of.key.String()
	}
	c.options.Recorder.Tell(in.of.reference(), core.EventTypeWarning, "InstancePreempted", fmt.Sprintf("instance %s makes room on %s for %s", in.o.Name, in.o.Spec.Node, whom))
}

func (of *workload) reference() core.ObjectReference {
	return core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindWorkload, Namespace: of.key.Namespace, Name: of.key.Name, UID: of.o.UID}
}
