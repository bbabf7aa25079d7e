package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"tako.dev/tako/internal/reason"
)

// cleanupTimeout bounds what is done after an action whose own time may be used up: taking a match rule back, looking at a
// unit that failed. Both take milliseconds.
const cleanupTimeout = 5 * time.Second

// Start starts a unit and waits until its job has ended. A unit that runs already is left alone.
//
// Like Stop, Restart and ReloadOrRestart it replaces conflicting jobs, waits at most Options.JobTimeout, and leaves the job
// to systemd when it stops waiting. A nil error says that the job was done; whether the unit is as wanted must be looked
// at (a condition of the unit may have been false). Errors: UnitNotFound, UnitMasked, UnitJobFailed, UnitStartLimit,
// UnitJobTimeout, PermissionDenied, BusDisconnected, NoSystemd.
func (b *Bus) Start(ctx context.Context, unit string) error {
	return b.runJob(ctx, "start", "StartUnit", unit)
}

// Stop stops a unit; see Start.
func (b *Bus) Stop(ctx context.Context, unit string) error {
	return b.runJob(ctx, "stop", "StopUnit", unit)
}

// Restart stops and starts a unit, and starts it if it was stopped; see Start.
func (b *Bus) Restart(ctx context.Context, unit string) error {
	return b.runJob(ctx, "restart", "RestartUnit", unit)
}

// ReloadOrRestart reloads a unit, restarts it where it cannot reload, and starts it if it was stopped; see Start.
func (b *Bus) ReloadOrRestart(ctx context.Context, unit string) error {
	return b.runJob(ctx, "reload", "ReloadOrRestartUnit", unit)
}

// ResetFailed clears a unit's failed state and its start limit.
func (b *Bus) ResetFailed(ctx context.Context, unit string) error {
	doing := "reset the failed state of unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.CallTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	if err := s.manager(ctx, "ResetFailedUnit", unit).Err; err != nil {
		return callError(doing, err)
	}
	return nil
}

// attempt is when an action began, on both clocks: the journal goes by one, systemd's states by the other.
type attempt struct {
	wall time.Time
	usec uint64
}

func (b *Bus) runJob(ctx context.Context, verb, method, unit string) error {
	doing := verb + " unit " + unit
	ctx, cancel := context.WithTimeout(ctx, b.opts.JobTimeout)
	defer cancel()
	s, err := b.session(ctx, doing)
	if err != nil {
		return err
	}
	begin := attempt{wall: time.Now(), usec: MonotonicNow()}
	result, err := b.queueAndWait(ctx, s, doing, method, unit)
	if err != nil {
		return err
	}
	if jobDone(result) {
		return nil
	}
	return b.explain(ctx, doing, unit, result, begin)
}

// queueAndWait queues the job with mode replace and returns its result.
func (b *Bus) queueAndWait(ctx context.Context, s *session, doing, method, unit string) (result string, err error) {
	s.jobs.begin()
	var path dbus.ObjectPath
	err = b.syncRules(ctx, s)
	if err == nil {
		if e := s.manager(ctx, method, unit, "replace").Store(&path); e != nil {
			err = callError(doing, e)
		}
	}
	ch := s.jobs.queued(path)
	defer func() {
		s.jobs.end(path, ch)
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = b.syncRules(after, s) // a rule too many costs a few wake-ups and goes with the next change
	}()
	if err != nil {
		return "", err
	}
	exists := func() bool {
		return s.conn.Object(busName, path).CallWithContext(ctx, propertiesInterface+".Get", 0, jobInterface, "Id").Err == nil
	}
	for {
		select {
		case result = <-ch:
			if result != recheckJob {
				return result, nil
			}
			if !exists() {
				return lastWord(ch), nil
			}
		case <-s.conn.Context().Done():
			return "", &reason.Error{Code: reason.BusDisconnected, Doing: doing, Cause: errors.New("connection lost while waiting for the job")}
		case <-ctx.Done():
			return "", &reason.Error{
				Code: reason.UnitJobTimeout, Doing: doing, Cause: ctx.Err(),
				Hint: "`systemctl list-jobs` shows what systemd still works on",
			}
		}
	}
}

const jobInterface = "org.freedesktop.systemd1.Job"

// jobLost stands for the result of a job that ended while nobody could hear it.
const jobLost = "lost"

// lastWord is the result of a job of which systemd says that it is no more: it may have ended, and told so, between the recheck and the
// question. What it told was read before the answer, because both come on one connection.
func lastWord(ch <-chan string) string {
	for {
		select {
		case result := <-ch:
			if result != recheckJob {
				return result
			}
		default:
			return jobLost
		}
	}
}

// jobDone reports whether a job ended as its caller wanted. Skipped means that it did not apply to the unit's state any
// more, for example starting what runs.
func jobDone(result string) bool { return result == "done" || result == "skipped" }

// explain makes the error for a job that ended with another result than done, from the state of its unit.
func (b *Bus) explain(ctx context.Context, doing, unit, result string, begin attempt) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	state, err := b.Unit(ctx, unit)
	if err != nil {
		return err
	}
	e := jobFailure(doing, result, state, begin.usec)
	e.Evidence = journalTail(ctx, unit, begin.wall)
	return e
}

// jobFailure is the error for a job with a result other than done and a unit in the given state; begin is when the job was
// asked for, CLOCK_MONOTONIC in microseconds.
func jobFailure(doing, result string, state UnitState, begin uint64) *reason.Error {
	e := &reason.Error{Code: reason.UnitJobFailed, Doing: doing, Hint: "`systemctl status " + state.Name + "` shows more"}
	switch result {
	case "timeout":
		e.Code, e.Cause = reason.UnitJobTimeout, errors.New("systemd gave up waiting")
	case "canceled":
		e.Cause = errors.New("another job replaced it")
	case "dependency":
		e.Cause = errors.New("a unit that it requires did not start")
		e.Hint = "`systemctl list-dependencies " + state.Name + "` shows which"
	case jobLost:
		e.Cause = fmt.Errorf("systemd restarted meanwhile; the unit is %s (%s)", state.ActiveState, state.SubState)
	default:
		e.Code, e.Cause = unitFailure(result, state, begin)
	}
	if e.Code == reason.UnitStartLimit {
		e.Hint = "find out why it keeps failing, then `systemctl reset-failed " + state.Name + "`"
	}
	return e
}

// unitFailure says why the unit itself failed. A unit over its start limit keeps the result of the failure before; it shows
// in that systemd did not even begin to start it.
func unitFailure(result string, state UnitState, begin uint64) (reason.Code, error) {
	refused := result == "failed" && state.ActiveState == "failed" && state.InactiveExit < begin
	if refused || state.Result == "start-limit-hit" {
		return reason.UnitStartLimit, errors.New("it was started too often in a short time")
	}
	switch state.Result {
	case "timeout":
		return reason.UnitJobTimeout, errors.New("the unit did not get ready in time")
	case "exit-code":
		return reason.UnitJobFailed, fmt.Errorf("exit status %d", state.ExecMainStatus)
	case "signal", "core-dump":
		return reason.UnitJobFailed, fmt.Errorf("killed by signal %d", state.ExecMainStatus)
	case "", "success":
		return reason.UnitJobFailed, fmt.Errorf("job result %s", result)
	}
	return reason.UnitJobFailed, fmt.Errorf("unit result %s", state.Result)
}
