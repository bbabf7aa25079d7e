package report

import (
	"cmp"
	"time"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
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
	// Statements are those of operators about layers of this host: what is enforced is the version with those that are in force.
	Statements []Statement `json:"statements,omitempty"`
	// Expired is what was left out because the servers were not heard for too long; nil where nothing was.
	Expired *Expired `json:"expired,omitempty"`
	// Peering is where other hosts ask this one; nil where they cannot.
	Peering *Peering `json:"peering,omitempty"`
}

// Expired is what a host leaves out because its TTL is over.
type Expired struct {
	Count  int       `json:"count"`
	First  string    `json:"first"` // title of what has expired first
	Config string    `json:"config"`
	TTL    string    `json:"ttl"`
	Since  time.Time `json:"since"` // when the first did
	Heard  time.Time `json:"heard"` // when the newest head was issued
}

// Peering is how a host stands among the others of its cluster.
type Peering struct {
	Address  string `json:"address"`            // where they ask it
	Kept     int    `json:"kept"`               // for how many it keeps what is signed, because they are away
	Answered uint64 `json:"answered,omitempty"` // questions, since this run began
	Refused  uint64 `json:"refused,omitempty"`  // the same: not allowed, malformed, or too many
}

// Statement is an operator's statement about a layer of this host.
type Statement struct {
	Layer  string         `json:"layer"`
	Number uint64         `json:"number"`
	Root   string         `json:"root"` // of the layer, hexadecimal
	State  StatementState `json:"state"`
	// Problem is why it is refused, or not in force yet; nil where there is nothing to say.
	Problem *Problem `json:"problem,omitempty"`
}

// StatementState is how far a statement has come.
type StatementState string

// The states.
const (
	StatementInForce StatementState = "InForce"
	StatementComing  StatementState = "Coming"  // accepted, and not enforced yet
	StatementRefused StatementState = "Refused" // the host cannot have it: the one before is in force
)

// Statements are those in force and those refused, and those on their way, for a report.
func Statements(told, coming []wire.Statement) []Statement {
	var all []Statement
	add := func(s *wire.Statement, state StatementState) {
		x := Statement{Layer: s.Layer, Number: s.Number, Root: s.Root.String(), State: state}
		if s.Code != 0 {
			x.Problem = &Problem{Code: s.Code, Message: s.Message}
		}
		all = append(all, x)
	}
	for i := range told {
		state := StatementInForce
		if told[i].Code != 0 {
			state = StatementRefused
		}
		add(&told[i], state)
	}
	for i := range coming {
		add(&coming[i], StatementComing)
	}
	return all
}

// Hold is what people keep as it is.
type Hold struct {
	Config string    `json:"config,omitempty"` // empty: all
	Claim  string    `json:"claim,omitempty"`  // empty: all
	Reason string    `json:"reason"`
	Owner  string    `json:"owner"`
	Until  time.Time `json:"until"`
}

// ByNeed sorts what needs a person first.
func ByNeed(a, b Resource) int { return cmp.Compare(Rank(a.Outcome), Rank(b.Outcome)) }

// Count counts a status.
func Count(c *wire.Counts, st *converge.Status) {
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

// Tally is how the resources of one config stand.
type Tally struct {
	Converged, Settled bool
	worst              *Resource
}

// Take takes a resource that is not in order. What waits for its turn, or is held by a person, is on the way: it says nothing against
// the config.
func (c *Tally) Take(r *Resource) {
	c.Converged = false
	if r.Outcome == reason.Deferred || r.Outcome == reason.Unknown || r.Outcome.Converged() {
		c.Settled = false
	}
	if c.worst == nil || ByNeed(*r, *c.worst) < 0 {
		c.worst = r
	}
}

// Report is the tally of the config of that ID for the servers.
func (c *Tally) Report(id string) wire.ConfigReport {
	r := wire.ConfigReport{ID: id, Converged: c.Converged && c.Settled, Settled: c.Settled}
	if c.worst != nil {
		t := Told(c.worst)
		r.Code, r.Message, r.Since = t.Code, wire.Text(c.worst.Title+": "+t.Message), t.Since
	}
	return r
}

// Told is a resource as the servers get to know it.
func Told(r *Resource) wire.Resource {
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
