package declare

import (
	"strings"
	"testing"
	"time"
)

// TestRollout: what paces a revision is checked as a whole, in both kinds.
func TestRollout(t *testing.T) {
	most, least, empty, negative, huge := Quantity("0.05"), Quantity("0.1"), Quantity(""), Quantity("-1"), Quantity("1e30")
	gate := func(change func(*Gate)) Rollout {
		g := Gate{Name: "errors", Prometheus: PrometheusQuery{Query: "errors"}, Max: &most}
		change(&g)
		return Rollout{Gates: []Gate{g}}
	}
	key := func(namespace string) *KeySelector {
		return &KeySelector{Namespace: namespace, Name: "prometheus", Key: "token"}
	}
	const at = "spec.rollout.gates[0]"
	for name, c := range map[string]struct {
		rollout Rollout
		cluster bool
		want    string
	}{
		"waves":                        {Rollout{Waves: []Wave{{Nodes: "1", Pause: "168h"}, {Nodes: "10%"}, {Selector: Selector{MatchLabels: map[string]string{"a": "b"}}}}}, false, ""},
		"a wave of nobody":             {Rollout{Waves: []Wave{{Nodes: "0"}, {Nodes: "101%"}, {Nodes: "some"}}}, false, "TK0414 spec.rollout.waves[0].nodes, TK0414 spec.rollout.waves[1].nodes, TK0414 spec.rollout.waves[2].nodes"},
		"pauses":                       {Rollout{Waves: []Wave{{Pause: "-1s"}, {Pause: "169h"}, {Pause: "soon"}}}, false, "TK0414 spec.rollout.waves[0].pause, TK0414 spec.rollout.waves[1].pause, TK0414 spec.rollout.waves[2].pause"},
		"a wrong label":                {Rollout{Waves: []Wave{{Selector: Selector{MatchLabels: map[string]string{"a b": "c"}}}}}, false, "TK0414 spec.rollout.waves[0].matchLabels['a b']"},
		"monitor":                      {Rollout{Monitor: "24h", OnFailure: RollBack}, false, ""},
		"monitored for ever":           {Rollout{Monitor: "25h", OnFailure: "Retry"}, false, "TK0414 spec.rollout.monitor, TK0414 spec.rollout.onFailure"},
		"a fetch window":               {Rollout{FetchWindow: "1h"}, false, ""},
		"no fetch window":              {Rollout{FetchWindow: "0s"}, true, ""},
		"a long fetch window":          {Rollout{FetchWindow: "1h1s"}, false, "TK0414 spec.rollout.fetchWindow"},
		"a fetch window of the past":   {Rollout{FetchWindow: "-1s"}, false, "TK0414 spec.rollout.fetchWindow"},
		"a fetch window in parts":      {Rollout{FetchWindow: "1500ms"}, true, "TK0414 spec.rollout.fetchWindow"},
		"a fetch window of a word":     {Rollout{FetchWindow: "night"}, false, "TK0414 spec.rollout.fetchWindow"},
		"a gate":                       {gate(func(*Gate) {}), false, ""},
		"without bounds":               {gate(func(g *Gate) { g.Max = nil }), false, "TK0413 " + at + ".max"},
		"upside down":                  {gate(func(g *Gate) { g.Min = &least }), false, "TK0414 " + at + ".max"},
		"no bounds":                    {gate(func(g *Gate) { g.Min = &empty }), false, "TK0414 " + at + ".min"},
		"below nothing":                {gate(func(g *Gate) { g.Max = &negative }), false, "TK0414 " + at + ".max"},
		"too much":                     {gate(func(g *Gate) { g.Max = &huge }), false, "TK0414 " + at + ".max"},
		"no name, no query":            {gate(func(g *Gate) { g.Name, g.Prometheus.Query = "", "" }), false, "TK0413 " + at + ".name, TK0413 " + at + ".prometheus.query"},
		"an address":                   {gate(func(g *Gate) { g.Prometheus.Server = "http://10.0.0.1" }), false, "TK0414 " + at + ".prometheus.server"},
		"a long query":                 {gate(func(g *Gate) { g.Prometheus.Query = strings.Repeat("q", queryBytesMax+1) }), false, "TK0414 " + at + ".prometheus.query"},
		"a token":                      {gate(func(g *Gate) { g.Prometheus.Auth = &PrometheusAuth{Token: key("")} }), false, ""},
		"a token of another namespace": {gate(func(g *Gate) { g.Prometheus.Auth = &PrometheusAuth{Token: key("qa")} }), false, "TK0415 " + at + ".prometheus.auth.token.namespace"},
		"a token for the cluster":      {gate(func(g *Gate) { g.Prometheus.Auth = &PrometheusAuth{Token: key("qa")} }), true, ""},
		"one from nowhere":             {gate(func(g *Gate) { g.Prometheus.CA = &PrometheusCA{ConfigMap: key("")} }), true, "TK0413 " + at + ".prometheus.ca.configMap.namespace"},
		"half a login":                 {gate(func(g *Gate) { g.Prometheus.Auth = &PrometheusAuth{Username: key("")} }), false, "TK0413 " + at + ".prometheus.auth.password"},
		"two proofs":                   {gate(func(g *Gate) { g.Prometheus.Auth = &PrometheusAuth{Token: key(""), Password: key("")} }), false, "TK0415 " + at + ".prometheus.auth.token"},
		"no proof":                     {gate(func(g *Gate) { g.Prometheus.Auth, g.Prometheus.CA = &PrometheusAuth{}, &PrometheusCA{} }), false, "TK0413 " + at + ".prometheus.auth.token, TK0413 " + at + ".prometheus.ca"},
		"two authorities":              {gate(func(g *Gate) { g.Prometheus.CA = &PrometheusCA{ConfigMap: key(""), Secret: key("")} }), false, "TK0415 " + at + ".prometheus.ca"},
		"twice":                        {Rollout{Gates: append(gate(func(*Gate) {}).Gates, gate(func(*Gate) {}).Gates...)}, false, "TK0420 spec.rollout.gates[1].name"},
		"too many":                     {Rollout{Gates: make([]Gate, gatesMax+1)}, false, "TK0414 spec.rollout.gates"},
	} {
		config := config()
		if config.Spec.Rollout = c.rollout; c.cluster {
			config.Kind = KindClusterNodeConfig
		}
		if got := summary(Validate(config)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRolloutDefaults(t *testing.T) {
	var r Rollout
	var w Wave
	if r.OnFailureOrDefault() != Halt || r.MonitorOrZero() != 0 || r.FetchWindowOrZero() != 0 || w.NodesOrDefault() != "100%" || w.PauseOrZero() != 0 {
		t.Errorf("by default: %s, %s, %s, %s", r.OnFailureOrDefault(), r.MonitorOrZero(), w.NodesOrDefault(), w.PauseOrZero())
	}
	r, w = Rollout{OnFailure: RollBack, Monitor: "1h", FetchWindow: "2m"}, Wave{Nodes: "3", Pause: "90s"}
	if r.OnFailureOrDefault() != RollBack || r.MonitorOrZero() != time.Hour || r.FetchWindowOrZero() != 2*time.Minute || w.NodesOrDefault() != "3" || w.PauseOrZero() != 90*time.Second {
		t.Errorf("declared: %s, %s, %s, %s", r.OnFailureOrDefault(), r.MonitorOrZero(), w.NodesOrDefault(), w.PauseOrZero())
	}
}
