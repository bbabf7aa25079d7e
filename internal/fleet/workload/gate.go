package workload

import (
	"time"

	declared "tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/fleet/rollout/pace"
)

// gated reports whether the gates count: not for what has worked before, and not where there is nothing to go back to.
func (w *work) gated() bool {
	return len(w.Spec.Rollout.Gates) > 0 && !w.plain() && w.Spec.Mode != declared.RunToCompletion
}

// gates looks at what was measured since something was available. broken is why the rollout has failed. holds is why it does not go on yet: a gate has no measure,
// or none from a moment on.
func (w *work) gates(since, from time.Time) (broken, holds string) {
	if !w.gated() {
		return "", ""
	}
	w.alarm.Passed(w.now.Add(pace.GateEvery))
	return pace.Gates(w.Spec.Rollout.Gates, w.Gates, since, from)
}
