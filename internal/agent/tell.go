package agent

import (
	"cmp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
)

// Cluster is what a host that has joined says of its cluster.
type Cluster struct {
	client.Link
	Name     string    `json:"name"`    // the cluster's ID
	UID      string    `json:"uid"`     // of the node
	Servers  []string  `json:"servers"` // addresses
	Epoch    uint64    `json:"epoch"`
	Version  uint64    `json:"version"`           // of the state that is enforced
	Newest   uint64    `json:"newest"`            // the highest that was accepted
	Verdict  string    `json:"verdict"`           // on the newest
	Since    time.Time `json:"since,omitzero"`    // of the verdict
	Expires  time.Time `json:"expires,omitzero"`  // of the newest head
	Stale    bool      `json:"stale,omitempty"`   // it has expired: the servers have not been heard for long
	TryUntil time.Time `json:"tryUntil,omitzero"` // what is enforced is only tried, and falls back then
	Holds    []Hold    `json:"holds,omitempty"`
	// Disbelieved is what servers sent and the host did not believe; nil where there was nothing of the kind.
	Disbelieved *wire.Refused `json:"disbelieved,omitempty"`
}

// Hold is what people keep as it is.
type Hold struct {
	Config string    `json:"config,omitempty"` // empty: all
	Claim  string    `json:"claim,omitempty"`  // empty: all
	Reason string    `json:"reason"`
	Owner  string    `json:"owner"`
	Until  time.Time `json:"until"`
}

// cluster is nil for a host that stands alone.
func (l *loop) cluster() *Cluster {
	j := l.joined
	if j == nil {
		return nil
	}
	node, v := j.identity.Node(), j.newest()
	c := &Cluster{Name: string(node.Cluster), UID: node.UID, Servers: j.identity.Servers(), Epoch: j.life.Enforced.Epoch, Version: j.life.Enforced.Version,
		Verdict: v.Type.String(), Link: j.links.State()}
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
	r := wire.Report{Enforced: j.life.Enforced, Verdict: j.newest(), Host: l.host()}
	configs := map[string]*configTally{}
	for _, layer := range j.list {
		if layer.Priority != catalog.OwnPriority {
			// What is looked at once more, or repaired, after all was done once, is no reason to wait for it.
			configs[layer.ID] = &configTally{converged: true, settled: j.verdict.Type != wire.Pending}
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
			count(&r.Counts, &st)
		}
		if st.Outcome.Converged() && p.removal == nil && !l.engine.Owes(id) {
			continue
		}
		res := l.resource(id)
		if c := configs[p.config]; c != nil {
			c.take(&res)
		}
		worst = append(worst, res)
	}
	slices.SortStableFunc(worst, byNeed)
	for _, res := range worst[:min(len(worst), wire.ProblemsMax)] {
		r.Problems = append(r.Problems, told(&res))
	}
	for _, layer := range j.list {
		if c := configs[layer.ID]; c != nil {
			r.Configs = append(r.Configs, c.report(layer.ID))
		}
	}
	return r
}

// byNeed sorts what needs a person first.
func byNeed(a, b Resource) int { return cmp.Compare(rank(a.Outcome), rank(b.Outcome)) }

func count(c *wire.Counts, st *converge.Status) {
	switch {
	case st.Outcome == reason.Deferred && st.Detail == reason.Held:
		c.Held++
	case st.Outcome == reason.Deferred:
		c.Deferred++
	case st.Outcome == reason.Kept:
		c.Kept++
	case st.Outcome == reason.Repaired:
		c.Repaired++
	case st.Outcome == reason.Failed:
		c.Failed++
	case st.Outcome == reason.Blocked:
		c.Blocked++
	case st.Outcome == reason.Contended:
		c.Contended++
	case st.Outcome == reason.NotApplicable:
		c.NotApplicable++
	default:
		c.Unknown++
	}
}

// configTally is how the resources of one config stand.
type configTally struct {
	converged, settled bool
	worst              *Resource
}

// take takes a resource that is not in order. What waits for its turn, or is held by a person, is on the way: it says nothing against
// the config.
func (c *configTally) take(r *Resource) {
	c.converged = false
	if r.Outcome == reason.Deferred || r.Outcome == reason.Unknown || r.Outcome.Converged() {
		c.settled = false
	}
	if c.worst == nil || byNeed(*r, *c.worst) < 0 {
		c.worst = r
	}
}

func (c *configTally) report(id string) wire.ConfigReport {
	r := wire.ConfigReport{ID: id, Converged: c.converged && c.settled, Settled: c.settled}
	if c.worst != nil {
		t := told(c.worst)
		r.Code, r.Message, r.Since = t.Code, wire.Text(c.worst.Title+": "+t.Message), t.Since
	}
	return r
}

// told is a resource as the servers get to know it.
func told(r *Resource) wire.Resource {
	t := wire.Resource{Title: r.Title, Claim: r.Claim, Config: r.Config, Outcome: r.Outcome.String()}
	if r.Problem != nil {
		t.Code, t.Message = r.Problem.Code, wire.Text(r.Problem.Message)
	}
	if !r.Since.IsZero() {
		t.Since = r.Since.UnixMilli()
	}
	if !r.RetryAt.IsZero() {
		t.RetryAt = r.RetryAt.UnixMilli()
	}
	return t
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

// host is what changes seldom.
func (l *loop) host() *wire.Host {
	h := &wire.Host{Version: version(), Facts: map[string]string{}, CPUs: uint32(runtime.NumCPU())}
	for _, f := range declare.FactNames() {
		value, known := l.lookup(f.Name)
		if !known {
			continue
		}
		h.Facts[strings.TrimPrefix(f.Name, "facts.")] = value.String()
	}
	if n, err := strconv.ParseUint(h.Facts["memory.bytes"], 10, 64); err == nil {
		h.Memory = n
	}
	return h
}
