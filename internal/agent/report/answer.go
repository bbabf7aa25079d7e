package report

import (
	"strings"
	"tako.dev/tako/internal/agent/instances/core"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/observe"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

// Answer is the answer to `why`.
type Answer struct {
	Resource   Resource          `json:"resource"`
	Instance   *core.Account     `json:"instance,omitempty"` // of an instance of a workload, which is no resource
	Because    []Resource        `json:"because,omitempty"`  // with blocked: the chain of what it waits for, the root cause last
	Requires   []Relation        `json:"requires,omitempty"` // what it comes after
	Watched    bool              `json:"watched"`            // the kernel tells when it is touched
	History    []store.Happening `json:"history,omitempty"`  // newest first
	Candidates []string          `json:"candidates,omitempty"`
	// Differs is how what is there differs from what is declared now. It is looked at for a server that asks.
	Differs  []observe.Difference `json:"differs,omitempty"`
	Unlooked string               `json:"unlooked,omitempty"` // why that cannot be told
}

// Relation is an order that a resource is in.
type Relation struct {
	Title   string         `json:"title"`
	Kind    string         `json:"kind"` // require, notify, automatic
	Why     string         `json:"why,omitempty"`
	Outcome reason.Outcome `json:"outcome"`
}

// HistoryShown is how many happenings an answer carries.
const HistoryShown = 10

// Names reports whether a subject names a resource: by its title TYPE/NAME, its name, its claim, or what it claims.
func Names(subject, title string, claim declare.Claim) bool {
	_, name, _ := strings.Cut(title, "/")
	return subject == title || subject == name || subject == claim.String() || subject == claim.ID
}

// Unknown says that nothing here is called so.
func Unknown(subject string) error {
	return &reason.Error{Code: reason.ResourceUnknown, Doing: "explain " + subject,
		Hint: "`tako-agent status --all` lists the resources; a resource is named by TYPE/NAME, its name, or its path, package or unit"}
}
