package assignments

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/assign"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/reason"
)

// The reasons in conditions that are no phase of a rollout and no code.
const (
	reasonNoNodes  = "NoNodes"  // Ready: it selects none
	reasonConflict = "Conflict" // with another config
)

// wasOf is how a rollout stood, as it is stored.
func wasOf(s *v1alpha1.RolloutStatus) rollout.Status {
	if s == nil {
		return rollout.Status{}
	}
	was := rollout.Status{
		Phase: rollout.Phase(s.Phase), Target: rollout.Target{Revision: s.Target, Priority: int(s.TargetPriority), Root: s.TargetRoot}, Since: s.Since.Time,
		Proven: rollout.Target{Revision: s.Proven, Priority: int(s.ProvenPriority), Root: s.ProvenRoot},
	}
	if s.ProvenAt != nil {
		was.ProvenAt = s.ProvenAt.Time
	}
	was.Goal = was.Target
	if p := s.Progress; p != nil {
		was.Waves, was.Passed, was.First, was.Held = p.WavesID, int(p.Waves), timeOf(p.WorkingSince), timeOf(p.HeldSince)
	}
	if f := s.Failure; f != nil {
		was.Failed = rollout.Failure{Of: rollout.Target{Revision: f.Revision, Priority: int(f.Priority), Root: f.Root}, Generation: f.Generation, At: f.At.Time, Why: f.Message}
		if f.Goal != "" {
			was.Goal = was.Proven
		}
	}
	return was
}

// statusOf is how a rollout stands, as it is stored.
func statusOf(s *rollout.Status) *v1alpha1.RolloutStatus {
	to := &v1alpha1.RolloutStatus{
		Phase: string(s.Phase), Target: s.Target.Revision, TargetPriority: int32(s.Target.Priority), TargetRoot: s.Target.Root, Since: stored(s.Since),
		Proven: s.Proven.Revision, ProvenPriority: int32(s.Proven.Priority), ProvenRoot: s.Proven.Root,
		Selected: int32(s.Counts.Selected), Done: int32(s.Counts.Done), OnTheWay: int32(s.Counts.OnTheWay), Failed: int32(s.Counts.Failed),
		Silent: int32(s.Counts.Silent), Unheard: int32(s.Counts.Unheard), Refused: int32(s.Counts.Refused), Left: int32(s.Counts.Left), Message: s.Why,
	}
	if !s.ProvenAt.IsZero() {
		at := stored(s.ProvenAt)
		to.ProvenAt = &at
	}
	if s.Passed > 0 || !s.First.IsZero() || !s.Held.IsZero() {
		to.Progress = &v1alpha1.RolloutProgress{WavesID: s.Waves, Waves: int32(s.Passed), WorkingSince: momentOf(s.First), HeldSince: momentOf(s.Held)}
	}
	if f := &s.Failed; f.Of != (rollout.Target{}) {
		to.Failure = &v1alpha1.RolloutFailure{
			Revision: f.Of.Revision, Priority: int32(f.Of.Priority), Root: f.Of.Root, Generation: f.Generation, At: stored(f.At), Message: f.Why,
		}
		if s.Goal != s.Target {
			to.Failure.Goal = s.Goal.Revision
		}
	}
	for _, c := range s.Culprits {
		culprit := v1alpha1.RolloutCulprit{Node: c.Node, Message: c.Why}
		if c.Code != 0 {
			culprit.Code = c.Code.String()
		}
		if !c.Since.IsZero() {
			since := stored(c.Since)
			culprit.Since = &since
		}
		to.Culprits = append(to.Culprits, culprit)
	}
	return to
}

// stored is a time as it is stored: in seconds.
func stored(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// momentOf is a time as it is stored where there may be none.
func momentOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := stored(t)
	return &at
}

// timeOf is a stored time; the zero time where there is none.
func timeOf(at *metav1.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.Time
}

// conflictsOf is what a config is told about others.
func conflictsOf(told *assign.Told) []v1alpha1.ConfigConflict {
	var all []v1alpha1.ConfigConflict
	for _, c := range told.Conflicts {
		x := v1alpha1.ConfigConflict{
			Config: c.Other, Claims: int32(c.Claims), Field: c.Difference.Field, Value: c.Difference.Value, OtherValue: c.Difference.OtherValue,
			Kept: c.InPlace, Nodes: slices.Clone(c.Places.Nodes), NodeCount: int32(c.Places.Count), Message: c.String(),
		}
		if c.Claims > 0 {
			x.Claim = c.Claim.String()
		}
		all = append(all, x)
	}
	return all
}

// statusOn is the status that a config is to have. What others write in it is taken over from what is stored.
func (c *config) statusOn(at v1alpha1.NodeConfigStatus) v1alpha1.NodeConfigStatus {
	revised := meta.FindStatusCondition(c.status.Conditions, v1alpha1.ConditionRevised)
	if revised == nil || revised.ObservedGeneration != c.generation {
		return at // the controller of revisions has not looked at this generation yet
	}
	at.ObservedGeneration = c.generation
	at.Rollout = statusOf(&c.was)
	if c.fault != nil {
		at.Rollout.Message = c.fault.Error()
	}
	at.Conflicts = conflictsOf(&c.told)
	at.Conditions = slices.Clone(at.Conditions)
	for _, said := range c.conditions(revised) {
		if said.Status == "" {
			meta.RemoveStatusCondition(&at.Conditions, said.Type)
			continue
		}
		said.ObservedGeneration = c.generation
		meta.SetStatusCondition(&at.Conditions, said)
	}
	return at
}

// verdict is how a config stands, for programs: one of the conditions is True.
type verdict struct{ condition, reason, message string }

// conditions are Ready, Reconciling, Stalled and Conflict; those without a status are to be left out.
func (c *config) conditions(revised *metav1.Condition) []metav1.Condition {
	v := c.verdict(revised)
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v.reason, Message: v.message}
	if v.condition == v1alpha1.ConditionReady {
		ready.Status = metav1.ConditionTrue
	}
	all := []metav1.Condition{ready}
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		is := metav1.Condition{Type: kind}
		if v.condition == kind {
			is.Status, is.Reason, is.Message = metav1.ConditionTrue, v.reason, v.message
		}
		all = append(all, is)
	}
	conflict := metav1.Condition{Type: v1alpha1.ConditionConflict}
	if len(c.told.Conflicts) > 0 {
		conflict.Status, conflict.Reason, conflict.Message = metav1.ConditionTrue, reasonConflict, c.conflictText()
	}
	return append(all, conflict)
}

func (c *config) verdict(revised *metav1.Condition) verdict {
	s := &c.was
	switch {
	case revised.Status == metav1.ConditionFalse:
		return verdict{v1alpha1.ConditionStalled, revised.Reason, revised.Message}
	case revised.Status != metav1.ConditionTrue:
		return verdict{v1alpha1.ConditionReconciling, revised.Reason, revised.Message}
	case c.fault != nil && lasting(c.fault):
		return verdict{v1alpha1.ConditionStalled, reason.Of(c.fault).Code.String(), c.fault.Error()}
	case c.fault != nil:
		return verdict{v1alpha1.ConditionReconciling, reason.Of(c.fault).Code.String(), c.fault.Error()}
	}
	words := c.words()
	switch s.Phase {
	case rollout.Complete:
		return verdict{v1alpha1.ConditionReady, string(s.Phase), words}
	case rollout.Empty:
		return verdict{v1alpha1.ConditionReady, reasonNoNodes, "it selects no node that a host has joined as"}
	case rollout.Halted, rollout.Paused, rollout.RolledBack:
		return verdict{v1alpha1.ConditionStalled, string(s.Phase), words}
	case rollout.Waiting:
		if c.keptOut() {
			return verdict{v1alpha1.ConditionStalled, reasonConflict, c.conflictText()}
		}
	}
	return verdict{v1alpha1.ConditionReconciling, string(s.Phase), words}
}

// keptOut: another config is in the way and is to stay there, and nothing else is waited for.
func (c *config) keptOut() bool {
	n := c.was.Counts
	return c.blocked && n.Refused > 0 && n.OnTheWay+n.Silent+n.Unheard+n.Failed == 0
}

// words say how a rollout stands.
func (c *config) words() string {
	s := &c.was
	text := fmt.Sprintf("%d of %d nodes have %s", s.Counts.Done, s.Counts.Selected, s.Goal.Revision)
	switch s.Phase {
	case rollout.Complete:
		return "all nodes have " + s.Goal.Revision
	case rollout.RolledBack:
		return "all nodes have " + s.Goal.Revision + " again; " + s.Why
	}
	if s.Why != "" {
		text += "; " + s.Why
	}
	for i, culprit := range s.Culprits {
		if i == 3 {
			text += fmt.Sprintf("; and %d more", len(s.Culprits)-i)
			break
		}
		text += "; " + strings.TrimSpace("node "+culprit.Node+": "+culprit.Why)
		if culprit.Code != 0 {
			text += " (" + culprit.Code.String() + ")"
		}
	}
	return text
}

// conflictText tells of the first conflict, one that keeps this config out before one that it wins.
func (c *config) conflictText() string {
	all := slices.Clone(c.told.Conflicts)
	slices.SortStableFunc(all, func(a, b assign.Conflict) int { return cmp.Compare(number(a.InPlace), number(b.InPlace)) })
	text := firstOf(all)
	if more := len(all) - 1 + c.told.More; more > 0 {
		text += fmt.Sprintf("; and %d more conflicts", more)
	}
	return text
}

// firstOf tells of the first conflict, and where it is.
func firstOf(all []assign.Conflict) string {
	if len(all) == 0 {
		return "it is kept out where a node has as many configs as it can"
	}
	c := &all[0]
	nodes := strings.Join(c.Places.Nodes, ", ")
	if more := c.Places.Count - len(c.Places.Nodes); more > 0 {
		nodes += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s; on %s", c.String(), nodes)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sameStatus compares what is written here.
func sameStatus(a, b *v1alpha1.NodeConfigStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && equality.Semantic.DeepEqual(a.Rollout, b.Rollout) && equality.Semantic.DeepEqual(a.Conflicts, b.Conflicts) &&
		slices.EqualFunc(a.Conditions, b.Conditions, func(a, b metav1.Condition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
		})
}

// urgent: the two differ in more than how many nodes are how far.
func urgent(a, b *v1alpha1.NodeConfigStatus) bool {
	if a.Rollout == nil || b.Rollout == nil || a.ObservedGeneration != b.ObservedGeneration {
		return true
	}
	return a.Rollout.Phase != b.Rollout.Phase || !equality.Semantic.DeepEqual(a.Rollout.Progress, b.Rollout.Progress) || !equality.Semantic.DeepEqual(a.Rollout.Failure, b.Rollout.Failure) || a.Rollout.Target != b.Rollout.Target || a.Rollout.TargetPriority != b.Rollout.TargetPriority ||
		a.Rollout.TargetRoot != b.Rollout.TargetRoot || a.Rollout.Proven != b.Rollout.Proven || a.Rollout.ProvenRoot != b.Rollout.ProvenRoot || len(a.Conflicts) != len(b.Conflicts) ||
		!slices.EqualFunc(a.Conditions, b.Conditions, func(a, b metav1.Condition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		})
}
