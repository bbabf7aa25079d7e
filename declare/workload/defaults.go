package workload

import (
	"cmp"
	"time"

	"tako.dev/tako/declare"
)

// The defaults. Those of Kubernetes are its own where the field is; the others say where they come from.
const (
	replicasDefault             = 1
	revisionHistoryLimitDefault = 10
	backoffLimitDefault         = 6
	keepFinishedDefault         = 24 * time.Hour // ours: who looks the next morning still finds it
	paceDefault                 = declare.IntOrPercent("25%")
	progressDeadlineDefault     = 10 * time.Minute
	afterDefault                = 5 * time.Minute
	maxFailuresDefault          = 1 // ours: one failure of a new revision is one too many
	toleranceDefault            = 10
	stabilizationDownDefault    = 5 * time.Minute
	scalePeriodDefault          = 15 * time.Second
	upFewest                    = 4
	terminationGraceDefault     = 30 * time.Second
	backoffDefault              = time.Second // ours: what crashes at once is tried again before a person has looked
	backoffMaxDefault           = 5 * time.Minute
	resetAfterDefault           = 10 * time.Minute
	processesDefault            = 4096 // ours: no program needs more, and a fork bomb ends far below what a node can bear
	probePeriodDefault          = 10 * time.Second
	startupPeriodDefault        = time.Second // ours: a start is waited for
	probeTimeoutDefault         = time.Second
	failureThresholdDefault     = 3
	startupFailuresDefault      = 60 // ours: a minute of the period above
)

// durationOr reads a duration that Validate has accepted.
func durationOr(text string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	return otherwise
}

// intOr returns the number that was declared, or the default.
func intOr(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}

// ModeOrDefault returns how the number of instances follows: Replicated when nothing is declared.
func (s *Spec) ModeOrDefault() Mode { return cmp.Or(s.Mode, Replicated) }

// ReplicasOrDefault returns how many instances there are with mode Replicated: 1 when nothing is declared.
func (s *Spec) ReplicasOrDefault() int { return intOr(s.Replicas, replicasDefault) }

// RevisionHistoryLimitOrDefault returns how many old revisions are kept: 10 when nothing is declared.
func (s *Spec) RevisionHistoryLimitOrDefault() int {
	return intOr(s.RevisionHistoryLimit, revisionHistoryLimitDefault)
}

// PaceOrDefault returns how many instances there may be beyond a number of them, and how many of that number may be missing, while a new
// revision comes. Surge is rounded up and unavailable down; where both come to nothing, one may be missing, or nothing could ever go on.
// With mode PerNode there is no surge: a second instance on a node would be one too many there.
func (s *Spec) PaceOrDefault(total int) (surge, unavailable int) {
	if s.ModeOrDefault() != PerNode {
		surge = cmp.Or(s.Rollout.MaxSurge, paceDefault).Up(total)
	}
	unavailable = cmp.Or(s.Rollout.MaxUnavailable, paceDefault).Down(total)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// CompletionsOrDefault returns how many instances must end well: 1 when nothing is declared.
func (j *Job) CompletionsOrDefault() int {
	if j == nil {
		return 1
	}
	return intOr(j.Completions, 1)
}

// ParallelismOrDefault returns how many run at once: 1 when nothing is declared.
func (j *Job) ParallelismOrDefault() int {
	if j == nil {
		return 1
	}
	return intOr(j.Parallelism, 1)
}

// BackoffLimitOrDefault returns how many failures there may be before the job has failed: 6 when nothing is declared.
func (j *Job) BackoffLimitOrDefault() int {
	if j == nil {
		return backoffLimitDefault
	}
	return intOr(j.BackoffLimit, backoffLimitDefault)
}

// ActiveDeadlineOrZero returns after how long the job is ended; 0 for never.
func (j *Job) ActiveDeadlineOrZero() time.Duration {
	if j == nil {
		return 0
	}
	return durationOr(j.ActiveDeadline, 0)
}

// KeepFinishedOrDefault returns for how long what has ended is kept: a day when nothing is declared.
func (j *Job) KeepFinishedOrDefault() time.Duration {
	if j == nil {
		return keepFinishedDefault
	}
	return durationOr(j.KeepFinished, keepFinishedDefault)
}

// TimeZoneOrDefault returns the name of the zone that the schedule is read in: UTC when nothing is declared.
func (s *Schedule) TimeZoneOrDefault() string { return cmp.Or(s.TimeZone, "UTC") }

// ConcurrencyOrDefault returns what happens while the run before is not over: Forbid when nothing is declared.
func (s *Schedule) ConcurrencyOrDefault() Concurrency { return cmp.Or(s.Concurrency, Forbid) }

// MissedRunOrDefault returns what becomes of missed runs: RunOnce when nothing is declared.
func (s *Schedule) MissedRunOrDefault() MissedRun { return cmp.Or(s.MissedRun, RunOnce) }

// StartingDeadlineOrZero returns for how long after its time a run may start; 0 for until the next one.
func (s *Schedule) StartingDeadlineOrZero() time.Duration { return durationOr(s.StartingDeadline, 0) }

// AllowedOrDefault returns how many of a number of instances may be unavailable on purpose: one when nothing is declared.
func (b *DisruptionBudget) AllowedOrDefault(total int) int {
	switch {
	case b == nil:
		return 1
	case b.MinAvailable != "":
		return max(0, total-b.MinAvailable.Up(total))
	}
	return b.MaxUnavailable.Down(total)
}

// SurgeFirstOrDefault returns whether a replacement is started before an instance is taken away where too few would be left: true when
// nothing is declared.
func (b *DisruptionBudget) SurgeFirstOrDefault() bool {
	return b == nil || b.SurgeFirst == nil || *b.SurgeFirst
}

// ActionOrDefault returns what becomes of instances on a node that nobody hears: Replace when nothing is declared.
func (o *OnUnreachable) ActionOrDefault() UnreachableAction {
	if o == nil {
		return ReplaceUnreachable
	}
	return cmp.Or(o.Action, ReplaceUnreachable)
}

// AfterOrDefault returns for how long nobody must have heard of the node: 5 minutes when nothing is declared.
func (o *OnUnreachable) AfterOrDefault() time.Duration {
	if o == nil {
		return afterDefault
	}
	return durationOr(o.After, afterDefault)
}

// ReconnectOrDefault returns which of two copies with one revision stays: Original when nothing is declared.
func (o *OnUnreachable) ReconnectOrDefault() Reconnect {
	if o == nil {
		return KeepOriginal
	}
	return cmp.Or(o.Reconnect, KeepOriginal)
}

// StrategyOrDefault returns how a new revision comes: Rolling when nothing is declared.
func (r *Rollout) StrategyOrDefault() RolloutStrategy { return cmp.Or(r.Strategy, Rolling) }

// MinReadyOrDefault returns for how long an instance must have been ready to count as available: 0 when nothing is declared.
func (r *Rollout) MinReadyOrDefault() time.Duration { return durationOr(r.MinReady, 0) }

// ProgressDeadlineOrDefault returns for how long nothing may go on: 10 minutes when nothing is declared.
func (r *Rollout) ProgressDeadlineOrDefault() time.Duration {
	return durationOr(r.ProgressDeadline, progressDeadlineDefault)
}

// PromotionOrDefault returns who says that it goes on: Automatic when nothing is declared.
func (r *Rollout) PromotionOrDefault() Promotion { return cmp.Or(r.Promotion, AutomaticPromotion) }

// KeepOldOrDefault returns for how long the blue half stays: 0 when nothing is declared.
func (r *Rollout) KeepOldOrDefault() time.Duration { return durationOr(r.KeepOld, 0) }

// MaxFailuresOrDefault returns how many instances of the new revision may fail before the rollout has failed: 1 when nothing is declared.
func (r *Rollout) MaxFailuresOrDefault(total int) int {
	if r.MaxFailures == "" {
		return maxFailuresDefault
	}
	return max(1, r.MaxFailures.Up(total))
}

// MonitorOrDefault returns for how long after the last step failures still count: 0 when nothing is declared.
func (r *Rollout) MonitorOrDefault() time.Duration { return durationOr(r.Monitor, 0) }

// OnFailureOrDefault returns what becomes of a rollout that has failed: RollBack when nothing is declared.
func (r *Rollout) OnFailureOrDefault() declare.OnFailure {
	return cmp.Or(r.OnFailure, declare.RollBack)
}

// Instances returns how many of a number of replicas have the new revision at this step.
func (c *CanaryStep) Instances(replicas int) int { return min(replicas, c.Replicas.Up(replicas)) }

// PauseOrDefault returns for how long they must have been available: 0 when nothing is declared.
func (c *CanaryStep) PauseOrDefault() time.Duration { return durationOr(c.Pause, 0) }

// PromotionOrDefault returns who says that it goes on after the step: what the rollout says when nothing is declared.
func (c *CanaryStep) PromotionOrDefault(r *Rollout) Promotion {
	return cmp.Or(c.Promotion, r.PromotionOrDefault())
}

// MinOrDefault returns the fewest instances: 1 when nothing is declared.
func (s *Scale) MinOrDefault() int { return intOr(s.Min, 1) }

// ToleranceOrDefault returns by how many percent a measure may be off: 10 when nothing is declared.
func (s *Scale) ToleranceOrDefault() int { return intOr(s.Tolerance, toleranceDefault) }

// UpStabilizationOrDefault returns for how long the lowest answer counts before the number grows: 0 when nothing is declared.
func (s *Scale) UpStabilizationOrDefault() time.Duration { return durationOr(s.Up.Stabilization, 0) }

// DownStabilizationOrDefault returns for how long the highest answer counts before the number shrinks: 5 minutes when nothing is declared.
func (s *Scale) DownStabilizationOrDefault() time.Duration {
	return durationOr(s.Down.Stabilization, stabilizationDownDefault)
}

// UpMaxChangeOrDefault returns how many may come in a period that began with a number of instances: as many again, and at least 4, when
// nothing is declared.
func (s *Scale) UpMaxChangeOrDefault(current int) int {
	if s.Up.MaxChange == "" {
		return max(current, upFewest)
	}
	return max(1, s.Up.MaxChange.Up(current))
}

// DownMaxChangeOrDefault returns how many may go in a period that began with a number of instances: all when nothing is declared.
func (s *Scale) DownMaxChangeOrDefault(current int) int {
	if s.Down.MaxChange == "" {
		return current
	}
	return max(1, s.Down.MaxChange.Up(current))
}

// PeriodOrDefault returns what maxChange counts in: 15 seconds when nothing is declared.
func (b *ScaleBound) PeriodOrDefault() time.Duration { return durationOr(b.Period, scalePeriodDefault) }

// RuntimeOrDefault returns what runs the tasks: OCI where a task has an image, and Systemd otherwise, when nothing is declared.
func (t *Template) RuntimeOrDefault() Runtime {
	if t.Runtime != "" {
		return t.Runtime
	}
	for i := range t.Tasks {
		if t.Tasks[i].Image != nil {
			return OCI
		}
	}
	return Systemd
}

// NetworkOrDefault returns which network tasks have: the host's when nothing is declared.
func (t *Template) NetworkOrDefault() Network { return cmp.Or(t.Network, HostNetwork) }

// TerminationGraceOrDefault returns how long tasks have to end: 30 seconds when nothing is declared.
func (t *Template) TerminationGraceOrDefault() time.Duration {
	return durationOr(t.TerminationGrace, terminationGraceDefault)
}

// ShutdownDelayOrDefault returns how long an instance goes on after it was withdrawn: not at all when nothing is declared.
func (t *Template) ShutdownDelayOrDefault() time.Duration { return durationOr(t.ShutdownDelay, 0) }

// PolicyOrDefault returns when a task that has ended is started again: when nothing is declared, Always, and Never with mode Job, where
// another instance is tried.
func (r *Restart) PolicyOrDefault(m Mode) RestartPolicy {
	switch {
	case r.Policy != "":
		return r.Policy
	case m == RunToCompletion:
		return RestartNever
	}
	return RestartAlways
}

// BackoffOrDefault returns the first pause: a second when nothing is declared.
func (r *Restart) BackoffOrDefault() time.Duration { return durationOr(r.Backoff, backoffDefault) }

// BackoffMaxOrDefault returns the longest pause, which is not shorter than the first: 5 minutes when nothing is declared.
func (r *Restart) BackoffMaxOrDefault() time.Duration {
	return max(durationOr(r.BackoffMax, backoffMaxDefault), r.BackoffOrDefault())
}

// ResetAfterOrDefault returns for how long a task must have run well to begin again with the first pause: 10 minutes when nothing is
// declared.
func (r *Restart) ResetAfterOrDefault() time.Duration {
	return durationOr(r.ResetAfter, resetAfterDefault)
}

// StopSignalOrDefault returns the signal that asks the task to end: SIGTERM when nothing is declared.
func (t *Task) StopSignalOrDefault() string { return cmp.Or(t.StopSignal, "SIGTERM") }

// ProtocolOrDefault returns what is spoken below the port: TCP when nothing is declared.
func (p *Port) ProtocolOrDefault() Protocol { return cmp.Or(p.Protocol, TCP) }

// ProcessesOrDefault returns how many processes and threads there may be, of the limits: 4096 when nothing is declared.
func (a *Amounts) ProcessesOrDefault() int { return intOr(a.Processes, processesDefault) }

// CountOrDefault returns how many pieces: 1 when nothing is declared.
func (d *Device) CountOrDefault() int { return intOr(d.Count, 1) }

// StickOrDefault returns whether an instance waits for the node that has its data: Must when nothing is declared.
func (d *DataVolume) StickOrDefault() Stick { return cmp.Or(d.Stick, MustStick) }

// Stick returns the strongest bond of the data volumes to a node; empty: there are none.
func (t *Template) Stick() Stick {
	var strongest Stick
	for i := range t.Volumes {
		if d := t.Volumes[i].Data; d != nil && strongest != MustStick {
			strongest = d.StickOrDefault()
		}
	}
	return strongest
}

// ModeOrDefault returns who may read the file: 0444 when nothing is declared, and 0400 of a Secret.
func (f *File) ModeOrDefault() uint32 {
	if bits, ok := f.Mode.Bits(); ok {
		return bits
	}
	if f.Secret != nil {
		return 0o400
	}
	return 0o444
}

// Purpose is what a probe is asked for, which some of its defaults depend on.
//
// +k8s:openapi-gen=false
type Purpose uint8

// The purposes of probes.
const (
	Startup Purpose = iota
	Readiness
	Liveness
)

// DelayOrDefault returns how long after the start the first question comes: 0 when nothing is declared.
func (p *Probe) DelayOrDefault() time.Duration { return durationOr(p.Delay, 0) }

// PeriodOrDefault returns how long it is from one question to the next: when nothing is declared, a second for startup, and 10 otherwise.
func (p *Probe) PeriodOrDefault(asked Purpose) time.Duration {
	if asked == Startup {
		return durationOr(p.Period, startupPeriodDefault)
	}
	return durationOr(p.Period, probePeriodDefault)
}

// TimeoutOrDefault returns how long an answer may take: a second when nothing is declared.
func (p *Probe) TimeoutOrDefault() time.Duration { return durationOr(p.Timeout, probeTimeoutDefault) }

// SuccessThresholdOrDefault returns how many yes in a row make it so: 1 when nothing is declared.
func (p *Probe) SuccessThresholdOrDefault() int { return intOr(p.SuccessThreshold, 1) }

// FailureThresholdOrDefault returns how many no in a row end it: when nothing is declared, 60 for startup, and 3 otherwise.
func (p *Probe) FailureThresholdOrDefault(asked Purpose) int {
	if asked == Startup {
		return intOr(p.FailureThreshold, startupFailuresDefault)
	}
	return intOr(p.FailureThreshold, failureThresholdDefault)
}

// PathOrDefault returns what is asked for: / when nothing is declared.
func (h *HTTPProbe) PathOrDefault() string { return cmp.Or(h.Path, "/") }

// SchemeOrDefault returns http or https: http when nothing is declared.
func (h *HTTPProbe) SchemeOrDefault() string { return cmp.Or(h.Scheme, "http") }

// StrategyOrDefault returns which nodes are better: those that have more free when nothing is declared.
func (p *Placement) StrategyOrDefault() Strategy { return cmp.Or(p.Strategy, Spread) }

// WhenLabelsChangeOrDefault returns what becomes of an instance whose node no longer fits: it stays when nothing is declared.
func (p *Placement) WhenLabelsChangeOrDefault() WhenLabelsChange {
	return cmp.Or(p.WhenLabelsChange, Stay)
}

// WeightOrDefault returns by how much the nodes are better: 1 when nothing is declared.
func (p *PreferredNodes) WeightOrDefault() int { return intOr(p.Weight, 1) }

// Required reports whether the relation must hold, and is no wish.
func (a *Affinity) Required() bool { return a.Weight == nil }

// MaxSkewOrDefault returns by how many the fullest value may be ahead: 1 when nothing is declared.
func (t *TopologySpread) MaxSkewOrDefault() int { return intOr(t.MaxSkew, 1) }

// MinDomainsOrDefault returns how many values there must be: 1 when nothing is declared.
func (t *TopologySpread) MinDomainsOrDefault() int { return intOr(t.MinDomains, 1) }

// WhenUnsatisfiableOrDefault returns what a spread does that cannot be kept: DoNotSchedule when nothing is declared.
func (t *TopologySpread) WhenUnsatisfiableOrDefault() WhenUnsatisfiable {
	return cmp.Or(t.WhenUnsatisfiable, DoNotSchedule)
}

// OperatorOrDefault returns how the toleration compares: Equal when nothing is declared.
func (t *Toleration) OperatorOrDefault() TolerationOperator {
	return cmp.Or(t.Operator, TolerationEqual)
}
