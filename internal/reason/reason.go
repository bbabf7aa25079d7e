// Package reason is the closed set of outcomes and reasons that tako speaks in, everywhere: what became of a resource
// (Outcome), why (Code, printed TKnnnn, one page each), what to do about it (Retry), and how a program that ends with it
// exits (Exit). Nothing else in the tree invents a status word or an exit code.
//
// The package holds data and pure functions only; it owns no goroutine and imports nothing of ours.
package reason

import "fmt"

// Outcome says what became of one resource. The zero value is Unknown, so that a status nobody has written yet is never
// shown as good.
type Outcome uint8

// The outcomes, as in the glossary. Order has no meaning; text form is String.
const (
	Unknown       Outcome = iota // not known: not looked at yet, or it cannot be told without running something
	Kept                         // it was as declared
	Repaired                     // it was made as declared; Detail says whether it had drifted or the declaration changed
	Failed                       // it is not as declared and the last attempt ended with an error
	Blocked                      // not attempted, because something it requires is not converged
	Deferred                     // not attempted yet, because of a lock, a window, a rate limit or a content that is on its way
	Contended                    // repaired again and again while somebody else changes it back; held off
	NotApplicable                // its `when` is false on this host
)

var outcomeNames = [...]string{"unknown", "kept", "repaired", "failed", "blocked", "deferred", "contended", "notApplicable"}

// String returns the outcome's name as it stands in statuses, events and JSON.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// ParseOutcome is the inverse of String. An unknown name is an error, never a zero value.
func ParseOutcome(s string) (Outcome, error) {
	for i, n := range outcomeNames {
		if n == s {
			return Outcome(i), nil
		}
	}
	return Unknown, fmt.Errorf("parse outcome: %q is none of %v", s, outcomeNames)
}

// MarshalText writes the name, so that JSON and CBOR carry words.
func (o Outcome) MarshalText() ([]byte, error) {
	if int(o) >= len(outcomeNames) {
		return nil, fmt.Errorf("marshal outcome: %d is not an outcome", uint8(o))
	}
	return []byte(outcomeNames[o]), nil
}

// UnmarshalText reads a name; see ParseOutcome.
func (o *Outcome) UnmarshalText(b []byte) error {
	v, err := ParseOutcome(string(b))
	if err != nil {
		return err
	}
	*o = v
	return nil
}

// Converged reports whether a resource with this outcome counts as converged: kept, repaired or not applicable.
func (o Outcome) Converged() bool { return o == Kept || o == Repaired || o == NotApplicable }

// Glyph is the sign shown before the word; never the word's replacement.
func (o Outcome) Glyph() string {
	switch o {
	case Kept:
		return "✔"
	case Repaired:
		return "↻"
	case Failed:
		return "✗"
	case Blocked:
		return "⊘"
	case Deferred:
		return "…"
	case Contended:
		return "⚡"
	case NotApplicable:
		return "–"
	case Unknown:
		return "?"
	}
	return "?"
}

// Detail qualifies an outcome: why it was repaired, how it failed, what it waits for. Empty where there is nothing to add.
type Detail string

// The details, grouped by the outcome that they belong to.
const (
	Drift  Detail = "drift"  // repaired: the host had moved away from an unchanged declaration
	Change Detail = "change" // repaired: the declaration changed, or the resource is new

	DetailError Detail = "error"       // failed: anything that is none of the following
	Denied      Detail = "denied"      // failed: not permitted, by the kernel or by a safety rule of ours
	Timeout     Detail = "timeout"     // failed: took longer than its deadline
	Invalid     Detail = "invalid"     // failed: the declaration cannot be right on this host
	Unsupported Detail = "unsupported" // failed: this host or this mode cannot do it

	Coming   Detail = "coming"   // deferred: its content is being fetched
	Lock     Detail = "lock"     // deferred: somebody else holds a lock
	Window   Detail = "window"   // deferred: outside a maintenance window
	Rate     Detail = "rate"     // deferred: a rate limit
	Held     Detail = "hold"     // deferred: a person keeps it as it is
	Told     Detail = "told"     // deferred: it has drifted, and that is only to be told
	Endpoint Detail = "endpoint" // deferred: what is needed of another host is not there
)

// Retry says what to do after a failure with a code.
type Retry uint8

// The retry classes.
const (
	Never    Retry = iota // nothing changes by trying again: wait for a new declaration or an event
	BackOff               // try again after an exponential, jittered delay, for ever
	Soon                  // lost a race: look again at once; counts as an attempt, so it backs off if it keeps losing
	WaitThen              // try again after the delay that the error carries, or back off if it carries none
)

// Exit is a process exit code. The set is the same for tako and tako-agent.
type Exit int

// The exit codes. `diff` and `plan` use 0 for no change, 1 for changes, and these from 2 on.
const (
	ExitOK          Exit = 0
	ExitFailed      Exit = 1
	ExitUsage       Exit = 2
	ExitDeadline    Exit = 3
	ExitStalled     Exit = 4
	ExitNotAllowed  Exit = 5
	ExitConflict    Exit = 6
	ExitNotFound    Exit = 7
	ExitUnreachable Exit = 8
)
