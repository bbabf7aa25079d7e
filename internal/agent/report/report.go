// Package report is what an agent tells of its host: on the host itself, on its disk for when it does not run, and to its servers.
//
// The package owns no goroutine. It is data, and how that is sorted, counted and judged.
package report

import (
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/agent/instances/core"
	"tako.dev/tako/internal/reason"
)

// Report is what an agent knows of its host: the answer to `status`, and what is kept on disk for when it does not run.
type Report struct {
	Node      string                 `json:"node"`
	At        time.Time              `json:"at"`
	PID       int                    `json:"pid"`
	Root      string                 `json:"root"`      // digest of the active state
	Converged bool                   `json:"converged"` // everything is kept, repaired or not applicable, and nothing is left to undo
	Settled   bool                   `json:"settled"`   // nothing is due or in flight
	Counts    map[reason.Outcome]int `json:"counts"`
	Delivered int                    `json:"delivered,omitempty"` // values of data, which nothing is done about
	Resources []Resource             `json:"resources,omitempty"` // those that a person may want to see; all when asked for all
	Omitted   int                    `json:"omitted,omitempty"`
	Refused   []Problem              `json:"refused,omitempty"`   // why the newest declaration is not the one enforced
	Holds     []Hold                 `json:"holds,omitempty"`     // that the host has of its own; those of its cluster are there
	Degraded  []Problem              `json:"degraded,omitempty"`  // what the agent cannot do as well as it should
	Cluster   *Cluster               `json:"cluster,omitempty"`   // of a host that has joined
	Instances []core.Account         `json:"instances,omitempty"` // of workloads; known to a running agent alone
	Totals    Totals                 `json:"totals"`
}

// Totals count since the agent started.
type Totals struct {
	Since      time.Time `json:"since"`
	Checks     uint64    `json:"checks"`     // that looked at a resource
	Recognised uint64    `json:"recognised"` // that saw our own last work and looked no further
	Drift      uint64    `json:"drift"`      // repairs of drift
	Change     uint64    `json:"change"`     // changes because the declaration changed
	Missed     uint64    `json:"missed"`     // drift that an audit found and no event had told: should be 0
	Overflows  uint64    `json:"overflows"`  // of the kernel's event queue
	Watches    int       `json:"watches"`    // directories watched
}

// Resource is one resource in a report.
type Resource struct {
	Title     string         `json:"title"`
	Claim     string         `json:"claim"`
	Config    string         `json:"config"`
	Place     string         `json:"place,omitempty"`
	Outcome   reason.Outcome `json:"outcome"`
	Detail    reason.Detail  `json:"detail,omitempty"`
	Problem   *Problem       `json:"problem,omitempty"`
	Since     time.Time      `json:"since,omitzero"`
	Attempts  int            `json:"attempts,omitempty"`
	RetryAt   time.Time      `json:"retryAt,omitzero"`
	BlockedBy string         `json:"blockedBy,omitempty"`
	When      string         `json:"when,omitempty"`    // the condition that is false
	Removal   string         `json:"removal,omitempty"` // how it is being undone: it is not declared any more
	Owes      []string       `json:"owes,omitempty"`    // whose changes it has not been refreshed for yet
}

// Problem is a coded reason.
type Problem struct {
	Code     reason.Code `json:"code"`
	Message  string      `json:"message"`
	Hint     string      `json:"hint,omitempty"`
	Evidence string      `json:"evidence,omitempty"`
}

// ProblemOf is an error as a report has it; nil of nil.
func ProblemOf(e *reason.Error) *Problem {
	if e == nil {
		return nil
	}
	return &Problem{Code: e.Code, Message: e.Error(), Hint: e.Hint, Evidence: e.Evidence}
}

// Verdict is nil when everything is converged, otherwise an error with the exit code that fits.
func (r *Report) Verdict() error {
	if r.Converged {
		return nil
	}
	var names []string
	deferred := 0
	for _, res := range r.Resources {
		if !res.Outcome.Converged() && len(names) < 3 {
			names = append(names, res.Title)
		}
	}
	deferred = r.Counts[reason.Deferred]
	code := reason.NotConverged
	if deferred > 0 && r.Counts[reason.Failed]+r.Counts[reason.Contended]+r.Counts[reason.Unknown] == 0 {
		code = reason.RateLimited
		for _, res := range r.Resources {
			if res.Outcome == reason.Deferred && res.Problem != nil {
				code = res.Problem.Code
			}
		}
	}
	return &reason.Error{Code: code, Doing: "converge " + strings.Join(names, ", "), Hint: "tako-agent why " + first(names)}
}

func first(names []string) string {
	if len(names) == 0 {
		return "RESOURCE"
	}
	return names[0]
}

// Rank sorts what needs a person first.
func Rank(o reason.Outcome) int {
	return slices.Index([]reason.Outcome{reason.Failed, reason.Contended, reason.Blocked, reason.Deferred, reason.Unknown,
		reason.Repaired, reason.Kept, reason.NotApplicable}, o)
}
