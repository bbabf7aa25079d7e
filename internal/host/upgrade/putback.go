package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// trialTime is how long a new program has to show that it keeps the host.
const trialTime = 60 * time.Second

// startMax is how long the agent before may take to end: it ends what it has begun, and packaging's unit gives it 90 s for that.
const startMax = 5 * time.Minute

// trialLook is how often the copy looks whether the trial is over. It does so for a minute, after an upgrade.
const trialLook = 250 * time.Millisecond

// Confirm ends the trial of the program that this process runs, if it is on one: it stays. It is called once the host is kept.
func (t *Type) Confirm() error {
	var on trial
	some, err := t.read(trialName, &on)
	if err != nil || !some {
		return err
	}
	if runs, err := t.own(); err != nil || runs != on.To {
		return err
	}
	if err := t.drop(trialName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "note that the new program stays", Cause: err}
	}
	return nil
}

// clock is the time of a trial.
type clock struct {
	began bool // the new program was started
	over  time.Time
}

// hear notes whether the new program was started: its minute begins then.
func (c *clock) hear(now time.Time, started bool) {
	if started && !c.began {
		c.began, c.over = true, now.Add(trialTime)
	}
}

// PutBack waits for the end of a trial, and puts the program of this process back if the trial does not end well. It is what the copy of
// the program before runs.
func (t *Type) PutBack(ctx context.Context) error {
	began := time.Now()
	c := clock{over: began.Add(startMax)}
	look := time.NewTicker(trialLook)
	defer look.Stop()
	for {
		var on trial
		decided, err := t.read(overName, &on)
		if err != nil {
			return errors.Join(err, t.drop(overName))
		}
		if decided { // by an earlier run of the copy
			break
		}
		if some, err := t.read(trialName, &on); err != nil || !some {
			return err
		}
		if !c.began {
			u, err := t.Units.Unit(ctx, agentUnit)
			c.hear(time.Now(), err == nil && u.InvocationID != "" && u.InvocationID != on.Invocation)
		}
		select {
		case <-ctx.Done():
			return reason.Ended("wait for the end of a trial", ctx.Err())
		case now := <-look.C:
			if now.Before(c.over) {
				continue
			}
		}
		break
	}
	if err := os.Rename(t.path(trialName), t.path(overName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "end a trial", Cause: err}
	}
	return t.back(ctx, began)
}

// back puts the program of this process in the place of the one that was on trial.
func (t *Type) back(ctx context.Context, began time.Time) error {
	if err := t.sync(); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "end a trial", Cause: err}
	}
	var on trial
	if some, err := t.read(overName, &on); err != nil || !some {
		return err // the new program has taken the note away in the last moment
	}
	there, err := t.look(on.Program, &sight{}, host.Deep)
	if err != nil {
		return err
	}
	if there.digest == on.To || there.digest.IsZero() {
		if err := t.write(ctx, refusedName, t.refuse(ctx, on.To, began)); err != nil {
			return err
		}
		if err := t.copyOwn(ctx, on.Program, programMode); err != nil {
			return err
		}
	}
	// Where there is no refusal, nothing was exchanged, or by somebody else.
	var refused refusal
	if some, err := t.read(refusedName, &refused); err != nil {
		return err
	} else if some && refused.Digest == on.To {
		// An agent that a person has stopped stays so.
		if err := t.Units.QueueRestart(ctx, agentUnit, true); err != nil {
			return err
		}
	}
	if err := t.drop(overName); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "end a trial", Cause: err}
	}
	return nil
}

// refuse says what the new program has not done, for people.
func (t *Type) refuse(ctx context.Context, d content.Digest, began time.Time) refusal {
	r := refusal{Digest: d, Why: "it did not keep this host within " + trialTime.String(), Said: t.Units.Journal(ctx, agentUnit, began)}
	if u, err := t.Units.Unit(ctx, agentUnit); err == nil { // else it is said without
		r.Why += fmt.Sprintf("; its unit was %s (%s)", u.ActiveState, u.SubState)
		if u.NRestarts > 0 {
			r.Why += fmt.Sprintf(", restarted %d times, exit status %d", u.NRestarts, u.ExecMainStatus)
		}
	}
	return r
}

// copyOwn writes the program of this process to a path, durably.
func (t *Type) copyOwn(ctx context.Context, path string, mode int) error {
	self, err := os.Open(running)
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: "copy the agent's own program", Cause: err}
	}
	defer self.Close()
	return t.putFile(ctx, durable.WriteSpec{Path: path, Mode: mode, Force: true}, self)
}
