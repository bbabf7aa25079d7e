// Package statuses is how the status of a workload is stored: what decisions count from with microseconds, what is for people with seconds. It does no I/O.
package statuses

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/jobs"
	"tako.dev/tako/internal/fleet/rollout/pace"
	fleet "tako.dev/tako/internal/fleet/workload"
	"tako.dev/tako/internal/reason"
)

// Seconds is a time as it is stored for people.
func Seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.Truncate(time.Second))
}

// SecondsOrNone is the same where it may be left out.
func SecondsOrNone(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := Seconds(t)
	return &at
}

// Micro is a time that something is counted from; nil: there is none.
func Micro(t time.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewMicroTime(t.Truncate(time.Microsecond))
	return &at
}

// FromMicro reads one; zero: there is none.
func FromMicro(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// FromSeconds reads a time that may be left out; zero: it is.
func FromSeconds(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// CodeText is a code as it is stored; none is empty.
func CodeText(c reason.Code) string {
	if c == 0 {
		return ""
	}
	return c.String()
}

// CodeOf reads it back. One that a later version knows is an unknown one: it is told, and decides nothing.
func CodeOf(text string) reason.Code {
	if text == "" {
		return 0
	}
	c, err := reason.ParseCode(text)
	if err != nil {
		return reason.UnknownCode
	}
	return c
}

// Encode writes what a decision says into a status, and leaves what is not of it as it is.
func Encode(s *fleet.Status, into *v1alpha1.WorkloadStatus) {
	into.ObservedGeneration = s.ObservedGeneration
	into.Phase, into.Since, into.Message = string(s.Phase), Seconds(s.Since), s.Why
	c := &s.Counts
	into.Wanted, into.Replicas, into.UpdatedReplicas, into.PendingReplicas = int32(s.Wanted), int32(c.Live), int32(c.Updated), int32(c.Pending)
	into.ReadyReplicas, into.AvailableReplicas, into.UnreachableReplicas = int32(c.Ready), int32(c.Available), int32(c.Unreachable)
	into.UnheardReplicas, into.TerminatingReplicas, into.AbandonedReplicas = int32(c.Unheard), int32(c.Terminating), int32(c.Abandoned)
	into.Rollout = encodeRollout(&s.Rollout)
	into.Stable, into.StableAt = s.Stable.Of, SecondsOrNone(s.Stable.At)
	into.Failed = nil
	for i := range s.Failed {
		into.Failed = append(into.Failed, encodeFailed(&s.Failed[i]))
	}
	into.Collisions, into.Budget = int32(s.Collisions), s.Budget
	into.Taken = nil
	for _, t := range s.Taken {
		into.Taken = append(into.Taken, v1alpha1.TakenInstance{UID: types.UID(t.UID), Code: CodeText(t.Why)})
	}
	into.BackoffFailed, into.BackoffUntil = int32(s.Backoff.Failed), Micro(s.Backoff.Until)
	into.Data = encodeHomes(s.Homes)
	into.Culprits, into.Leaving = encodeCulprits(s.Culprits), encodeCulprits(s.Leaving)
}

// encodeHomes is where data is, by node: so the names of nodes are stored once, whose instances are many.
func encodeHomes(homes []fleet.Home) []v1alpha1.WorkloadHome {
	var all []v1alpha1.WorkloadHome
	at := map[string]int{}
	for _, h := range homes {
		i, known := at[h.Node]
		if !known {
			i = len(all)
			at[h.Node], all = i, append(all, v1alpha1.WorkloadHome{Node: h.Node})
		}
		all[i].Slots = append(all[i].Slots, int32(h.Slot))
		if h.Spare {
			all[i].Spare = append(all[i].Spare, int32(h.Slot))
		}
	}
	return all
}

func decodeHomes(all []v1alpha1.WorkloadHome) []fleet.Home {
	var homes []fleet.Home
	for i := range all {
		for _, slot := range all[i].Slots {
			homes = append(homes, fleet.Home{Slot: int(slot), Node: all[i].Node, Spare: slices.Contains(all[i].Spare, slot)})
		}
	}
	slices.SortFunc(homes, func(a, b fleet.Home) int { return cmp.Compare(a.Slot, b.Slot) })
	return homes
}

func encodeRollout(r *fleet.Rollout) *v1alpha1.WorkloadRollout {
	if r.Target == "" {
		return nil
	}
	to := &v1alpha1.WorkloadRollout{
		Target: r.Target, Goal: r.Goal, Over: r.Over, Step: int32(r.Step), Held: Micro(r.Held), Passed: Micro(r.Passed), Ended: Micro(r.Ended), Clock: Micro(r.Clock),
		Scaled: Micro(r.Scaled), BestAvailable: int32(r.Best.Available), BestOld: int32(r.Best.Old), Failures: int32(r.Failures),
	}
	if r.Halt != nil {
		halt := encodeFailed(r.Halt)
		to.Halt = &halt
	}
	for _, uid := range r.Counted {
		to.Counted = append(to.Counted, types.UID(uid))
	}
	return to
}

func encodeFailed(f *fleet.FailedRevision) v1alpha1.FailedRevision {
	return v1alpha1.FailedRevision{Revision: f.Revision, Code: CodeText(f.Code), Message: f.Why, At: Seconds(f.At)}
}

func encodeCulprits(all []fleet.Culprit) []v1alpha1.WorkloadCulprit {
	var to []v1alpha1.WorkloadCulprit
	for i := range all {
		c := &all[i]
		to = append(to, v1alpha1.WorkloadCulprit{Instance: c.Instance, Node: c.Node, Code: CodeText(c.Code), Message: c.Why, Since: SecondsOrNone(c.Since)})
	}
	return to
}

// Decode is what the last decision said, as it is stored.
func Decode(s *v1alpha1.WorkloadStatus) fleet.Status {
	was := fleet.Status{
		ObservedGeneration: s.ObservedGeneration, Phase: pace.Phase(s.Phase), Since: s.Since.Time, Why: s.Message, Wanted: int(s.Wanted), Collisions: int(s.Collisions),
		Stable: pace.Proven[string]{Of: s.Stable, At: FromSeconds(s.StableAt)}, Budget: s.Budget,
		Backoff: fleet.Backoff{Failed: int(s.BackoffFailed), Until: FromMicro(s.BackoffUntil)},
		Counts: fleet.Counts{
			Live: int(s.Replicas), Updated: int(s.UpdatedReplicas), Pending: int(s.PendingReplicas), Ready: int(s.ReadyReplicas), Available: int(s.AvailableReplicas),
			Unreachable: int(s.UnreachableReplicas), Unheard: int(s.UnheardReplicas), Terminating: int(s.TerminatingReplicas), Abandoned: int(s.AbandonedReplicas),
		},
		Culprits: decodeCulprits(s.Culprits), Leaving: decodeCulprits(s.Leaving),
	}
	for i := range s.Failed {
		was.Failed = append(was.Failed, decodeFailed(&s.Failed[i]))
	}
	was.Homes = decodeHomes(s.Data)
	for _, t := range s.Taken {
		was.Taken = append(was.Taken, fleet.Taken{UID: string(t.UID), Why: CodeOf(t.Code)})
	}
	if r := s.Rollout; r != nil {
		was.Rollout = fleet.Rollout{
			Target: r.Target, Goal: r.Goal, Over: r.Over, Step: int(r.Step), Held: FromMicro(r.Held), Passed: FromMicro(r.Passed), Ended: FromMicro(r.Ended), Clock: FromMicro(r.Clock),
			Scaled: FromMicro(r.Scaled), Best: fleet.Progress{Available: int(r.BestAvailable), Old: int(r.BestOld)}, Failures: int(r.Failures),
		}
		if r.Halt != nil {
			halt := decodeFailed(r.Halt)
			was.Rollout.Halt = &halt
		}
		for _, uid := range r.Counted {
			was.Rollout.Counted = append(was.Rollout.Counted, string(uid))
		}
	}
	return was
}

func decodeFailed(f *v1alpha1.FailedRevision) fleet.FailedRevision {
	return fleet.FailedRevision{Revision: f.Revision, Code: CodeOf(f.Code), Why: f.Message, At: f.At.Time}
}

func decodeCulprits(all []v1alpha1.WorkloadCulprit) []fleet.Culprit {
	var to []fleet.Culprit
	for i := range all {
		c := &all[i]
		to = append(to, fleet.Culprit{Instance: c.Instance, Node: c.Node, Code: CodeOf(c.Code), Why: c.Message, Since: FromSeconds(c.Since)})
	}
	return to
}

// EncodeJob is how a job is stored.
func EncodeJob(s *jobs.RunStatus) *v1alpha1.JobStatus {
	to := &v1alpha1.JobStatus{
		Succeeded: int32(s.Succeeded), Failed: int32(s.Failed), FailedInARow: int32(s.InARow), LastFailure: Micro(s.LastFailure), Result: string(s.Result), Over: Micro(s.Over),
	}
	for _, uid := range s.Counted {
		to.Counted = append(to.Counted, types.UID(uid))
	}
	return to
}

// DecodeJob is what was stored of a job; nothing of one that has just begun.
func DecodeJob(s *v1alpha1.JobStatus) jobs.RunStatus {
	if s == nil {
		return jobs.RunStatus{}
	}
	was := jobs.RunStatus{
		Succeeded: int(s.Succeeded), Failed: int(s.Failed), InARow: int(s.FailedInARow), LastFailure: FromMicro(s.LastFailure), Result: jobs.Result(s.Result), Over: FromMicro(s.Over),
	}
	for _, uid := range s.Counted {
		was.Counted = append(was.Counted, string(uid))
	}
	return was
}

// EncodeSchedule is how a schedule is stored, with its runs that are not over.
func EncodeSchedule(s *jobs.ScheduleStatus, next time.Time, active []string) *v1alpha1.ScheduleStatus {
	return &v1alpha1.ScheduleStatus{
		Last: SecondsOrNone(s.Last), Cron: s.Cron, TimeZone: s.TimeZone, Suspended: s.Suspended, Next: SecondsOrNone(next), Active: active,
	}
}

// DecodeSchedule is what was stored of a schedule.
func DecodeSchedule(s *v1alpha1.ScheduleStatus) jobs.ScheduleStatus {
	if s == nil {
		return jobs.ScheduleStatus{}
	}
	return jobs.ScheduleStatus{Last: FromSeconds(s.Last), Cron: s.Cron, TimeZone: s.TimeZone, Suspended: s.Suspended}
}
