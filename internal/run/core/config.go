package core

import (
	"cmp"

	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/run"
)

// Config is how a task is to live, with every default filled in.
type Config struct {
	Policy     workload.RestartPolicy
	Backoff    time.Duration // the first pause
	BackoffMax time.Duration // the longest
	ResetAfter time.Duration // how long it has run well until the first pause counts again
	StopSignal run.Signal
	StopDelay  time.Duration // from the wish that what is used ends to the stop signal
	Grace      time.Duration // from the stop signal to the kill
	Probes     [ProbeKinds]*Probe
	// Leased says that the task may run while there is a lease only (Leased): with onUnreachable Fence. It is no part of the state, which may
	// be lost. Of does not set it.
	Leased bool
}

// ProbeKind is what a probe is about.
type ProbeKind uint8

// The probes of a task.
const (
	Startup ProbeKind = iota
	Readiness
	Liveness
	ProbeKinds // how many there are
)

var probeNames = [ProbeKinds]string{"startup", "readiness", "liveness"}

// String is the name of the probe.
func (k ProbeKind) String() string {
	if k < ProbeKinds {
		return probeNames[k]
	}
	return "unknown"
}

// Probe is when a question is put, and how its answers count.
type Probe struct {
	Delay   time.Duration // from the start to the first question
	Period  time.Duration // from one question to the next
	Timeout time.Duration // how long an answer may take
	Yes, No int           // how many answers in a row settle it
}

// The defaults of package workload, as the comments of its fields have them.
const (
	backoffDefault       = time.Second
	backoffMaxDefault    = 5 * time.Minute
	resetAfterDefault    = 10 * time.Minute
	graceDefault         = 30 * time.Second
	startupPeriodDefault = time.Second
	periodDefault        = 10 * time.Second
	timeoutDefault       = time.Second
	failuresDefault      = 3
	startupFailures      = 60
)

// Of is the life that a template gives to one of its tasks.
func Of(template *workload.Template, task *workload.Task) (Config, error) {
	signal, err := run.ParseSignal(cmp.Or(task.StopSignal, "SIGTERM"))
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Policy:     cmp.Or(template.Restart.Policy, workload.RestartAlways),
		Backoff:    positiveOr(template.Restart.Backoff, backoffDefault),
		BackoffMax: positiveOr(template.Restart.BackoffMax, backoffMaxDefault),
		ResetAfter: durationOr(template.Restart.ResetAfter, resetAfterDefault),
		StopSignal: signal,
		StopDelay:  durationOr(template.ShutdownDelay, 0),
		Grace:      durationOr(template.TerminationGrace, graceDefault),
	}
	c.BackoffMax = max(c.BackoffMax, c.Backoff)
	c.Probes[Startup] = probeOf(task.Startup, startupPeriodDefault, startupFailures)
	c.Probes[Readiness] = probeOf(task.Readiness, periodDefault, failuresDefault)
	c.Probes[Liveness] = probeOf(task.Liveness, periodDefault, failuresDefault)
	return c, nil
}

func probeOf(p *workload.Probe, period time.Duration, failures int) *Probe {
	if p == nil {
		return nil
	}
	return &Probe{
		Delay: durationOr(p.Delay, 0), Period: positiveOr(p.Period, period), Timeout: positiveOr(p.Timeout, timeoutDefault),
		Yes: countOr(p.SuccessThreshold, 1), No: countOr(p.FailureThreshold, failures),
	}
}

// durationOr reads a duration that was validated; what is left out, and what is not to be read, is the other one.
func durationOr(text string, other time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return d
	}
	return other
}

// positiveOr reads a duration without which there would be no pause at all.
func positiveOr(text string, other time.Duration) time.Duration {
	if d := durationOr(text, other); d > 0 {
		return d
	}
	return other
}

func countOr(n *int32, other int) int {
	if n != nil && *n > 0 {
		return int(*n)
	}
	return other
}
