package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// Apply runs the commands, one after the other.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		results[i] = t.apply(ctx, p.Resource.(*resource), p)
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource, p host.Plan) host.Result {
	if err := ctx.Err(); err != nil {
		return host.Result{Err: reason.Ended(r.doing(), err)}
	}
	a, err := t.begin(ctx, r)
	if err != nil {
		return host.Result{Err: err}
	}
	v, err := a.decide(ctx)
	if err != nil {
		return host.Result{Err: err}
	}
	if v.byGuard {
		r.compare(p.State, v)
	}
	switch {
	case v.byGuard && !v.run:
		return host.Result{Note: v.why}
	case !v.run:
		return host.Result{Err: &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New(v.why)}}
	}
	again, err := a.tries(ctx, a.decide)
	// Whom it notifies hears of it when it has succeeded, unless nobody would have it run again.
	return host.Result{Err: err, Changed: err == nil || !again}
}

// Refresh runs the command, unless a run of it began after since, or its conditions say that it has nothing to do.
func (t *Type) Refresh(ctx context.Context, res host.Resource, since host.Stamp) (host.Refreshed, error) {
	r := res.(*resource)
	if err := ctx.Err(); err != nil {
		return host.Refreshed{}, reason.Ended(r.doing(), err)
	}
	rec, err := r.last()
	if err != nil {
		return host.Refreshed{}, err
	}
	if r.beganAfter(rec, since) {
		return host.Refreshed{Note: "has run since"}, nil
	}
	a, err := t.begin(ctx, r)
	if err != nil {
		return host.Refreshed{}, err
	}
	due := a.decide
	if r.creates == "" && !r.guarded { // that it has run before is no reason not to
		due = func(context.Context) (verdict, error) { return verdict{run: true}, nil }
	}
	if v, err := due(ctx); err != nil || !v.run {
		return host.Refreshed{Note: v.why}, err
	}
	if _, err := a.tries(ctx, due); err != nil {
		return host.Refreshed{}, err
	}
	return host.Refreshed{Acted: true, Note: "ran"}, nil
}

// attempt is one run of a command, or what becomes of it.
type attempt struct {
	*resource
	t    *Type
	exec *declare.Exec
	who  identity
}

func (t *Type) begin(ctx context.Context, r *resource) (*attempt, error) {
	e, err := r.read()
	if err != nil {
		return nil, err
	}
	who, err := t.ids.of(ctx, e)
	if err != nil {
		return nil, err
	}
	return &attempt{resource: r, t: t, exec: e, who: who}, nil
}

// decide asks the conditions, and guards for real.
func (a *attempt) decide(ctx context.Context) (verdict, error) {
	v, err := a.conditions()
	if err != nil || !v.run || !a.guarded {
		return v, err
	}
	return a.t.guards(ctx, a.resource, a.exec, &a.who, false)
}

// The pauses between tries: each is twice as long as the one before.
const (
	triesPauseMin = time.Second
	triesPauseMax = 30 * time.Second
)

// tries runs the command until it succeeds, as often as is declared, and while it is due. again says whether it is after the last try has failed.
func (a *attempt) tries(ctx context.Context, due func(context.Context) (verdict, error)) (again bool, err error) {
	pause := triesPauseMin
	for left := a.exec.TriesOrDefault() - 1; ; left-- {
		if err = a.run(ctx); err == nil {
			return false, nil
		}
		v, undecided := due(context.WithoutCancel(ctx))
		if again = undecided != nil || v.run; !again || left <= 0 {
			return again, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return again, err
		}
		pause = min(2*pause, triesPauseMax)
	}
}

// run runs the command to its end, and records it when it has succeeded.
func (a *attempt) run(ctx context.Context) error {
	hold, err := a.t.alone(ctx, a.resource)
	if err != nil {
		return err
	}
	defer hold.Close()
	now, err := systemd.Now()
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: a.doing(), Cause: err}
	}
	at := time.Now()
	e := a.exec
	end, err := a.t.warden.Run(ctx, command.Order{Args: e.Command, Dir: e.DirectoryOrDefault(), Env: a.who.environment(e), As: a.who.account,
		Umask: e.UmaskOrDefault(), Limit: e.TimeoutOrDefault(), Grace: endGrace, Hold: hold})
	switch {
	case err != nil:
		return a.notRun(e, end, err)
	case end.Stopped, !end.Status.Exited(), !e.Succeeds(end.Status.ExitStatus()):
		return a.failure(e, end)
	case a.creates != "" && !isThere(a.creates):
		return &reason.Error{Code: reason.CommandNoEffect, Doing: a.doing(), Cause: fmt.Errorf("it succeeded, and %s is not there", a.creates),
			Evidence: end.Output.Text(scrubber(e)), Hint: "`creates` is for a path that the command makes"}
	}
	return a.t.note(ctx, a.resource, host.Stamp(now), at)
}

// namesByLength are the names of variables, those with the longest values first: one value may be part of another.
func namesByLength(variables map[string]string) []string {
	return slices.SortedFunc(maps.Keys(variables), func(a, b string) int {
		if d := len(variables[b]) - len(variables[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
}
