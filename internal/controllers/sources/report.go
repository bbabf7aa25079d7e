package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/forge"
)

const (
	// reportPauseMin is the pause after a report that did not arrive; each one more doubles it, up to reportPauseMax.
	reportPauseMin, reportPauseMax = time.Second, 10 * time.Minute
)

// report is what a forge is told of a commit.
type report struct {
	url         string // of the repository
	credentials string // the Secret that opens it; empty for none
	to          v1alpha1.SourceReport
	commit      string
	status      forge.Status
	tries       int // it is said again
}

// reporter tells a forge what became of the commits of one Source. It has a goroutine of its own, so that a forge that is away holds up
// nothing. Only the newest report counts: what was to be said before is not true any more. A process says nothing twice; one that
// has begun again may, which forges take for the same.
type reporter struct {
	of        *Sources
	namespace string
	log       *slog.Logger
	wake      chan struct{} // holds one

	mu      sync.Mutex // guards all below
	want    report
	refused bool // the newest one was, and is not said again unless somebody helps
}

// say has a report told.
func (r *reporter) say(what report) {
	r.mu.Lock()
	what.tries = r.want.tries
	r.want = what
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// again has a report told that was refused: what it is told with has changed.
func (r *reporter) again() {
	r.mu.Lock()
	if r.refused {
		r.refused = false
		r.want.tries++
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}: // also for one who pauses after a failure
	default:
	}
}

func (r *reporter) newest() report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want
}

// run tells until ctx is done.
func (r *reporter) run(ctx context.Context) {
	var said report
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		pause := reportPauseMin
		for ctx.Err() == nil {
			want := r.newest()
			if want == said {
				break
			}
			again, err := r.post(ctx, want)
			r.mu.Lock()
			r.refused = again < 0
			r.mu.Unlock()
			if err == nil || again < 0 {
				said = want
			}
			if err == nil {
				break
			}
			if ctx.Err() == nil {
				r.log.Warn("the forge is not told what became of a commit", "commit", want.commit, "err", err)
			}
			if again < 0 {
				break
			}
			sleepOr(ctx, max(pause, again), r.wake)
			pause = min(2*pause, reportPauseMax)
		}
	}
}

// sleepOr waits for so long, until it is woken, or until ctx is done.
func sleepOr(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}

// post tells once. After an error the duration is the pause that the forge asks for, negative where trying again is of no use.
func (r *reporter) post(ctx context.Context, what report) (time.Duration, error) {
	target := forge.Target{Kind: forge.Kind(strings.ToLower(string(what.to.Type))), API: what.to.API, Commit: what.commit}
	var err error
	if target.Owner, target.Name, err = forge.Repository(target.Kind, what.url); err != nil {
		return -1, err
	}
	if target.API == "" {
		if target.API, err = forge.APIOf(target.Kind, what.url); err != nil {
			return -1, err
		}
	}
	if err := r.open(ctx, what, &target); err != nil {
		return 0, err
	}
	err = r.of.options.Forge.Post(ctx, target, what.status)
	var coded *reason.Error
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &coded) && coded.Code == reason.ForgeUnreachable:
		return coded.After, err
	}
	return -1, err
}

// open reads what opens the API: the token, and the authorities that a forge of one's own may have.
func (r *reporter) open(ctx context.Context, what report, target *forge.Target) error {
	name := what.to.Secret
	secret, err := r.secret(ctx, name)
	token := strings.TrimSpace(string(secret.Data[keyToken]))
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return &reason.Error{Code: reason.StoreUnreachable, Doing: "read Secret " + name, Cause: err}
	case err != nil || token == "":
		return &reason.Error{Code: reason.SourceIncomplete, Doing: "read Secret " + name + ", which spec.report.secret names", Cause: fmt.Errorf("it has no %s", keyToken)}
	}
	target.Token, target.Authorities = forge.Token(token), secret.Data[keyCA]
	if len(target.Authorities) > 0 || what.credentials == "" || forge.Host(target.API) != forge.Host(what.url) {
		return nil
	}
	if secret, err = r.secret(ctx, what.credentials); err == nil { // the repository says it if there is none
		target.Authorities = secret.Data[keyCA]
	}
	return nil
}

func (r *reporter) secret(ctx context.Context, name string) (secret core.Secret, err error) {
	ctx, cancel := context.WithTimeout(ctx, readMax)
	defer cancel()
	err = r.of.options.Objects.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: name}, &secret)
	return secret, err
}

// reportPending tells that a new commit is on its way.
func (l *look) reportPending() {
	s := &l.source.Status
	if s.Applied == nil || s.Applied.ID != s.Seen.ID {
		l.say(forge.Pending, "it is on its way")
	}
}

// reportSettled tells what became of the commit that was seen last. That a repository or the API did not answer is not the commit's doing.
func (l *look) reportSettled(err error) {
	s := &l.source.Status
	var faults declare.Faults
	var refused *failure.Refused
	switch {
	case err == nil && l.isReady():
		l.say(forge.Success, fmt.Sprintf("%d objects are applied", s.Objects))
	case err == nil && meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled):
		l.say(forge.Failure, meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled).Message)
	case err == nil:
		l.say(forge.Pending, "it is applied, and not well yet")
	case errors.As(err, &faults):
		l.say(forge.Failure, faultWords(faults))
	case errors.As(err, &refused):
		l.say(forge.Failure, faultWords(refused.Faults))
	case reason.Is(err, reason.SignatureRefused):
		l.say(forge.Failure, firstLine(err.Error()))
	}
}

func (l *look) say(state forge.State, words string) {
	if to, seen := l.source.Spec.Report, l.source.Status.Seen; to != nil && seen != nil {
		l.reporter.say(report{url: l.source.Spec.URL, credentials: l.source.Spec.Credentials, to: *to, commit: seen.ID,
			status: forge.Status{State: state, Description: words, Context: "tako/" + l.key.String()}})
	}
}
