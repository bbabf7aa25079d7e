package await

import (
	"fmt"
	"strings"
	"testing"
)

// TestConverged: a node has converged when its host answers and all of the newest state is as declared. What the host refuses does
// not come by waiting.
func TestConverged(t *testing.T) {
	const (
		joined  = `"identity": {"key": "sha256:00", "sealingKey": "AA==", "joined": "2026-01-02T03:04:05Z"}`
		ready   = `"conditions": [{"type": "Ready", "status": "True"}]`
		unknown = `"conditions": [{"type": "Ready", "status": "Unknown", "reason": "AgentSilent", "message": "nothing was heard"}]`
	)
	head := func(name string, epoch, version int) string {
		return fmt.Sprintf(`"%sHead": {"epoch": %d, "version": %d, "root": "sha256:00"}`, name, epoch, version)
	}
	verdict := func(kind string, version int) string {
		return fmt.Sprintf(`"verdict": {"type": %q, "version": %d, "code": "TK0431", "message": "words", "since": "2026-01-02T03:04:05Z"}`, kind, version)
	}
	there := []string{joined, ready, head("assigned", 1, 7)}
	for _, c := range []struct {
		name  string
		parts []string
		state State
		words string
	}{
		{"nobody joined", nil, Pending, "no host has joined"},
		{"never heard", []string{joined}, Pending, "not heard yet"},
		{"silent", []string{joined, unknown, head("assigned", 1, 7), head("applied", 1, 7), verdict("Applied", 7)}, Pending, "nothing was heard"},
		{"nothing assigned", []string{joined, ready}, Pending, "no state for it"},
		{"nothing applied", there, Pending, "no state yet"},
		{"behind", append(there, head("applied", 1, 6), verdict("Applied", 6)), Pending, "has state 6, and state 7"},
		{"of an earlier epoch", append(there, head("applied", 0, 7), verdict("Applied", 7)), Pending, "state 7"},
		{"on its way", append(there, head("applied", 1, 7), verdict("Pending", 7)), Pending, "state 7"},
		{"partial", append(there, head("applied", 1, 7), verdict("Partial", 7)), Pending, "not everything"},
		{"partial, and it is known why", append(there, head("applied", 1, 7), verdict("Partial", 7),
			`"problems": [{"resource": "file/motd", "claim": "path:/etc/motd", "config": "x", "outcome": "failed", "message": "no space"}]`), Pending, "file/motd is failed: no space"},
		{"applied", append(there, head("applied", 1, 7), verdict("Applied", 7)), Reached, "state 7"},
		{"rejected", append(there, head("applied", 1, 6), verdict("Rejected", 7)), Stalled, "state 7 is Rejected (TK0431): words"},
		{"withheld", append(there, head("applied", 1, 6), verdict("Withheld", 7)), Stalled, "Withheld"},
		{"quarantined", append(there, head("applied", 1, 6), verdict("Quarantined", 7)), Stalled, "Quarantined"},
		{"an earlier one was rejected", append(there, head("applied", 1, 5), verdict("Rejected", 6)), Pending, "has state 5"},
	} {
		goal, err := Parse("converged")
		if err != nil {
			t.Fatal(err)
		}
		got := goal.Look(object(t, `"metadata": {"name": "a"}, "status": {`+strings.Join(c.parts, ", ")+`}`))
		if got.State != c.state || !strings.Contains(got.Words, c.words) {
			t.Errorf("%s: %+v, want state %d and %q", c.name, got, c.state, c.words)
		}
	}
	if _, err := Parse("converged=True"); err == nil {
		t.Error("converged=True is no mistake")
	}
}
