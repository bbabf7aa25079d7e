package sources

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

const (
	waitDefault = 10 * time.Minute
	// healthPause is how far apart the writes are that tell how far something is: a person looks no more often.
	healthPause = 5 * time.Second
)

// progress tells how what was applied is, and on how many hosts, when it is time; it returns when to be called again, zero for not before
// something changes.
func (a *actor) progress(ctx context.Context, src *v1alpha1.Source, g *guard) time.Time {
	m := &a.memory
	if !m.applied.known || m.looked != src.Generation {
		return time.Time{}
	}
	l := &look{actor: a, source: src.DeepCopy(), guard: g}
	again := time.Time{}
	if m.failures > 0 { // what is said of the newest commit stays, and hosts go on to what is applied
		l.source.Status.Hosts = l.hosts()
	} else {
		again = l.settle()
	}
	was := &look{actor: a, source: src}
	if !(l.isReady() && !was.isReady()) && !(l.isConverged() && !was.isConverged()) {
		if next := m.toldAt.Add(healthPause); time.Now().Before(next) {
			return earlier(again, next)
		}
	}
	m.toldAt = time.Now()
	if err := l.write(ctx); err != nil {
		a.log.Warn("the status of a source is not written", "err", err)
		return earlier(again, time.Now().Add(healthPause))
	}
	if m.failures == 0 {
		l.reportSettled(nil)
	}
	return again
}

// hosts counts the hosts. What is applied in part is of no commit.
func (l *look) hosts() *v1alpha1.SourceHosts {
	return l.of.hosts.Count(l.guard.configs(), l.memory.applied.is.commit)
}

// isConverged: all hosts are as the applied commit declares.
func (l *look) isConverged() bool {
	s := &l.source.Status
	return s.Hosts != nil && s.Applied != nil && s.Hosts.Commit == s.Applied.ID && s.Hosts.Converged == s.Hosts.Selected
}

func (l *look) isReady() bool {
	return meta.IsStatusConditionTrue(l.source.Status.Conditions, v1alpha1.ConditionReady)
}

// settle says of a commit that is applied whether it is well. The time is when the wait for that is over, zero for none.
func (l *look) settle() time.Time {
	s := &l.source.Status
	s.Hosts = l.hosts()
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionStalled)
	commit := "commit " + shortID(s.Applied) + " is applied"
	unwell, stalled, words := 0, false, ""
	if l.source.Spec.Wait != nil {
		unwell, stalled, words = l.guard.health()
	}
	if unwell == 0 {
		l.condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.SourceApplied, commit)
		return time.Time{}
	}
	since := time.Now()
	if was := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); was != nil && was.Status != metav1.ConditionTrue {
		since = was.LastTransitionTime.Time
	}
	if s.Applied != nil && s.Applied.Since.After(since) {
		since = s.Applied.Since.Time
	}
	words = fmt.Sprintf("%s, and %d of its objects are not well: %s", commit, unwell, words)
	end := since.Add(waitOf(l.source))
	if stalled || !time.Now().Before(end) {
		l.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.SourceNotWell, words)
		l.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.SourceNotWell, words)
		return time.Time{}
	}
	l.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.SourceProgressing, words)
	l.condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.SourceProgressing, "waits until "+end.UTC().Format(time.RFC3339))
	return end
}

func waitOf(src *v1alpha1.Source) time.Duration {
	if w := src.Spec.Wait; w != nil && w.Timeout != nil {
		return w.Timeout.Duration
	}
	return waitDefault
}

// earlier is the first of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
