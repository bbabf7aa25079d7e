package agent

import (
	"slices"
	"time"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/usage"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/systemd"
	"tako.dev/tako/internal/transfer/wire"
)

// cluster is nil for a host that stands alone.
func (l *loop) cluster() *Cluster {
	j := l.joined
	if j == nil {
		return nil
	}
	node, v := j.identity.Node(), j.newest()
	c := &Cluster{Name: string(node.Cluster), UID: node.UID, Servers: j.identity.Servers(), Epoch: j.life.Enforced.Epoch, Version: j.life.Enforced.Version,
		Verdict: v.Type.String(), Link: j.links.State()}
	c.Peering, c.Expired = j.peering.State(), l.expired()
	c.Statements = report.Statements(j.links.Statements())
	if v.Since != 0 {
		c.Since = time.UnixMilli(v.Since)
	}
	if kept, err := j.held.Kept(); err == nil {
		if kept.Mark.Version > 0 {
			c.Newest, c.Expires = kept.Mark.Version, time.Unix(kept.Mark.Expires, 0)
			c.Stale = kept.Mark.Stale(j.identity.Trust().Time(time.Now()))
		}
		if kept.Refused != (wire.Refused{}) {
			c.Disbelieved = &kept.Refused
		}
	}
	if t := j.life.Try; t != nil {
		if boot, since, err := systemd.Uptime(); err == nil {
			c.TryUntil = time.Now().Add(t.Rest(boot, since))
		}
	}
	for _, h := range j.own.Holds {
		if until := time.Unix(h.Until, 0); time.Now().Before(until) {
			c.Holds = append(c.Holds, Hold{Config: h.Config, Claim: h.Claim, Reason: h.Reason, Owner: h.Owner, Until: until})
		}
	}
	return c
}

// newest is the verdict on the newest state.
func (j *joined) newest() wire.Verdict {
	if j.refused.Type != wire.Pending {
		return j.refused
	}
	if v, _ := j.links.Stuck(); v.Type != wire.Pending {
		return v
	}
	return j.verdict
}

// tell is the report to the servers.
func (l *loop) tell() wire.Report {
	j := l.joined
	r := wire.Report{Delivered: uint64(l.delivered), Enforced: j.life.Enforced, Verdict: j.newest(), Host: report.HostOf(usage.Version(), l.lookup), Usage: report.UsageOf(usage.Now())}
	r.Host.Peer, r.Host.Images = j.peering.Address(), j.instances.Images()
	offers := l.offers()
	r.Offers = &offers
	configs := map[string]*report.Tally{}
	for _, layer := range j.list {
		if layer.Config() {
			// What is looked at once more, or repaired, after all was done once, is no reason to wait for it.
			configs[layer.ID] = &report.Tally{Converged: true, Settled: j.verdict.Type != wire.Pending}
		}
	}
	var worst []Resource
	for i, p := range l.parts {
		id := converge.ID(i)
		st := l.engine.Status(id)
		if p.removal != nil && p.removal.done {
			continue
		}
		if p.removal == nil {
			report.Count(&r.Counts, &st)
		}
		if st.Outcome.Converged() && p.removal == nil && !l.engine.Owes(id) {
			continue
		}
		res := l.resource(id)
		if c := configs[p.config]; c != nil {
			c.Take(&res)
		}
		worst = append(worst, res)
	}
	slices.SortStableFunc(worst, report.ByNeed)
	for _, res := range worst[:min(len(worst), wire.ProblemsMax)] {
		r.Problems = append(r.Problems, report.Told(&res))
	}
	for _, layer := range j.list {
		if c := configs[layer.ID]; c != nil {
			r.Configs = append(r.Configs, c.Report(layer.ID))
		}
	}
	return r
}

// inOrder tells whether everything is as declared.
func (l *loop) inOrder() bool {
	for i, p := range l.parts {
		if p.removal != nil && p.removal.done {
			continue
		}
		id := converge.ID(i)
		if p.removal != nil || !l.engine.Status(id).Outcome.Converged() || l.engine.Owes(id) {
			return false
		}
	}
	return true
}
