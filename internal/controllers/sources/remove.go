package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/schedule"
)

// keepHint is what helps where objects cannot go with their Source.
const keepHint = "or set spec.onRemove: Keep, and what is left stays"

// remove does what is to be done with a Source that is deleted, and that somebody holds: nothing is applied any more, and what it has applied
// is deleted where the Source says so. It returns when to be called again, zero for not before something changes.
func (a *actor) remove(ctx context.Context, src *v1alpha1.Source, guard *guard) time.Time {
	guard.rest()
	m := &a.memory
	if !slices.Contains(src.Finalizers, v1alpha1.SourceFinalizer) {
		return time.Time{} // others hold it
	}
	l := &look{actor: a, source: src.DeepCopy(), guard: guard}
	if s := src.Spec.Suspend; s != nil && time.Now().Before(s.Until.Time) {
		words := fmt.Sprintf("it is deleted, and what it has applied is deleted when its suspension ends, at %s; resume it, %s", s.Until.UTC().Format(time.RFC3339), keepHint)
		l.tellRemoval(ctx, v1alpha1.SourceRemoving, words, false)
		return soon(s.Until.Time)
	}
	if next := a.removalDue(src); time.Now().Before(next) {
		return next
	}
	if !a.enter(ctx) {
		return time.Time{}
	}
	defer func() { <-a.of.slots }()
	m.lookedAt = time.Now()
	l.tellRemoval(ctx, v1alpha1.SourceRemoving, "it is deleted, and what it has applied is deleted first", false)
	err := l.removeAll(ctx)
	if err == nil {
		err = l.letGo(ctx)
	}
	if err == nil || ctx.Err() != nil {
		return time.Time{}
	}
	m.failures++
	why, words := v1alpha1.SourceNotApplied, "it is deleted, and what it has applied cannot be: "+firstLine(err.Error())
	if codeOf(err) == reason.NotAllowed {
		why, words = v1alpha1.SourceNotAllowed, words+"; "+l.rightsHint()
	}
	l.tellRemoval(ctx, why, words+"; "+keepHint, true)
	return a.removalDue(src)
}

// removalDue is when it is tried to delete what a Source has applied; zero for now.
func (a *actor) removalDue(src *v1alpha1.Source) time.Time {
	m := &a.memory
	if m.failures == 0 || m.looked != src.Generation { // somebody has changed what is to be done
		m.failures, m.looked = 0, src.Generation
		return time.Time{}
	}
	a.mu.Lock()
	helped := schedule.Helped(a.helpedAt, m.lookedAt)
	a.mu.Unlock()
	return earlier(m.lookedAt.Add(schedule.Pause(m.failures, v1alpha1.SourceIntervalDefault)), helped)
}

// tellRemoval writes down how far it is.
func (l *look) tellRemoval(ctx context.Context, why, words string, again bool) {
	s := &l.source.Status
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		meta.RemoveStatusCondition(&s.Conditions, kind)
	}
	s.ObservedGeneration, s.Faults, s.MoreFaults, s.Hosts = l.source.Generation, nil, 0, nil
	l.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, why, words)
	if again {
		l.condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, why, "it is tried again")
	}
	if err := l.write(ctx); err != nil && ctx.Err() == nil {
		l.log.Warn("the status of a source is not written", "err", err)
	}
}

// removeAll deletes what a Source has applied, with the Source's own rights. What others hold stays, and is told; that a right is missing is
// an error. What stands in a namespace that is on its way goes with it.
func (l *look) removeAll(ctx context.Context) error {
	r, err := l.begin()
	if err != nil {
		return err
	}
	ending := map[string]bool{}
	var missing error
	options := r.pruning(nil)
	options.All = true
	options.Left = func(left prune.Leftover, held prune.Held) {
		if held.Allowed {
			l.tellLeft(left.Ref, held.Words)
			return
		}
		if gone, err := l.isEnding(ctx, left.Ref.Namespace, ending); err == nil && !gone && missing == nil {
			missing = &failure.Error{Code: reason.NotAllowed, Exit: reason.ExitNotAllowed, Doing: "delete " + nameOfLeft(left.Ref), Words: held.Words}
		}
	}
	leftovers, err := r.options.Set.Leftovers(ctx, r.server, nil, options)
	if err != nil {
		return err
	}
	for _, left := range r.rightsLast(leftovers) {
		if gone, err := l.isEnding(ctx, left.Ref.Namespace, ending); err != nil || gone {
			continue
		}
		if _, err := left.Delete(ctx, r.server, false); err != nil && ctx.Err() == nil {
			return failure.Of(err, "delete "+left.Ref.Long())
		}
	}
	return errors.Join(missing, ctx.Err())
}

// isEnding tells whether a namespace is on its way, or gone. known is what was found out before.
func (l *look) isEnding(ctx context.Context, name string, known map[string]bool) (bool, error) {
	if name == "" {
		return false, nil
	}
	if is, found := known[name]; found {
		return is, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	var ns core.Namespace
	err := l.of.options.Objects.Get(ctx, types.NamespacedName{Name: name}, &ns)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	known[name] = err != nil || ns.DeletionTimestamp != nil
	return known[name], nil
}

// letGo takes the finalizer away, and with it the Source.
func (l *look) letGo(ctx context.Context) error {
	for {
		next := l.current().DeepCopy()
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == v1alpha1.SourceFinalizer })
		writing, cancel := context.WithTimeout(ctx, writeMax)
		err := l.of.options.Objects.Update(writing, next)
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		var newest v1alpha1.Source
		if err := l.named(ctx, "metadata.name", v1alpha1.KindSource, l.source.Name, &newest); err != nil || newest.UID != l.uid {
			return nil // it is gone, which the watch tells, or it is read again in a moment
		}
		l.changed(&newest)
	}
}
