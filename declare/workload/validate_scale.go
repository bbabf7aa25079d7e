package workload

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

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
	v.query(at, &p.PrometheusQuery)
	if p.PerInstance == "" {
		v.missing(at, "perInstance", `what each instance should have of the answer: "100", "0.5"`)
		return
	}
	v.amount(at+".perInstance", p.PerInstance, 1, measureMax, declare.Quantity.Milli, `write for example "100" or "0.5"`)
}

// measureMax is the largest measure in thousandths: above it a float64 cannot tell one number from the next.
const measureMax = 1 << 53

func (v *validator) query(at string, p *PrometheusQuery) {
	v.access(at, p)
	const queryBytesMax = 4096
	if p.Server != "" && !declare.IsDomainLabel(p.Server) {
		v.invalid(at+".server", fmt.Sprintf("%q is not a name", declare.ClipText(p.Server)), "write the NAME that tako's server was started with: --prometheus NAME=URL")
	}
	switch {
	case p.Query == "":
		v.missing(at, "query", "")
	case len(p.Query) > queryBytesMax || !utf8.ValidString(p.Query):
		v.invalid(at+".query", fmt.Sprintf("it is no text of at most %d bytes", queryBytesMax), "")
	}
}

// access checks what a Prometheus is asked with, and known by.
func (v *validator) access(at string, p *PrometheusQuery) {
	if a := p.Auth; a != nil {
		at := at + ".auth"
		v.key(at+".token", a.Token)
		v.key(at+".username", a.Username)
		v.key(at+".password", a.Password)
		switch {
		case a.Token != nil && (a.Username != nil || a.Password != nil):
			v.notAllowed(at+".token", "there are a username or a password as well", "keep the token, or username and password")
		case a.Token == nil && a.Username == nil && a.Password == nil:
			v.missing(at, "token", "write for example token: {name: prometheus, key: token}, or username and password")
		case a.Token == nil && a.Username == nil:
			v.missing(at, "username", "it goes with the password")
		case a.Token == nil && a.Password == nil:
			v.missing(at, "password", "it goes with the username")
		}
	}
	if c := p.CA; c != nil {
		v.oneOf(at+".ca", "where the authorities are", []string{"secret", "configMap"}, c.Secret != nil, c.ConfigMap != nil)
		v.key(at+".ca.secret", c.Secret)
		v.key(at+".ca.configMap", c.ConfigMap)
	}
}

// gates checks what is measured while a revision comes.
func (v *validator) gates() {
	const path = "spec.rollout.gates"
	gates := v.spec.Rollout.Gates
	if !v.atMost(path, len(gates), gatesMax, "gates") {
		return
	}
	seen := map[string]string{}
	for i := range gates {
		g, at := &gates[i], declare.IndexPath(path, i)
		v.listName(seen, at, g.Name, "the name")
		v.query(at+".prometheus", &g.Prometheus)
		const example = `write for example "0.05" or "250"`
		bound := func(field string, q *declare.Quantity) int64 {
			if q == nil {
				return 0
			}
			if *q == "" {
				v.invalid(at+"."+field, "it is empty", example)
			}
			return v.amount(at+"."+field, *q, 0, measureMax, declare.Quantity.Milli, example)
		}
		least, most := bound("min", g.Min), bound("max", g.Max)
		switch {
		case g.Min == nil && g.Max == nil:
			v.missing(at, "max", "say what is good: "+example+", or a min")
		case g.Min != nil && g.Max != nil && least > most:
			v.invalid(at+".max", fmt.Sprintf("max is %s, and min is %s", *g.Max, *g.Min), "min is at most max")
		}
	}
}
