package workload

import (
	"fmt"
	"math"
	"time"

	declared "tako.dev/tako/declare/workload"
)

// gateEvery is how often the gates of a rollout are looked at while it waits for them: measures come a few times a minute.
const gateEvery = 5 * time.Second

// Reading is what was measured for a gate last.
type Reading struct {
	At      time.Time
	Value   float64
	Missing string // why there is none, for people; empty: there is one, or nobody has measured yet
}

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
	w.alarm.Passed(w.now.Add(gateEvery))
	for i := range w.Spec.Rollout.Gates {
		g := &w.Spec.Rollout.Gates[i]
		r := w.Gates[g.Name]
		if r.Missing == "" && math.IsNaN(r.Value) {
			r.Missing = "the answer is no number"
		}
		bad := ""
		switch {
		case r.Missing != "":
			holds = orElse(holds, fmt.Sprintf("gate %s is not measured: %s", g.Name, r.Missing))
			continue
		case !r.At.Before(since):
			bad = outside(g, r.Value)
		}
		if bad != "" {
			return bad, ""
		}
		if r.At.Before(from) {
			holds = orElse(holds, fmt.Sprintf("gate %s is to be measured once more", g.Name))
		}
	}
	return "", holds
}

// outside says by what a measure is out of the bounds of a gate. Empty: it is not.
func outside(g *declared.Gate, value float64) string {
	const thousandths = 1000
	if g.Max != nil {
		if most, err := g.Max.Milli(); err == nil && value > float64(most)/thousandths { // validation lets nothing else through
			return fmt.Sprintf("gate %s measures %.4g, and its max is %s", g.Name, value, *g.Max)
		}
	}
	if g.Min != nil {
		if least, err := g.Min.Milli(); err == nil && value < float64(least)/thousandths {
			return fmt.Sprintf("gate %s measures %.4g, and its min is %s", g.Name, value, *g.Min)
		}
	}
	return ""
}
