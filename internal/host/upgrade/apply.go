package upgrade

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// The units that packaging has.
const (
	agentUnit = "tako-agent.service"
	trialUnit = "tako-agent-trial.service"
)

const (
	// programMode is that of a program.
	programMode = 0o755
	// stagedMode is that of one that only the agent runs.
	stagedMode = 0o700
	// rehearsalMax is how long planning everything may take: ten times what 100,000 files need.
	rehearsalMax = 5 * time.Minute
	// restartMax is how long systemd may take to begin with the restart that it was asked for.
	restartMax = 30 * time.Second
	// rehearsals is how often plans are compared until they must be equal: something may drift in between.
	rehearsals = 3
	// planBytesMax is far above what a Plan has.
	planBytesMax = 256 << 10
)

// Apply begins an upgrade: when it returns, systemd is about to restart the agent.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		results[i] = t.apply(ctx, p.Resource.(*resource))
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource) host.Result {
	if err := ctx.Err(); err != nil {
		return host.Result{Err: reason.Ended(doing, err)}
	}
	defer os.Remove(t.path(newName)) // the next one takes its place where that fails
	if err := t.prepare(ctx, r); err != nil {
		return host.Result{Err: err}
	}
	if err := t.rehearse(ctx); err != nil {
		return host.Result{Err: err}
	}
	if err := t.begin(ctx, r); err != nil {
		return host.Result{Err: err}
	}
	// An agent that ends may not hear the answer: its connection to systemd ends with it, and may do so first. What is started then is the
	// new program, so without an answer it is waited for like with one.
	if err := t.Units.QueueRestart(ctx, agentUnit, false); err != nil && ctx.Err() == nil && !reason.Is(err, reason.BusDisconnected) {
		return host.Result{Changed: true, Err: err} // the copy puts the old one back, because nobody takes the note away
	}
	return host.Result{Changed: true, Err: t.awaitEnd(ctx), Note: "the new program is on trial for " + trialTime.String()}
}

// ended waits for the end of the agent, which systemd was asked for: until then this program is not as declared, and should not be looked at.
func ended(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(restartMax):
		return &reason.Error{Code: reason.OperationTimeout, Doing: doing, Cause: errors.New("systemd has not restarted it within " + restartMax.String())}
	}
}

func (t *Type) path(name string) string { return filepath.Join(t.dir, name) }

// prepare stages the new program and a copy of the present one.
func (t *Type) prepare(ctx context.Context, r *resource) error {
	if pid, err := t.Units.MainPID(ctx, agentUnit); err != nil || pid != os.Getpid() {
		return &reason.Error{Code: reason.AgentNotService, Doing: doing, Cause: err, Hint: "install the units of packaging, and `systemctl enable --now " + agentUnit + "`"}
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	source, err := t.open(r)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := t.stage(ctx, source, r.digest); err != nil {
		return err
	}
	return t.copyOwn(ctx, t.path(previousName), stagedMode)
}

// open opens the declared program.
func (t *Type) open(r *resource) (*os.File, error) {
	if r.source == "" {
		if t.Objects == nil {
			return nil, &reason.Error{Code: reason.ObjectMissing, Doing: doing, Cause: errors.New("there is no store of objects")}
		}
		return t.Objects.Open(content.Wanted{Digest: r.digest, Size: r.size, Claim: r.key})
	}
	d, name, err := t.Root.Parent(r.source)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, _, err := d.Open(name)
	return f, err
}

// stage copies the new program, durably, and makes sure that it is the one.
func (t *Type) stage(ctx context.Context, from *os.File, want content.Digest) error {
	if err := t.putFile(ctx, durable.WriteSpec{Path: t.path(newName), Mode: stagedMode}, from); err != nil {
		return err
	}
	staged, err := os.Open(t.path(newName))
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	defer staged.Close()
	got, _, err := content.SumOf(ctx, staged)
	switch {
	case err != nil:
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	case got != want:
		return disk.Stale("copy", from.Name())
	}
	return nil
}

// putFile writes what a file has, durably.
func (t *Type) putFile(ctx context.Context, spec durable.WriteSpec, from *os.File) error {
	st, err := from.Stat()
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	spec.Content, spec.Size, spec.UID, spec.GID = io.NewSectionReader(from, 0, st.Size()), st.Size(), durable.Keep, durable.Keep
	_, err = durable.Write(ctx, t.Root, spec)
	return err
}

// rehearse has both programs plan what is enforced, and compares.
func (t *Type) rehearse(ctx context.Context) error {
	var err error
	for try := range rehearsals {
		if try > 0 && !pause(ctx, time.Second) {
			return reason.Ended(doing, ctx.Err())
		}
		var was, is Plan
		if was, err = t.planOf(ctx, previousName); err != nil {
			return &reason.Error{Code: reason.AgentUnfit, Doing: doing, Cause: errors.New("the present program cannot plan: " + err.Error()), Evidence: evidence(err)}
		}
		if is, err = t.planOf(ctx, newName); err != nil {
			return &reason.Error{Code: reason.AgentUnfit, Doing: doing, Cause: err, Evidence: evidence(err)}
		}
		if err = Compare(was, is); err == nil {
			return nil
		}
	}
	return &reason.Error{Code: reason.AgentUnfit, Doing: doing, Cause: err, Hint: "build one that does the same with what is declared, or change the declaration first"}
}

// pause waits; false where the context ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// unplanned is why a program has made no plan.
type unplanned struct {
	err    error
	output []byte
}

func (u *unplanned) Error() string { return "it does not plan what is declared here: " + u.err.Error() }
func (u *unplanned) Unwrap() error { return u.err }

func evidence(err error) string {
	var u *unplanned
	if errors.As(err, &u) {
		return reason.Clip(u.output)
	}
	return ""
}

func (t *Type) planOf(ctx context.Context, name string) (Plan, error) {
	tool := command.Tool{Args: append([]string{t.path(name)}, t.Rehearse...), Limit: rehearsalMax, Keep: planBytesMax}
	out, err := tool.Run(ctx)
	// Somebody who was forked while the program was written may have it open for a moment.
	for range 50 {
		if !errors.Is(err, unix.ETXTBSY) || !pause(ctx, 10*time.Millisecond) {
			break
		}
		out, err = tool.Run(ctx)
	}
	if err != nil {
		return Plan{}, &unplanned{err, out}
	}
	p, err := parsePlan(out)
	if err != nil {
		return Plan{}, &unplanned{err, out}
	}
	return p, nil
}

// begin notes the trial, has the copy watch over it, and exchanges the program.
func (t *Type) begin(ctx context.Context, r *resource) error {
	if err := os.Remove(t.path(refusedName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	program, err := os.Open(t.path(newName))
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	defer program.Close()
	run, err := t.Units.Unit(ctx, agentUnit)
	if err != nil {
		return err
	}
	last := func(context.Context, string) error {
		// A copy that still looks at an earlier trial would be another program than the one before this one.
		if err := t.Units.Stop(ctx, trialUnit); err != nil {
			return err
		}
		if err := t.write(ctx, trialName, trial{Program: t.program, To: r.digest, Invocation: run.InvocationID}); err != nil {
			return err
		}
		return t.Units.Start(ctx, trialUnit)
	}
	err = t.putFile(ctx, durable.WriteSpec{Path: t.program, Mode: programMode, Expect: &r.there, Force: true, Check: last}, program)
	if err != nil {
		_ = t.drop(trialName) // else the copy finds that nothing was exchanged
	}
	return err
}
