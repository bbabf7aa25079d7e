package assignments

import (
	"testing"

	"tako.dev/tako/declare"
)

// TestAnotherValueIsTried: while a config is tried, another value that its revision takes is tried like another revision, with the way back
// to the root that was there before.
func TestAnotherValueIsTried(t *testing.T) {
	r := newRig(t)
	n := r.join("a", "qa")
	one := r.declare("qa", "web", "one", allAtOnce)
	before := r.settles("qa", "web", one, "Complete").Status.Rollout.TargetRoot
	r.declare("qa", "web", "one", declare.Rollout{MaxUnavailable: "100%", Try: "1m30s"})
	r.settles("qa", "web", one, "Complete")
	if r.assignment("a").Spec.Try != nil {
		t.Error("it is tried, and nothing has changed")
	}
	head, _ := r.begun.AssignedHead(n.UID)
	r.layers.set("NodeConfig/qa/web", func() { r.layers.salt["NodeConfig/qa/web"] = "another" })
	r.eventually("the other value is assigned", func() string {
		return unless(r.assignment("a").Spec.Layers[0].Root != before, "not yet")
	})
	try := r.assignment("a").Spec.Try
	if try == nil || try.Seconds != 90 || try.Config != "NodeConfig/qa/web" || "sha256:"+try.Fallback != head.Root || len(try.Layers) != 1 || try.Layers[0].Root != before {
		t.Fatalf("it tries %+v, before it was %+v", try, head)
	}
	r.declare("qa", "web", "one", allAtOnce)
	r.eventually("it is confirmed", func() string { return unless(r.assignment("a").Spec.Try == nil, "not yet") })
	if root := r.assignment("a").Spec.Layers[0].Root; root == before {
		t.Error("the value went back when it was confirmed")
	}
}
