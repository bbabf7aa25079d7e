package sources

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/schedule"
)

const (
	// shownMax is how many faults and objects a status has: what a person reads.
	shownMax = 20
	// wordsMax bounds the words of a condition or a fault, bytes; the API has 32,768.
	wordsMax = 1024
	// shortCommit is as many digits of a commit as people look at.
	shortCommit = 8
	// writeMax bounds one write of a status.
	writeMax = 30 * time.Second
)

// tell writes down how a look went. Nothing new is no write.
func (l *look) tell(ctx context.Context, err error) error {
	s := &l.source.Status
	s.Faults, s.MoreFaults = faultsOf(err)
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionStalled)
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionSuspended)
	if err == nil {
		l.settle()
		l.reportSettled(nil)
		return l.write(ctx)
	}
	l.reportSettled(err)
	why, words := l.classify(err)
	l.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, why, words)
	if row, ok := reason.Lookup(codeOf(err)); ok && row.Retry == reason.Never {
		l.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, why, words)
	} else {
		l.condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, why, "it is tried again")
	}
	return l.write(ctx)
}

func (l *look) condition(kind string, status metav1.ConditionStatus, why, words string) {
	meta.SetStatusCondition(&l.source.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: why, Message: shortened(words), ObservedGeneration: l.source.Generation})
}

// shortened is a text that a status has room for.
func shortened(words string) string {
	if len(words) <= wordsMax {
		return words
	}
	return strings.ToValidUTF8(words[:wordsMax-len("…")], "") + "…"
}

// result counts how a look went.
func (l *look) result(err error, good string) {
	var faults declare.Faults
	var refused *failure.Refused
	switch {
	case err == nil && l.nothing:
		good = lookNothing
	case errors.As(err, &faults), errors.As(err, &refused), reason.Is(err, reason.SignatureRefused):
		good = lookRefused
	case err != nil:
		good = lookFailed
	}
	l.of.metrics.looked(good)
}

// classify is what an error means for a person.
func (l *look) classify(err error) (why, words string) {
	words = firstLine(err.Error())
	stays := ""
	switch a := l.source.Status.Applied; {
	case l.wrote > 0:
		stays = fmt.Sprintf("; %d objects are of the new commit already", l.wrote)
	case a != nil:
		stays = "; commit " + shortID(a) + " stays applied"
	}
	if codeOf(err) == reason.NotAllowed {
		var failed *failure.Error
		if errors.As(err, &failed) && failed.Hint == "" {
			failed.Hint = l.rightsHint()
		}
		_, words = l.classified(err, words, stays)
		return v1alpha1.SourceNotAllowed, words
	}
	return l.classified(err, words, stays)
}

func (l *look) classified(err error, words, stays string) (why, all string) {
	var faults declare.Faults
	var failed *failure.Error
	var refused *failure.Refused
	switch {
	case errors.As(err, &faults):
		return v1alpha1.SourceCommitRefused, faultWords(faults) + stays
	case errors.As(err, &refused):
		return v1alpha1.SourceNotApplied, faultWords(refused.Faults) + stays
	case errors.As(err, &failed):
		if failed.Hint != "" {
			words += "; " + failed.Hint
		}
		return v1alpha1.SourceNotApplied, words + stays
	}
	e := reason.Of(err)
	if e.Hint != "" {
		words += "; " + e.Hint
	}
	if e.Code == reason.SignatureRefused {
		return v1alpha1.SourceCommitRefused, words + stays
	}
	return v1alpha1.SourceNotReached, words + stays
}

// faultWords is the first fault with its place, and how many there are.
func faultWords(faults []declare.Fault) string {
	if len(faults) == 0 {
		return "it is refused"
	}
	f := &faults[0]
	words := f.Message
	switch {
	case f.File != "" && f.Line > 0:
		words = fmt.Sprintf("%s:%d: %s", f.File, f.Line, words)
	case f.File != "":
		words = f.File + ": " + words
	}
	if f.Hint != "" {
		words += "; " + f.Hint
	}
	if n := len(faults) - 1; n > 0 {
		words += fmt.Sprintf(" (and %d more)", n)
	}
	return words
}

func codeOf(err error) reason.Code {
	var faults declare.Faults
	var refused *failure.Refused
	var failed *failure.Error
	switch {
	case errors.As(err, &faults) && len(faults) > 0:
		return faults[0].Code
	case errors.As(err, &refused) && len(refused.Faults) > 0:
		return refused.Faults[0].Code
	case errors.As(err, &failed):
		return failed.Code
	}
	return reason.Of(err).Code
}

// faultsOf are the mistakes that an error is about, as a status has them.
func faultsOf(err error) (shown []v1alpha1.SourceFault, more int32) {
	var faults declare.Faults
	var refused *failure.Refused
	if !errors.As(err, &faults) && errors.As(err, &refused) {
		faults = refused.Faults
	}
	for _, f := range faults[:min(len(faults), shownMax)] {
		words := f.Message
		if f.Hint != "" {
			words += "; " + f.Hint
		}
		shown = append(shown, v1alpha1.SourceFault{File: f.File, Line: int32(f.Line), Column: int32(f.Column), Code: f.Code.String(), Message: shortened(words)})
	}
	return shown, int32(len(faults) - len(shown))
}

// write writes the status, if it is another one.
func (l *look) write(ctx context.Context) error {
	for {
		was := l.current()
		if equality.Semantic.DeepEqual(was.Status, l.source.Status) {
			return nil
		}
		err := l.put(ctx, was)
		if !apierrors.IsConflict(err) {
			if apierrors.IsNotFound(err) {
				return nil // it is gone, and the watch tells so
			}
			return err
		}
		var newest v1alpha1.Source
		if err := l.named(ctx, "metadata.name", v1alpha1.KindSource, l.source.Name, &newest); err != nil {
			return err
		}
		if newest.UID != l.uid {
			return nil
		}
		l.changed(&newest)
	}
}

// put writes the status onto a version of the Source.
func (l *look) put(ctx context.Context, on *v1alpha1.Source) error {
	ctx, cancel := context.WithTimeout(ctx, writeMax)
	defer cancel()
	next := on.DeepCopy()
	next.Status = *l.source.Status.DeepCopy()
	if err := l.of.options.Objects.UpdateStatus(ctx, next); err != nil {
		return err
	}
	l.changed(next) // the watch tells of it later, and nobody is to decide by the old one meanwhile
	l.tellReady(on, next)
	return nil
}

// tellReady makes an Event when a commit is applied, or refused.
func (l *look) tellReady(before, after *v1alpha1.Source) {
	was, is := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Status == is.Status && was.Message == is.Message {
		return
	}
	kind := core.EventTypeNormal
	if is.Status != metav1.ConditionTrue {
		kind = core.EventTypeWarning
	}
	l.of.options.Recorder.Tell(l.reference(), kind, is.Reason, is.Message)
}

func (a *actor) reference() core.ObjectReference {
	return core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindSource, Namespace: a.key.Namespace, Name: a.key.Name, UID: a.uid}
}

// tellDrift makes an Event of something that was taken back.
func (r *run) tellDrift(c *plan.Change) {
	r.of.options.Recorder.Tell(r.reference(), core.EventTypeWarning, "DriftReverted", "others had changed "+c.Ref.Long()+"; it is as declared again")
}

// tellObstacle writes down what keeps a source from looking.
func (a *actor) tellObstacle(ctx context.Context, src *v1alpha1.Source, d schedule.Decision) {
	l := &look{actor: a, source: src.DeepCopy()}
	switch d.Obstacle {
	case schedule.Suspended: // what was applied stays, and so does whether it is well
		s := src.Spec.Suspend
		l.condition(v1alpha1.ConditionSuspended, metav1.ConditionTrue, string(schedule.Suspended), fmt.Sprintf("%s by %s: %s", d.Words, s.Owner, s.Reason))
	default:
		why, words := string(d.Obstacle), d.Words
		meta.RemoveStatusCondition(&l.source.Status.Conditions, v1alpha1.ConditionStalled)
		meta.RemoveStatusCondition(&l.source.Status.Conditions, v1alpha1.ConditionSuspended)
		if circle := a.of.circle(src); len(circle) > 0 {
			why, words = v1alpha1.SourceDependencyCycle, "sources wait for one another, and none will ever be applied: "+strings.Join(circle, " depends on ")
			l.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, why, words)
		}
		meta.RemoveStatusCondition(&l.source.Status.Conditions, v1alpha1.ConditionReconciling)
		l.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, why, words)
		l.source.Status.ObservedGeneration = src.Generation
	}
	if err := l.write(ctx); err != nil {
		a.log.Warn("the status of a source is not written", "err", err)
	}
}

func shortID(c *v1alpha1.SourceCommit) string {
	if c == nil {
		return ""
	}
	return c.ID[:min(len(c.ID), shortCommit)]
}

func shortRef(name string) string {
	for _, prefix := range []string{"refs/heads/", "refs/tags/"} {
		if short, ok := strings.CutPrefix(name, prefix); ok {
			return short
		}
	}
	return name
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
