// Package relations is how the order of a host's resources is told: who waits for whom, and why. It is the answer to `why --graph`, as
// the agent gives it, as JSON, and as a tree for a person or a drawing for Graphviz.
//
// It knows no agent and no server. It owns no goroutine.
package relations

import (
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Version is of the JSON form: a field may come, none changes its meaning while it stays the same.
const Version = 1

// The kinds of edges. `before` is `require` from the other end, and `subscribe` is `notify`: they are told as those.
const (
	Require   = "require"
	Notify    = "notify"
	Automatic = "automatic"
	OnFailure = "onFailure"
)

// Graph is the order of the resources of a host, or of those around some of them.
type Graph struct {
	Version int    `json:"version"`
	Node    string `json:"node,omitempty"`
	// About are the claims that were asked about; empty for all. Then Resources are what they wait for, and what waits for them.
	About []string `json:"about,omitempty"`
	// Resources are those with edges, each after what it waits for, as far as that is listed.
	Resources []Resource `json:"resources"`
	Edges     []Edge     `json:"edges"`
	Unrelated int        `json:"unrelated,omitempty"` // resources without any edge, which are not listed
	Omitted   int        `json:"omitted,omitempty"`   // resources that are not listed because there are too many
	// OmittedEdges are edges between listed resources that are not listed for the same reason.
	OmittedEdges int `json:"omittedEdges,omitempty"`
}

// Resource is one resource in it.
type Resource struct {
	Claim   string `json:"claim"` // tells it apart
	Title   string `json:"title"`
	Config  string `json:"config,omitempty"`
	Outcome string `json:"outcome"` // kept, repaired, failed, blocked, deferred, contended, notApplicable, unknown
	Detail  string `json:"detail,omitempty"`
}

// outcome is how the resource stands, for a person.
func (r *Resource) outcome() present.Cell {
	o, err := reason.ParseOutcome(r.Outcome)
	if err != nil {
		o = reason.Unknown // told by a later version
	}
	return present.Outcome(o, reason.Detail(r.Detail))
}

// Edge says that one resource comes after another.
type Edge struct {
	From string `json:"from"` // claim of what comes first
	To   string `json:"to"`   // claim of what comes after it
	Kind string `json:"kind"` // one of the constants
	Why  string `json:"why,omitempty"`
	// Dropped says why the order is not kept; empty where it is.
	Dropped string `json:"dropped,omitempty"`
}
