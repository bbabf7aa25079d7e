package await

import (
	"strings"
	"testing"
)

// TestSource: a source has converged when the newest commit is applied and its hosts are as it declares; a request is answered by what is
// said after it, and by nothing from before.
func TestSource(t *testing.T) {
	const (
		ready       = `{"type": "Ready", "status": "True", "message": "commit 12345678 is applied"}`
		refused     = `{"type": "Ready", "status": "False", "reason": "CommitRefused", "message": "a.yaml:3: no"}, {"type": "Stalled", "status": "True"}`
		tried       = `{"type": "Ready", "status": "False", "reason": "NotReached", "message": "no route"}, {"type": "Reconciling", "status": "True"}`
		commits     = `"seen": {"id": "1"}, "applied": {"id": "1"}`
		behind      = `"seen": {"id": "2"}, "applied": {"id": "1"}`
		half        = `"hosts": {"commit": "1", "selected": 3, "converged": 1}`
		all         = `"hosts": {"commit": "1", "selected": 3, "converged": 3}`
		ofBefore    = `"hosts": {"commit": "0", "selected": 3, "converged": 3}`
		ofNone      = `"hosts": {"selected": 0, "converged": 0}`
		asked       = `"handledRequest": "now"`
		askedBefore = `"handledRequest": "then"`
	)
	converged, err := Parse("converged")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		goal       Goal
		conditions string
		rest       []string
		state      State
		words      string
	}{
		{"nothing is said", converged, "", nil, Pending, "nobody has looked"},
		{"ready without hosts", converged, ready, []string{commits}, Reached, "12345678"},
		{"a newer commit is seen", converged, ready, []string{behind}, Pending, "newest commit"},
		{"some hosts are not there yet", converged, ready, []string{commits, half}, Pending, "1 of 3"},
		{"all hosts are", converged, ready, []string{commits, all}, Reached, ""},
		{"hosts of the commit before", converged, ready, []string{commits, ofBefore}, Pending, "not counted"},
		{"nobody knows for which hosts", converged, ready, []string{commits, ofNone}, Pending, "not counted"},
		{"of an older generation", converged, ready, []string{commits, `"observedGeneration": 1`}, Pending, "generation 2"},
		{"refused", converged, refused, []string{behind}, Stalled, "a.yaml:3"},
		{"tried again", converged, tried, []string{commits}, Pending, "no route"},
		{"asked, and not looked", Handled("now"), ready, []string{commits, askedBefore}, Pending, "not looked"},
		{"an old refusal is no answer", Handled("now"), refused, []string{askedBefore}, Pending, "not looked"},
		{"asked, and applied", Handled("now"), ready, []string{commits, asked}, Reached, ""},
		{"asked, and refused", Handled("now"), refused, []string{asked}, Stalled, "a.yaml:3"},
		{"asked, and tried again", Handled("now"), tried, []string{asked}, Pending, "no route"},
		{"asked, and nothing said", Handled("now"), "", []string{asked}, Pending, "nothing"},
	} {
		status := `"conditions": [` + c.conditions + `]`
		if !strings.Contains(strings.Join(c.rest, ""), "observedGeneration") && c.conditions != "" {
			c.rest = append(c.rest, `"observedGeneration": 2`)
		}
		o := object(t, `"metadata": {"generation": 2}, "status": {`+strings.Join(append(c.rest, status), ", ")+`}`)
		o.SetKind("Source")
		if got := c.goal.Look(o); got.State != c.state || !strings.Contains(got.Words, c.words) || got.Words == "" {
			t.Errorf("%s: %+v, want state %d and %q", c.name, got, c.state, c.words)
		}
	}
	for kind, fits := range map[string]bool{"Node": true, "Source": true, "NodeConfig": false} {
		if converged.Fits(kind) != fits {
			t.Errorf("%s can converge: %t", kind, !fits)
		}
	}
}
