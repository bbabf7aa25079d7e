package assignments

import (
	"testing"

	"tako.dev/tako/internal/casetest"
)

// TestTransferCase38_LagIsAnAge: of a host that takes its states up slowly it is said since when it has not had its newest one. The states that
// come meanwhile do not make it look younger.
func TestTransferCase38_LagIsAnAge(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t)
	n := r.join("a", "qa")
	r.settles("qa", "web", r.declare("qa", "web", "one", allAtOnce), "Complete")
	r.agents["a"].deaf = true
	next := func(content string) (version int64, since int64) {
		revision := r.declare("qa", "web", content, allAtOnce)
		r.eventually("it is assigned", func() string {
			head, _ := r.begun.AssignedHead(n.UID)
			a := r.assignment("a")
			return unless(len(a.Spec.Layers) == 1 && a.Spec.Layers[0].Revision == revision && head.Version == int64(versionOf(a)), "not yet")
		})
		head, _ := r.begun.AssignedHead(n.UID)
		return head.Version, head.Since.UnixNano()
	}
	version, behind := next("two")
	for _, content := range []string{"three", "four", "five"} {
		later, since := next(content)
		c.Check(later > version, "version %d comes after %d", later, version)
		c.Equal(since, behind, "since when it is behind, with version "+content)
		version = later
	}
	r.agents["a"].deaf = false
	r.eventually("it has the newest", func() string {
		seen, _ := r.presence.Of(n.UID)
		return unless(seen.Report != nil && seen.Report.Enforced.Version == uint64(version), "not yet")
	})
	r.settles("qa", "web", r.assigned("a")[0], "Complete")
	_, since := next("six")
	c.Check(since > behind, "it had caught up, and is said to be behind since before that")
}
