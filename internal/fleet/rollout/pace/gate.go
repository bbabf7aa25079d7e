package pace

import (
	"fmt"
	"math"
	"time"

	"tako.dev/tako/declare"
)

// GateEvery is how often gates are looked at while a rollout is under way: measures come a few times a minute.
const GateEvery = 5 * time.Second

// Reading is what was measured for a gate last. The zero Reading is that of what nobody has measured yet.
type Reading struct {
	At      time.Time
	Value   float64
	Missing string // why there is none, for people
}

// Gates looks at what was measured, by the names of the gates, since a moment. broken is why the rollout has failed. holds is why it does not go on
// yet: a gate has no measure, or none from another moment on.
func Gates(gates []declare.Gate, measured map[string]Reading, since, from time.Time) (broken, holds string) {
	hold := func(words string) {
		if holds == "" {
			holds = words
		}
	}
	for i := range gates {
		g := &gates[i]
		r := measured[g.Name]
		if r.Missing == "" && math.IsNaN(r.Value) {
			r.Missing = "the answer is no number"
		}
		if r.Missing != "" {
			hold(fmt.Sprintf("gate %s is not measured: %s", g.Name, r.Missing))
			continue
		}
		if bad := outside(g, r.Value); bad != "" && !r.At.Before(since) {
			return bad, ""
		}
		if r.At.Before(from) {
			hold(fmt.Sprintf("gate %s is to be measured once more", g.Name))
		}
	}
	return "", holds
}

// outside says by what a measure is out of the bounds of a gate. Empty: it is not.
func outside(g *declare.Gate, value float64) string {
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
