package scale

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/declare/calendar"
	"tako.dev/tako/internal/reason"
)

// Times of the decision.
const (
	// Period is how often measures are looked at: as Kubernetes does, and as long as samples of usage are apart.
	Period = 15 * time.Second
	// freshFor is how old a measure may be: a sample every 15 s, and an agent that answers no more counts as silent after about as long.
	freshFor = 90 * time.Second
	// gapMax is for how long nobody may have looked for a while to count as one without a break: eight times the period, more than a change of
	// leaders takes.
	gapMax = 2 * time.Minute
	// rememberedMax bounds what the status holds of each kind. Beyond it the oldest two become one, on the careful side.
	rememberedMax = 32
)

// Decide returns how many replicas there are to be now.
func Decide(v View, now time.Time) Decision {
	d := decider{View: &v, now: now, s: v.Was.clone()}
	d.begin()
	low, high, by := d.bounds()
	switch within := min(max(d.s.Replicas, low), high); {
	case d.s.Replicas == 0 && low > 0 && d.off():
		d.restart()
		d.say("off: replicas is 0, declared by hand; declare another number to go on")
	case within != d.s.Replicas || len(v.Spec.Targets) == 0:
		d.restart()
		d.change(within)
		d.say("%s allows %d to %d", by, low, high)
	default:
		d.measured(low, high)
	}
	if len(v.Spec.Targets) > 0 {
		d.wake(now.Add(Period))
	}
	return Decision{Replicas: d.s.Replicas, Why: strings.Join(d.why, "; "), Code: d.code, Status: d.s, WakeAt: d.wakeAt}
}

type decider struct {
	*View
	now    time.Time
	s      Status
	edited bool // by a person, since the last decision
	why    []string
	code   reason.Code
	wakeAt time.Time
}

func (d *decider) say(format string, args ...any) {
	d.why = append(d.why, fmt.Sprintf(format, args...))
}

func (d *decider) wake(at time.Time) {
	if at.After(d.now) && (d.wakeAt.IsZero() || at.Before(d.wakeAt)) {
		d.wakeAt = at
	}
}

// begin takes up the number as it is. Where the declared one was changed, that is the number now, whatever was decided: who applies the same
// declaration again has changed nothing.
func (d *decider) begin() {
	d.s.repair(d.now)
	d.edited = !d.s.Decided.IsZero() && d.s.Declared != d.Declared
	if d.edited || d.s.Decided.IsZero() {
		d.s = Status{Decided: d.now, Replicas: d.Declared, Declared: d.Declared}
	}
	if d.edited {
		d.say("%d declared by hand", d.Declared)
	}
}

// off reports whether the 0 that is the number comes from a person, and not from bounds that were 0 or are 0 but for some hours.
func (d *decider) off() bool {
	return d.s.Declared == 0 && len(d.s.Shrunk) == 0 && d.Spec.MinOrDefault() > 0
}

// restart forgets what was asked for.
func (d *decider) restart() { d.s.Up, d.s.Down = Phase{}, Phase{} }

// changed is when the number was changed last. A measure that is not newer is of another number of instances: who takes it again, as the
// next leader may, would do the same thing twice.
func (d *decider) changed() time.Time {
	var last time.Time
	for _, steps := range [][]Step{d.s.Grown, d.s.Shrunk} {
		if n := len(steps); n > 0 && steps[n-1].At.After(last) {
			last = steps[n-1].At
		}
	}
	return last
}

// change takes another number, and notes by how much.
func (d *decider) change(to int) {
	switch by := to - d.s.Replicas; {
	case by > 0:
		d.s.Grown = remember(d.s.Grown, Step{d.now, by})
	case by < 0:
		d.s.Shrunk = remember(d.s.Shrunk, Step{d.now, -by})
	}
	d.s.Replicas = to
}

// bounds returns the fewest and the most there may be now, and what says so.
func (d *decider) bounds() (low, high int, by string) {
	low, high, by = d.Spec.MinOrDefault(), int(d.Spec.Max), "the scale"
	for i := range d.Spec.Scheduled {
		b := &d.Spec.Scheduled[i]
		window, zone, err := d.window(b.Window.Opens, b.Window.Duration)
		if err != nil {
			d.say("scheduled %s is left out: %v", b.Name, err)
			continue
		}
		if next, ok := window.Next(d.now, zone); ok {
			d.wake(next)
		}
		opened, ok := window.Opens.Next(d.now.Add(-window.Duration), zone)
		if !ok || opened.After(d.now) {
			continue
		}
		d.wake(opened.Add(window.Duration))
		low, high, by = d.Spec.MinOrDefault(), int(d.Spec.Max), "scheduled "+b.Name
		if b.Min != nil {
			low = int(*b.Min)
		}
		if b.Max != nil {
			high = int(*b.Max)
		}
	}
	return low, high, by
}

// window reads a window that has passed validation; only its zone may be one that this server does not know.
func (d *decider) window(opens, duration string) (calendar.Window, *time.Location, error) {
	e, err := calendar.Parse(opens)
	if err != nil {
		return calendar.Window{}, nil, err
	}
	length, err := time.ParseDuration(duration)
	if err != nil {
		return calendar.Window{}, nil, err
	}
	zone, err := d.Zone(cmp.Or(e.Zone(), "UTC"))
	return calendar.Window{Opens: e, Duration: length}, zone, err
}

// measured decides by measures, within the bounds.
func (d *decider) measured(low, high int) {
	current := d.s.Replicas
	needed, known := d.asked()
	if !known {
		return // what was asked for before goes on counting, until that is too long ago
	}
	asked := min(max(needed, low), high)
	if asked != needed {
		d.say("the bounds are %d to %d", low, high)
	}
	if asked < needed {
		d.code = reason.ScaleBounded
	}
	stable, to := true, current
	switch {
	case asked > current:
		d.s.Down = Phase{}
		to, stable = d.stabilised(&d.s.Up, asked, d.Spec.UpStabilizationOrDefault(), func(a, b int) bool { return a <= b })
	case asked < current:
		d.s.Up = Phase{}
		to, stable = d.stabilised(&d.s.Down, asked, d.Spec.DownStabilizationOrDefault(), func(a, b int) bool { return a >= b })
	default:
		d.restart()
	}
	if !stable {
		return
	}
	d.change(d.limited(to))
}

// stabilised returns the most careful number that was asked for within a while, when all of that while has been on this side of the current
// number. careful says whether a is at least as careful as b.
func (d *decider) stabilised(p *Phase, asked int, window time.Duration, careful func(a, b int) bool) (to int, ok bool) {
	if n := len(p.Asked); n == 0 || d.now.Sub(p.Asked[n-1].At) > gapMax {
		*p = Phase{Since: d.now} // it begins, or nobody knows what was asked for meanwhile
	}
	p.Asked = forget(p.Asked, func(a Asked) bool { return d.now.Sub(a.At) >= window || careful(asked, a.Replicas) })
	p.Asked = append(p.Asked, Asked{d.now, asked})
	if len(p.Asked) > rememberedMax {
		p.Asked[1].Replicas = p.Asked[0].Replicas // the more careful of the two, for longer
		p.Asked = p.Asked[1:]
	}
	if at := p.Since.Add(window); at.After(d.now) {
		d.say("%d it was asked for since %s, and must be until %s", asked, clock(p.Since), clock(at))
		d.wake(at)
		return 0, false
	}
	return p.Asked[0].Replicas, true
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// limited holds a change back to what may change in a period. What has come and what has gone in it are counted apart: that some have gone
// lets no more come.
func (d *decider) limited(to int) int {
	current := d.s.Replicas
	switch {
	case to > current:
		period := d.Spec.Up.PeriodOrDefault()
		may := d.Spec.UpMaxChangeOrDefault(d.begun(period)) - d.within(d.s.Grown, period)
		if most := current + max(0, may); most < to {
			d.say("up to %d within %s", most, period)
			return most
		}
	case to < current:
		period := d.Spec.Down.PeriodOrDefault()
		may := d.Spec.DownMaxChangeOrDefault(d.begun(period)) - d.within(d.s.Shrunk, period)
		if least := current - max(0, may); least > to {
			d.say("down to %d within %s", least, period)
			return least
		}
	}
	return to
}

// begun is how many there were a period ago.
func (d *decider) begun(period time.Duration) int {
	return max(0, d.s.Replicas-d.within(d.s.Grown, period)+d.within(d.s.Shrunk, period))
}

// within is by how much the number has changed in a period.
func (d *decider) within(steps []Step, period time.Duration) int {
	n := 0
	for _, s := range steps {
		if d.now.Sub(s.At) < period {
			n += s.By
		}
	}
	return n
}

// remember adds a change, and forgets those that no period reaches.
func remember(steps []Step, s Step) []Step {
	const reach = time.Hour // the longest period
	steps = forget(steps, func(old Step) bool { return s.At.Sub(old.At) >= reach })
	steps = append(steps, s)
	if len(steps) > rememberedMax {
		steps[1].By += steps[0].By
		steps = steps[1:]
	}
	return steps
}

func forget[T any](list []T, old func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if !old(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

func (s *Status) clone() Status {
	c := *s
	none := func(Asked) bool { return false }
	c.Up.Asked, c.Down.Asked = forget(s.Up.Asked, none), forget(s.Down.Asked, none)
	never := func(Step) bool { return false }
	c.Grown, c.Shrunk = forget(s.Grown, never), forget(s.Shrunk, never)
	return c
}

// repair brings times that are still to come back to now: another leader's clock was ahead, and what it has noted would count for too long.
func (s *Status) repair(now time.Time) {
	earlier := func(t *time.Time) {
		if t.After(now) {
			*t = now
		}
	}
	for _, p := range []*Phase{&s.Up, &s.Down} {
		earlier(&p.Since)
		for i := range p.Asked {
			earlier(&p.Asked[i].At)
		}
	}
	for _, steps := range [][]Step{s.Grown, s.Shrunk} {
		for i := range steps {
			earlier(&steps[i].At)
		}
	}
}
