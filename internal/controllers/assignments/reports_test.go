package assignments

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/controllers/presence"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestReportOfAnotherState: what a host says counts when it is about the very state that it is assigned, and never when it is about one before
// or after: by the same name that was another layer, and a rollout would go on over hosts on which nothing was proven.
func TestReportOfAnotherState(t *testing.T) {
	const config = "NodeConfig/qa/web"
	target := rollout.Target{Revision: "web-1", Priority: 1}
	converged := []wire.ConfigReport{{ID: config, Converged: true, Settled: true}}
	failed := []wire.ConfigReport{{ID: config, Settled: true, Code: reason.CheckRejected}}
	on := func(version uint64, kind wire.VerdictType) wire.Verdict {
		return wire.Verdict{Type: kind, Version: version}
	}
	for name, c := range map[string]struct {
		report wire.Report
		want   rollout.Verdict
	}{
		"converged":                    {wire.Report{Enforced: catalog.Mark{Version: 7}, Configs: converged}, rollout.Converged},
		"converged before":             {wire.Report{Enforced: catalog.Mark{Version: 6}, Configs: converged}, rollout.Pending},
		"converged in another store":   {wire.Report{Enforced: catalog.Mark{Version: 8}, Configs: converged}, rollout.Pending},
		"failed":                       {wire.Report{Enforced: catalog.Mark{Version: 7}, Configs: failed}, rollout.Failed},
		"failed before":                {wire.Report{Enforced: catalog.Mark{Version: 6}, Configs: failed}, rollout.Pending},
		"on its way":                   {wire.Report{Enforced: catalog.Mark{Version: 7}, Configs: []wire.ConfigReport{{ID: config}}}, rollout.Pending},
		"rejected":                     {wire.Report{Enforced: catalog.Mark{Version: 6}, Configs: converged, Verdict: on(7, wire.Rejected)}, rollout.Rejected},
		"withheld":                     {wire.Report{Enforced: catalog.Mark{Version: 6}, Configs: converged, Verdict: on(7, wire.Withheld)}, rollout.Withheld},
		"quarantined":                  {wire.Report{Enforced: catalog.Mark{Version: 6}, Configs: converged, Verdict: on(7, wire.Quarantined)}, rollout.Quarantined},
		"rejected before":              {wire.Report{Enforced: catalog.Mark{Version: 5}, Configs: converged, Verdict: on(6, wire.Rejected)}, rollout.Pending},
		"rejected before, and is fine": {wire.Report{Enforced: catalog.Mark{Version: 7}, Configs: converged, Verdict: on(6, wire.Rejected)}, rollout.Converged},
		"another config is fine":       {wire.Report{Enforced: catalog.Mark{Version: 7}, Configs: []wire.ConfigReport{{ID: "NodeConfig/prod/web", Converged: true}}}, rollout.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{seen: presence.Seen{Report: &c.report}, assigned: &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}}
			if got := h.report(config, target).Verdict; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestBusyHostStaysConverged: a host that has converged on a config, and gets another one beside it, is not on the way again until it has said
// how it stands, unless it was given something else, has lost it, or says that something is wrong.
func TestBusyHostStaysConverged(t *testing.T) {
	const config = "NodeConfig/qa/web"
	says := func(version uint64, c ...wire.ConfigReport) *wire.Report {
		return &wire.Report{Enforced: catalog.Mark{Version: version}, Configs: c}
	}
	converged, busy := wire.ConfigReport{ID: config, Converged: true, Settled: true}, wire.ConfigReport{ID: config}
	failed := wire.ConfigReport{ID: config, Settled: true, Code: reason.CheckRejected}
	row := v1alpha1.AssignedLayer{Config: config, Revision: "web-1", Since: metav1.Unix(1000, 0)}
	again := row
	again.Since = metav1.Unix(1001, 0)
	for name, c := range map[string]struct {
		row    v1alpha1.AssignedLayer
		report *wire.Report
		want   rollout.Verdict
	}{
		"not there yet":              {row, says(7, converged), rollout.Converged},
		"busy":                       {row, says(8, busy), rollout.Converged},
		"failed":                     {row, says(8, failed), rollout.Failed},
		"failed before":              {row, says(7, failed), rollout.Pending},
		"lost":                       {row, says(0), rollout.Pending},
		"without it":                 {row, says(8), rollout.Pending},
		"given again":                {again, says(8, busy), rollout.Pending},
		"given again, and converged": {again, says(8, converged), rollout.Converged},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{seen: presence.Seen{Report: says(7, converged)}, assigned: &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}}
			view := func(l v1alpha1.AssignedLayer) rollout.Report {
				return h.remembered(&l, h.report(config, rollout.Target{Revision: l.Revision}))
			}
			if got := view(row).Verdict; got != rollout.Converged {
				t.Fatalf("at first %v", got)
			}
			h.seen.Report, h.assigned = c.report, &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "8"}}
			if got := view(c.row).Verdict; got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if h.seen.Report = says(8, busy); c.want == rollout.Failed && view(c.row).Verdict != rollout.Pending {
				t.Errorf("it failed, and has converged while it is busy")
			}
		})
	}
}

// TestNewLeaderWaitsForWhoWasNotHeard: for 90 s nobody who was not heard by this leader is taken for fine, or for lost, and until then no
// rollout goes on. When all were heard it need not wait.
func TestNewLeaderWaitsForWhoWasNotHeard(t *testing.T) {
	began := time.Unix(1000, 0)
	heard := &host{hostSpec: hostSpec{name: "heard", joined: true}, seen: presence.Seen{Presence: node.Here, Believed: true}}
	unheard := &host{hostSpec: hostSpec{name: "unheard", joined: true}, seen: presence.Seen{Presence: node.Unheard, Believed: true}}
	strange := &host{hostSpec: hostSpec{name: "nobody has joined as it"}, seen: presence.Seen{Presence: node.Unheard, Believed: true}}
	c := &config{newest: rollout.Target{Revision: "web-2"}, hosts: []*host{heard, strange, unheard}}
	c.rollout = allAtOnce
	quiet := began.Add(node.UnheardMax)
	v := c.view(began)
	if !v.Quiet.Equal(quiet) {
		t.Errorf("it waits until %s, want %s", v.Quiet, quiet)
	}
	if moves := rollout.Decide(v, quiet.Add(-time.Second)).Moves; len(moves) > 0 {
		t.Errorf("before that it goes on with %v", moves)
	}
	if moves := rollout.Decide(v, quiet).Moves; len(moves) == 0 {
		t.Error("after that it does not go on")
	}
	c.hosts = []*host{heard, strange}
	if v := c.view(began); !v.Quiet.Equal(began) {
		t.Errorf("when all were heard it waits until %s", v.Quiet)
	}
}
