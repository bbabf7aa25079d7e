package scale

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// whole is one fully used instance: shares are counted in millionths, in integers, so that their sum does not depend on an order.
const whole = 1_000_000

// The most that a share, and a sum, may be: what is above has the same consequence, and no product here overflows.
const (
	shareMax = 1000 * whole
	sumMax   = 1_000_000 * whole
)

// estimate is how many fully used instances a measure comes to.
type estimate struct {
	up, down int64 // on the careful side of each direction
	slack    int64 // what rounding may have added
	answered bool  // false: nothing may shrink
	words    string
}

// asked returns the number that the measures ask for: the highest of all targets. False: a target has no answer, and the others ask for no
// more than there are.
func (d *decider) asked() (highest int, known bool) {
	known = true
	for i := range d.Spec.Targets {
		t := &d.Spec.Targets[i]
		e := d.estimate(t)
		wants := d.wants(&e)
		d.say("%s: %s, which needs %d", t.Name, e.words, wants)
		highest = max(highest, wants)
		known = known && e.answered
	}
	if !known && d.overdue() {
		d.code = reason.NoSamples
	}
	if !known && highest <= d.s.Replicas {
		d.say("it stays while a measure is missing")
		return 0, false
	}
	return highest, true
}

// overdue reports whether measures should be there by now: the first ones, and those after a change, take a while.
func (d *decider) overdue() bool {
	return d.now.Sub(d.s.Decided) > freshFor && d.now.Sub(d.changed()) > freshFor
}

// wants turns an estimate into a number of instances; within the tolerance it is the current one.
func (d *decider) wants(e *estimate) int {
	current, tolerance := int64(d.s.Replicas), int64(d.Spec.ToleranceOrDefault())
	switch {
	case (e.up-e.slack)*100 > current*whole*(100+tolerance):
		return ceil(e.up - e.slack)
	case (e.down-e.slack)*100 < current*whole*(100-tolerance):
		return ceil(e.down - e.slack)
	}
	return int(current)
}

func ceil(shares int64) int { return int(max(0, shares+whole-1) / whole) }

func (d *decider) estimate(t *workload.ScaleTarget) estimate {
	switch {
	case t.CPU != nil:
		return d.usage("processors", *t.CPU, func(i *Instance) (used, requested int64) { return i.Sample.CPU, i.CPU })
	case t.Memory != nil:
		return d.usage("memory", *t.Memory, func(i *Instance) (used, requested int64) { return i.Sample.Memory, i.Memory })
	}
	return d.answer(t)
}

// usage is what instances use on average of their requests, against percent of them.
func (d *decider) usage(what string, percent int32, of func(*Instance) (used, requested int64)) estimate {
	var shares []int64
	var missing, starting int
	changed := d.changed()
	for i := range d.Instances {
		instance := &d.Instances[i]
		if instance.Workload != d.Workload || instance.Terminating {
			continue
		}
		used, requested := of(instance)
		switch {
		case instance.Ready.IsZero(), d.Rollout == Broken && instance.Revision != d.Stable:
			starting++ // or it never gets ready
		case !instance.Sample.At.After(changed) || d.now.Sub(instance.Sample.At) > freshFor || requested <= 0 || used < 0:
			missing++
		case instance.Sample.At.Add(-instance.Sample.Over).Before(instance.Ready):
			starting++ // what a start takes is no load
		default:
			shares = append(shares, share(float64(used)*100/(float64(requested)*float64(percent))))
		}
	}
	slices.SortFunc(shares, func(a, b int64) int { return cmp.Compare(b, a) })
	current, measured := d.s.Replicas, len(shares)
	var e estimate
	var sum int64
	for i, s := range shares {
		sum += s
		if i < current { // those beyond are there for a rollout, or about to go
			e.up += s
		}
	}
	e.up, sum = min(e.up, sumMax), min(sum, sumMax)
	e.slack, e.answered = int64(measured), measured > 0 || current == 0
	unknown := max(missing+starting, current-measured) // those that are not even there yet too
	e.down = sum + int64(unknown)*whole
	e.words = fmt.Sprintf("%d of %d instances use %s as %.1f would fully (%d%%)", measured, current, what, float64(sum)/whole, percent)
	if unknown > 0 {
		e.words += fmt.Sprintf(", %d are not ready or not measured", unknown)
	}
	return e
}

// share bounds what one instance uses, and leaves out what is no number.
func share(x float64) int64 {
	if !(x > 0) {
		return 0
	}
	return int64(math.Round(math.Min(x*whole, shareMax)))
}

// answer is a number that is wanted in equal parts.
func (d *decider) answer(t *workload.ScaleTarget) estimate {
	a, ok := d.Answers[t.Name]
	per, err := t.Prometheus.PerInstance.Milli()
	switch {
	case a.Missing != "":
		return d.unanswered(a.Missing)
	case !ok || a.At.IsZero():
		return d.unanswered("the query has no answer")
	case !a.At.After(d.changed()):
		return d.unanswered("the answer is from before the last change")
	case d.now.Sub(a.At) > freshFor:
		return d.unanswered("the answer is " + d.now.Sub(a.At).Round(time.Second).String() + " old")
	case math.IsNaN(a.Value) || math.IsInf(a.Value, 0) || a.Value < 0 || err != nil || per <= 0:
		return d.unanswered("the answer is no amount")
	}
	shares := int64(math.Round(math.Min(a.Value*1000/float64(per)*whole, sumMax)))
	return estimate{up: shares, down: shares, slack: 1, answered: true, words: fmt.Sprintf("the answer is %g", a.Value)}
}

func (d *decider) unanswered(words string) estimate {
	current := int64(d.s.Replicas) * whole
	return estimate{up: current, down: current, words: words}
}
