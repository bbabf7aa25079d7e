package workload

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/casetest"
)

// Surge is rounded up and unavailable down, as Kubernetes does it; nothing at all is refused, and where it comes of rounding it is one.
func TestWorkloadCase09_PercentRounding(t *testing.T) {
	c := casetest.Start(t)
	for _, row := range []struct {
		surge, unavailable        declare.IntOrPercent
		replicas                  int
		wantSurge, wantUnavailabl int
	}{
		{"", "", 1, 1, 0}, {"", "", 4, 1, 1}, {"", "", 10, 3, 2}, {"25%", "25%", 1, 1, 0}, {"25%", "25%", 3, 1, 0}, {"25%", "25%", 5, 2, 1},
		{"0", "25%", 3, 0, 1}, {"0%", "1%", 99, 0, 1}, {"0", "1%", 100, 0, 1}, {"0", "50%", 3, 0, 1}, {"100%", "0", 7, 7, 0}, {"3", "0", 1, 3, 0}, {"1%", "0", 1, 1, 0}, {"", "", 0, 0, 1},
	} {
		s := Spec{Rollout: Rollout{MaxSurge: row.surge, MaxUnavailable: row.unavailable}}
		surge, unavailable := s.PaceOrDefault(row.replicas)
		c.Equal([]int{surge, unavailable}, []int{row.wantSurge, row.wantUnavailabl}, string(row.surge+"/"+row.unavailable))
		s.Mode = PerNode
		surge, unavailable = s.PaceOrDefault(row.replicas)
		c.Check(surge == 0 && unavailable >= 1, "on each node: %d beyond, %d missing", surge, unavailable)
	}
	for _, both := range []declare.IntOrPercent{"0", "0%"} {
		d := read(t, spec(task))
		d.Spec.Rollout = Rollout{MaxSurge: both, MaxUnavailable: both}
		faults := Validate("w", "", &d.Spec)
		c.Check(len(faults) == 1 && faults[0].Path == "spec.rollout.maxUnavailable", "both %s: %v", both, faults)
	}
}

// TestPace: whatever is declared and however many there are, something may always go on, and by percentages never more than all at once.
func TestPace(t *testing.T) {
	share := rapid.OneOf(rapid.Just(declare.IntOrPercent("")), rapid.Map(rapid.StringMatching(`([0-9]|[1-9][0-9]|100)%?`), func(s string) declare.IntOrPercent { return declare.IntOrPercent(s) }))
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{Mode: rapid.SampledFrom([]Mode{"", Replicated, PerNode}).Draw(t, "mode"), Rollout: Rollout{MaxSurge: share.Draw(t, "surge"), MaxUnavailable: share.Draw(t, "unavailable")}}
		total := rapid.IntRange(0, 100_000).Draw(t, "total")
		surge, unavailable := s.PaceOrDefault(total)
		if surge < 0 || unavailable < 0 || surge+unavailable < 1 {
			t.Fatalf("of %d: %d beyond, %d missing", total, surge, unavailable)
		}
		_, percent, _ := s.Rollout.MaxSurge.Parse()
		exact := float64(total) / 4
		if n, _, _ := s.Rollout.MaxSurge.Parse(); percent {
			exact = float64(total) * float64(n) / 100
		}
		if s.Mode != PerNode && (percent || s.Rollout.MaxSurge == "") && surge != int(math.Ceil(exact-1e-9)) {
			t.Fatalf("%s of %d is %d", s.Rollout.MaxSurge, total, surge)
		}
	})
}

func TestBudget(t *testing.T) {
	for _, row := range []struct {
		budget *DisruptionBudget
		total  int
		want   int
	}{
		{nil, 10, 1}, {&DisruptionBudget{MaxUnavailable: "30%"}, 10, 3}, {&DisruptionBudget{MaxUnavailable: "30%"}, 3, 0}, {&DisruptionBudget{MinAvailable: "75%"}, 10, 2},
		{&DisruptionBudget{MinAvailable: "20"}, 10, 0}, {&DisruptionBudget{MinAvailable: "0"}, 10, 10}, {&DisruptionBudget{MaxUnavailable: "0"}, 10, 0},
	} {
		if got := row.budget.AllowedOrDefault(row.total); got != row.want {
			t.Errorf("%+v of %d: %d, want %d", row.budget, row.total, got, row.want)
		}
	}
}

// TestDefaults are those that the comments of the fields say.
func TestDefaults(t *testing.T) {
	d := read(t, spec(task))
	s, probe := &d.Spec, &Probe{}
	if s.ModeOrDefault() != Replicated || s.ReplicasOrDefault() != 1 || s.RevisionHistoryLimitOrDefault() != 10 || s.OnUnreachable.ActionOrDefault() != ReplaceUnreachable ||
		s.OnUnreachable.AfterOrDefault() != 5*time.Minute || s.Rollout.ProgressDeadlineOrDefault() != 10*time.Minute || s.Rollout.MaxFailuresOrDefault(50) != 1 || !s.DisruptionBudget.SurgeFirstOrDefault() {
		t.Errorf("of the workload: %+v", s)
	}
	if r := &s.Template.Restart; s.Template.RuntimeOrDefault() != Systemd || s.Template.TerminationGraceOrDefault() != 30*time.Second || r.PolicyOrDefault(Replicated) != RestartAlways ||
		r.PolicyOrDefault(RunToCompletion) != RestartNever || r.BackoffOrDefault() != time.Second || r.BackoffMaxOrDefault() != 5*time.Minute || r.ResetAfterOrDefault() != 10*time.Minute {
		t.Errorf("of the template: %+v", s.Template)
	}
	if probe.PeriodOrDefault(Startup) != time.Second || probe.PeriodOrDefault(Liveness) != 10*time.Second || probe.FailureThresholdOrDefault(Startup) != 60 || probe.FailureThresholdOrDefault(Readiness) != 3 ||
		probe.TimeoutOrDefault() != time.Second || probe.SuccessThresholdOrDefault() != 1 || probe.DelayOrDefault() != 0 {
		t.Errorf("of a probe")
	}
	if (&File{}).ModeOrDefault() != 0o444 || (&File{Secret: &declare.KeySelector{}}).ModeOrDefault() != 0o400 || (&File{Mode: "0640"}).ModeOrDefault() != 0o640 {
		t.Errorf("of a file")
	}
	scale := &Scale{}
	if scale.UpMaxChangeOrDefault(1) != 4 || scale.UpMaxChangeOrDefault(30) != 30 || scale.DownMaxChangeOrDefault(30) != 30 || scale.UpStabilizationOrDefault() != 0 ||
		scale.DownStabilizationOrDefault() != 5*time.Minute || scale.Up.PeriodOrDefault() != 15*time.Second || scale.ToleranceOrDefault() != 10 {
		t.Errorf("of a scale")
	}
	job := (*Job)(nil)
	if job.CompletionsOrDefault() != 1 || job.ParallelismOrDefault() != 1 || job.BackoffLimitOrDefault() != 6 || job.ActiveDeadlineOrZero() != 0 || job.KeepFinishedOrDefault() != 24*time.Hour {
		t.Errorf("of a job")
	}
}

// checkBounds looks at every default of a workload that was taken.
func checkBounds(t testing.TB, s *Spec) {
	t.Helper()
	within := func(what string, n, least, most int) {
		t.Helper()
		if n < least || n > most {
			t.Errorf("%s is %d, and not from %d to %d", what, n, least, most)
		}
	}
	lasts := func(what string, d, least, most time.Duration) {
		t.Helper()
		if d < least || d > most {
			t.Errorf("%s is %s, and not from %s to %s", what, d, least, most)
		}
	}
	within("replicas", s.ReplicasOrDefault(), 0, replicasMax)
	within("revisionHistoryLimit", s.RevisionHistoryLimitOrDefault(), 1, historyMax)
	for _, total := range []int{0, 1, s.ReplicasOrDefault(), replicasMax} {
		surge, unavailable := s.PaceOrDefault(total)
		within("surge and unavailable", surge+unavailable, 1, 2*replicasMax)
		within("maxFailures", s.Rollout.MaxFailuresOrDefault(total), 1, replicasMax)
		within("budget", s.DisruptionBudget.AllowedOrDefault(total), 0, replicasMax)
	}
	within("completions", s.Job.CompletionsOrDefault(), 1, replicasMax)
	within("parallelism", s.Job.ParallelismOrDefault(), 1, replicasMax)
	within("backoffLimit", s.Job.BackoffLimitOrDefault(), 0, backoffLimitMax)
	lasts("activeDeadline", s.Job.ActiveDeadlineOrZero(), 0, longest)
	lasts("keepFinished", s.Job.KeepFinishedOrDefault(), 0, longest)
	lasts("after", s.OnUnreachable.AfterOrDefault(), 15*time.Second, week)
	r := &s.Rollout
	lasts("minReady", r.MinReadyOrDefault(), 0, r.ProgressDeadlineOrDefault()-1)
	lasts("progressDeadline", r.ProgressDeadlineOrDefault(), shortest, week)
	for i := range r.Steps {
		within("step", r.Steps[i].Instances(100), 1, 100)
		lasts("pause", r.Steps[i].PauseOrDefault(), 0, week)
	}
	if c := s.Scale; c != nil {
		within("min", c.MinOrDefault(), 0, int(c.Max))
		within("maxChange up", c.UpMaxChangeOrDefault(10), 1, math.MaxInt32)
		within("maxChange down", c.DownMaxChangeOrDefault(10), 1, math.MaxInt32)
		lasts("stabilization", c.DownStabilizationOrDefault(), 0, time.Hour)
		lasts("period", c.Up.PeriodOrDefault(), time.Second, time.Hour)
	}
	lasts("shutdownDelay", s.Template.ShutdownDelayOrDefault(), 0, time.Hour)
	lasts("terminationGrace", s.Template.TerminationGraceOrDefault(), 0, day)
	restart := &s.Template.Restart
	lasts("backoff", restart.BackoffOrDefault(), 100*time.Millisecond, time.Hour)
	lasts("backoffMax", restart.BackoffMaxOrDefault(), restart.BackoffOrDefault(), day)
	lasts("resetAfter", restart.ResetAfterOrDefault(), shortest, day)
	within("tasks", len(s.Template.Tasks), 1, tasksMax)
	for i := range s.Template.Tasks {
		task := &s.Template.Tasks[i]
		within("processes", task.Resources.Limits.ProcessesOrDefault(), 1, 1<<22)
		for purpose, p := range []*Probe{Startup: task.Startup, Readiness: task.Readiness, Liveness: task.Liveness} {
			if p != nil {
				lasts("period", p.PeriodOrDefault(Purpose(purpose)), 100*time.Millisecond, time.Hour)
				lasts("timeout", p.TimeoutOrDefault(), time.Millisecond, 5*time.Minute)
				within("failureThreshold", p.FailureThresholdOrDefault(Purpose(purpose)), 1, 10_000)
			}
		}
	}
}
