package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func (v *validator) placement() {
	p := &v.spec.Placement
	const path = "spec.placement"
	v.add(declare.CheckWord(path+".strategy", "strategy", p.Strategy, Spread, BinPack))
	v.add(declare.CheckWord(path+".whenLabelsChange", "answer to changed labels", p.WhenLabelsChange, Stay, Move))
	if v.atMost(path+".preferred", len(p.Preferred), preferredMax, "preferences") {
		for i := range p.Preferred {
			at := declare.IndexPath(path+".preferred", i)
			v.add(declare.CheckSelector(at+".selector", &p.Preferred[i].Selector))
			v.count(at+".weight", p.Preferred[i].Weight, 1, weightMax)
		}
	}
	required := map[string]string{}
	v.affinities(path+".affinity", p.Affinity, func(at string, a *Affinity) { required[relation(a)] = at })
	v.affinities(path+".antiAffinity", p.AntiAffinity, func(at string, a *Affinity) {
		if first, both := required[relation(a)]; both {
			f := v.fault(at, reason.InvalidValue, "instances must be near to, and away from, the same workloads: no node can be both", "remove one of the two, or give one a weight")
			f.Related = []declare.Place{{Path: first, Note: "near to them by this"}}
		}
	})
	v.spreads()
	if v.atMost(path+".tolerations", len(p.Tolerations), tolerationsMax, "tolerations") {
		for i := range p.Tolerations {
			v.toleration(declare.IndexPath(path+".tolerations", i), &p.Tolerations[i])
		}
	}
	if !v.atMost(path+".architectures", len(p.Architectures), architecturesMax, "architectures") {
		return
	}
	for i, a := range p.Architectures {
		at := declare.IndexPath(path+".architectures", i)
		const bytesMax = 32 // ours: the longest name has eight
		switch {
		case a == "" || len(a) > bytesMax || strings.Trim(a, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
			v.invalid(at, fmt.Sprintf("%q is not an architecture", declare.ClipText(a)), "write for example amd64 or arm64")
		case slices.Contains(p.Architectures[:i], a):
			v.fault(at, reason.DuplicateName, fmt.Sprintf("%q is there already", a), "remove one of them")
		}
	}
}

// relation is a text that is the same for relations to the same workloads over the same label.
func relation(a *Affinity) string {
	same := struct {
		Selector    declare.Selector
		Namespaces  []string
		TopologyKey string
	}{*a.Selector.DeepCopy(), slices.Sorted(slices.Values(a.Namespaces)), a.TopologyKey}
	for i := range same.Selector.MatchExpressions {
		slices.Sort(same.Selector.MatchExpressions[i].Values)
	}
	slices.SortFunc(same.Selector.MatchExpressions, func(a, b declare.SelectorRequirement) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	text, _ := json.Marshal(same) // it has nothing that JSON cannot say
	return string(text)
}

// affinities checks relations to other workloads; must is called for those that must hold.
func (v *validator) affinities(path string, list []Affinity, must func(at string, a *Affinity)) {
	if !v.atMost(path, len(list), affinitiesMax, "relations") {
		return
	}
	for i := range list {
		a, at := &list[i], declare.IndexPath(path, i)
		v.add(declare.CheckSelector(at+".selector", &a.Selector))
		if v.atMost(at+".namespaces", len(a.Namespaces), namespacesMax, "namespaces") {
			for j, n := range a.Namespaces {
				if !declare.IsDomainLabel(n) {
					v.invalid(declare.IndexPath(at+".namespaces", j), fmt.Sprintf("%q is not a namespace", declare.ClipText(n)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
				}
			}
		}
		if a.TopologyKey != "" {
			v.add(declare.CheckLabelKey(at+".topologyKey", a.TopologyKey))
		}
		v.count(at+".weight", a.Weight, 1, weightMax)
		if a.Required() {
			must(at, a)
		}
	}
}

func (v *validator) spreads() {
	const path = "spec.placement.topologySpread"
	list := v.spec.Placement.TopologySpread
	if !v.atMost(path, len(list), spreadsMax, "spreads") {
		return
	}
	seen := map[string]string{}
	for i := range list {
		s, at := &list[i], declare.IndexPath(path, i)
		if s.TopologyKey == "" {
			v.missing(at, "topologyKey", "the label of nodes whose values are compared")
		} else {
			v.add(declare.CheckLabelKey(at+".topologyKey", s.TopologyKey))
			v.unique(seen, at+".topologyKey", s.TopologyKey, "a spread over")
		}
		v.count(at+".maxSkew", s.MaxSkew, 1, skewMax)
		v.count(at+".minDomains", s.MinDomains, 1, skewMax)
		v.add(declare.CheckWord(at+".whenUnsatisfiable", "answer", s.WhenUnsatisfiable, DoNotSchedule, ScheduleAnyway))
		if s.MinDomains != nil && s.WhenUnsatisfiable == ScheduleAnyway {
			v.notAllowed(at+".minDomains", "a spread that need not be kept waits for no more values", "remove it, or write whenUnsatisfiable: DoNotSchedule")
		}
	}
}

func (v *validator) toleration(at string, t *Toleration) {
	v.add(declare.CheckWord(at+".operator", "operator", t.Operator, TolerationEqual, TolerationExists))
	switch {
	case t.Key != "":
		v.add(declare.CheckLabelKey(at+".key", t.Key))
	case t.OperatorOrDefault() != TolerationExists:
		v.missing(at, "key", "write operator: Exists to tolerate all taints")
	}
	v.add(declare.CheckLabelValue(at+".value", t.Value))
	if t.Value != "" && t.Operator == TolerationExists {
		v.notAllowed(at+".value", "operator Exists compares no value", "remove it, or write operator: Equal")
	}
	v.add(declare.CheckWord(at+".effect", "effect", t.Effect, declare.TaintNoSchedule, declare.TaintPreferNoSchedule, declare.TaintNoExecute))
	if t.TolerationSeconds == nil {
		return
	}
	v.number(at+".tolerationSeconds", *t.TolerationSeconds, 0, int64(longest.Seconds()))
	if t.Effect != declare.TaintNoExecute {
		v.notAllowed(at+".tolerationSeconds", "only taints with effect NoExecute make an instance leave", "remove it, or write effect: NoExecute")
	}
}
