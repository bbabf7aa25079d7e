package workload

import (
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func (v *validator) scale() {
	s := v.spec.Scale
	if s == nil {
		return
	}
	const path = "spec.scale"
	v.count(path+".min", s.Min, 0, replicasMax)
	v.number(path+".max", int64(s.Max), 1, replicasMax)
	if s.MinOrDefault() > int(s.Max) {
		v.invalid(path+".max", fmt.Sprintf("max is %d, and min is %d", s.Max, s.MinOrDefault()), "min is at most max")
	}
	v.count(path+".tolerance", s.Tolerance, 0, 100)
	v.targets(s)
	for _, b := range []struct {
		path  string
		bound *ScaleBound
		most  int
	}{{path + ".up", &s.Up, replicasMax}, {path + ".down", &s.Down, 100}} {
		v.duration(b.path+".stabilization", b.bound.Stabilization, 0, time.Hour)
		v.share(b.path+".maxChange", b.bound.MaxChange, 1, b.most)
		v.duration(b.path+".period", b.bound.Period, time.Second, time.Hour)
	}
	if !v.atMost(path+".scheduled", len(s.Scheduled), scheduledMax, "bounds") {
		return
	}
	seen := map[string]string{}
	for i := range s.Scheduled {
		v.scheduled(seen, declare.IndexPath(path+".scheduled", i), &s.Scheduled[i])
	}
}

func (v *validator) scheduled(seen map[string]string, at string, b *ScheduledBounds) {
	v.listName(seen, at, b.Name, "the name")
	v.add(declare.CheckWindow(at+".window", &b.Window))
	v.count(at+".min", b.Min, 0, replicasMax)
	v.count(at+".max", b.Max, 0, replicasMax)
	s := v.spec.Scale
	if b.Min == nil && b.Max == nil {
		v.fault(at, reason.MissingField, at+` has neither "min" nor "max"`, "say what is different then")
	}
	if least, most := intOr(b.Min, s.MinOrDefault()), intOr(b.Max, int(s.Max)); least > most {
		v.invalid(at, fmt.Sprintf("min is %d then, and max %d", least, most), "what is left out is that of the scale: say both")
	}
}

func (v *validator) targets(s *Scale) {
	const path = "spec.scale.targets"
	if len(s.Targets) == 0 && len(s.Scheduled) == 0 {
		v.missing("spec.scale", "targets", `write for example targets: [{name: cpu, cpu: 60}]`)
	}
	if !v.atMost(path, len(s.Targets), scaleTargetsMax, "targets") {
		return
	}
	seen := map[string]string{}
	asked := false
	for i := range s.Targets {
		t, at := &s.Targets[i], declare.IndexPath(path, i)
		v.listName(seen, at, t.Name, "the name")
		v.oneOf(at, "what is measured", []string{"cpu", "memory", "prometheus"}, t.CPU != nil, t.Memory != nil, t.Prometheus != nil)
		const percentMax = 1000
		v.count(at+".cpu", t.CPU, 1, percentMax)
		v.count(at+".memory", t.Memory, 1, percentMax)
		v.measured(at, t)
		if t.Prometheus != nil {
			v.prometheus(at+".prometheus", t.Prometheus)
			asked = true
		}
	}
	if s.MinOrDefault() == 0 && len(s.Targets) > 0 && !asked {
		v.invalid("spec.scale.min", "nothing can be measured of instances that are not there: once there were none, none would ever come back", "write min: 1, or measure something by prometheus")
	}
}

// measured refuses a share of requests that are not there.
func (v *validator) measured(at string, t *ScaleTarget) {
	requested := func(amount func(*Amounts) declare.Quantity) bool {
		return slices.ContainsFunc(v.spec.Template.Tasks, func(t Task) bool { return amount(&t.Resources.Requests) != "" })
	}
	if t.CPU != nil && !requested(func(a *Amounts) declare.Quantity { return a.CPU }) {
		v.invalid(at+".cpu", "it is a share of what the tasks request, and none requests any", "give a task resources: {requests: {cpu: ...}}")
	}
	if t.Memory != nil && !requested(func(a *Amounts) declare.Quantity { return a.Memory }) {
		v.invalid(at+".memory", "it is a share of what the tasks request, and none requests any", "give a task resources: {requests: {memory: ...}}")
	}
}

func (v *validator) prometheus(at string, p *PrometheusTarget) {
	v.add(declare.CheckQuery(at, &p.PrometheusQuery, ownKey))
	if p.PerInstance == "" {
		v.missing(at, "perInstance", `what each instance should have of the answer: "100", "0.5"`)
		return
	}
	v.amount(at+".perInstance", p.PerInstance, 1, declare.MeasureMax, declare.Quantity.Milli, `write for example "100" or "0.5"`)
}
