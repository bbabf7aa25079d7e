package exec

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	// guardTime bounds a guard: one that looks at something takes a moment, one that waits for something would hold up everything.
	guardTime = 10 * time.Second
	// endGrace is how long a command that is ended may tidy up, from SIGTERM to SIGKILL; a guard has nothing to tidy up.
	endGrace = 10 * time.Second
)

// verdict is what a command's conditions say.
type verdict struct {
	run     bool
	why     string // for a person: what says so
	unknown string // it cannot be told; then the rest is void
	byGuard bool   // a guard had the last word
}

// conditions asks what is declared about a command, but for its guards, and the record. Of a command that has guards and is not
// decided yet the verdict is to run it.
func (r *resource) conditions() (verdict, error) {
	switch {
	case r.creates != "" && isThere(r.creates):
		return verdict{why: r.creates + " is there"}, nil
	case r.creates != "":
		return verdict{run: true, why: r.creates + " is not there"}, nil
	case r.guarded || r.refreshOnly:
		return verdict{run: true}, nil
	}
	rec, err := r.last()
	switch {
	case err != nil:
		return verdict{}, err
	case rec.Digest == "":
		return verdict{run: true, why: "not run yet"}, nil
	case !r.ranWith(rec):
		return verdict{run: true, why: "run with other content"}, nil
	}
	return verdict{why: "it has run"}, nil
}

// guards asks the guards of a command, sealed or for real. It is called when nothing else has decided.
func (t *Type) guards(ctx context.Context, r *resource, e *declare.Exec, who *identity, sealed bool) (verdict, error) {
	v := verdict{run: true, byGuard: true}
	for _, g := range []struct {
		field string
		args  []string
		want  bool // it must succeed for the command to run
	}{{"unless", e.Unless, false}, {"onlyIf", e.OnlyIf, true}} {
		if len(g.args) == 0 {
			continue
		}
		succeeds, said, unknown, err := t.ask(ctx, r, e, who, g.field, g.args, sealed)
		if err != nil || unknown != "" {
			return verdict{unknown: unknown}, err
		}
		v.why = g.field + ": " + said
		if succeeds != g.want {
			v.run = false
			return v, nil
		}
	}
	return v, nil
}

// ask runs one guard. Where it is sealed, what the seal may have caused is unknown; for real it is an error.
func (t *Type) ask(ctx context.Context, r *resource, e *declare.Exec, who *identity, field string, args []string, sealed bool) (succeeds bool, said, unknown string, err error) {
	end, err := t.warden.Run(ctx, command.Order{Args: args, Dir: e.DirectoryOrDefault(), Env: who.environment(e), As: who.account,
		Umask: e.UmaskOrDefault(), Limit: guardTime, Whole: true, Sealed: sealed})
	var start *command.StartError
	switch {
	case ctx.Err() != nil:
		return false, "", "", reason.Ended("ask `"+field+"` of "+r.title, ctx.Err())
	case sealed && errors.As(err, &start) && start.Doing == "seal":
		return false, "", fmt.Sprintf("`%s` cannot be sealed here: %v", field, start.Err), nil
	case sealed && err != nil:
		return false, "", fmt.Sprintf("`%s` cannot be run: %v", field, err), nil
	case sealed && (end.WantedNetwork || end.Stopped || end.Status.Signaled() || wantedToWrite(&end.Output)):
		return false, "", fmt.Sprintf("`%s` %s", field, hindrance(end)), nil
	case errors.As(err, &start):
		return false, "", "", r.notStarted(args[0], e, start)
	case err != nil:
		return false, "", "", &reason.Error{Code: reason.CommandNotRun, Doing: "ask `" + field + "` of " + r.title, Cause: err}
	case end.Stopped, end.Status.Signaled():
		f := &reason.Error{Code: reason.CommandFailed, Doing: "ask `" + field + "` of " + r.title, Cause: errors.New(statusText(end.Status)), Evidence: end.Output.Text(scrubber(e))}
		if end.Stopped {
			f.Code, f.Cause = reason.OperationTimeout, fmt.Errorf("it was ended after %v", guardTime)
			f.Hint = "a guard looks, and does not wait"
		}
		return false, "", "", f
	}
	return end.Status.ExitStatus() == 0, statusText(end.Status), "", nil
}

// readOnlyWords are the kernel's for what a sealed guard may not do, strerror(3).
const readOnlyWords = "Read-only file system"

func wantedToWrite(o *command.Output) bool { return o.Contains(readOnlyWords) }

// hindrance says what was in a sealed guard's way.
func hindrance(end command.Ending) string {
	switch {
	case end.Stopped:
		return fmt.Sprintf("takes longer than %v", guardTime)
	case end.WantedNetwork:
		return "asks for the network"
	case wantedToWrite(&end.Output):
		return "asks to write"
	}
	return "does not end by itself: " + statusText(end.Status)
}

// Check asks what is declared about each command; guards are sealed. Only this is looked at, at every depth.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, res := range rs {
		plans[i] = t.check(ctx, res.(*resource), depth)
	}
	return plans
}

func (t *Type) check(ctx context.Context, r *resource, depth host.Depth) host.Plan {
	p := host.Plan{Resource: r}
	if err := ctx.Err(); err != nil {
		p.Err = reason.Ended("look at "+r.title, err)
		return p
	}
	if r.refreshOnly {
		return p
	}
	v, err := r.conditions()
	if err != nil || !v.run {
		p.Err = err
		return p
	}
	e, err := r.read()
	if err != nil {
		p.Err = err
		return p
	}
	who, err := t.ids.of(ctx, e)
	if err != nil {
		p.Err = err
		return p
	}
	if r.guarded {
		var said word
		v, said, err = t.sealed(ctx, r, e, &who, depth, v)
		if err == nil && v.unknown != "" && r.frozen && depth != host.Explain {
			if v, err = t.guards(ctx, r, e, &who, false); err == nil {
				r.compare(said, v)
			}
		}
		if err != nil {
			p.Err = err
			return p
		}
		p.State = said
	}
	switch {
	case v.unknown != "":
		p.Unknown = "cannot say without running: " + v.unknown
	case v.run:
		p.Changes = []host.Change{{Field: fieldCommand, From: v.why, To: "run: " + commandText(e.Command)}}
	}
	return p
}

// fieldCommand is the field of the one change that a command has.
const fieldCommand = "command"

// word is what sealed guards have said, for Apply to compare.
type word uint8

const (
	nothing word = iota // they could not say
	toRun
	notToRun
)

func wordOf(v verdict) word {
	switch {
	case v.unknown != "":
		return nothing
	case v.run:
		return toRun
	}
	return notToRun
}

// sealed asks sealed guards, as far as their word is good; see the package comment.
func (t *Type) sealed(ctx context.Context, r *resource, e *declare.Exec, who *identity, depth host.Depth, before verdict) (verdict, word, error) {
	if r.trust == misled {
		return verdict{unknown: "its guard says something else when it may not write"}, nothing, nil
	}
	v, err := t.guards(ctx, r, e, who, true)
	said := wordOf(v)
	if err != nil || v.unknown != "" {
		return v, nothing, err
	}
	if said == notToRun && r.trust == unproven && depth != host.Explain {
		return verdict{unknown: "its guard says that there is nothing to do (" + v.why + "), and is asked once for real"}, said, nil
	}
	if before.why != "" {
		v.why = before.why + ", " + v.why
	}
	return v, said, nil
}

// compare learns from what guards have said for real whether their word is good when they are sealed.
func (r *resource) compare(sealed any, v verdict) {
	said, _ := sealed.(word)
	switch {
	case said == nothing || v.unknown != "":
	case said == wordOf(v):
		r.trust = truthful
	default:
		r.trust = misled
	}
}
