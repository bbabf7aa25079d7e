package fleet

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
)

func holding(list ...v1alpha1.NodeHold) *v1alpha1.Node {
	n := &v1alpha1.Node{}
	n.Spec.Holds = list
	return n
}

// TestHolds: a hold takes the place of the one of the same thing and of no other; resuming ends what is named, or all.
func TestHolds(t *testing.T) {
	motd, web, all := v1alpha1.NodeHold{Resource: "path:/etc/motd"}, v1alpha1.NodeHold{Config: "NodeConfig/qa/web"}, v1alpha1.NodeHold{}
	again := motd
	again.Reason, again.Until = "again", metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	n := holding(motd, web)
	if said := Hold(n, again); said != "held until 2026-01-02T03:04:05Z" || !slices.Equal(n.Spec.Holds, []v1alpha1.NodeHold{web, again}) {
		t.Errorf("%q: %v", said, n.Spec.Holds)
	}
	for _, c := range []struct {
		name   string
		node   *v1alpha1.Node
		resume v1alpha1.NodeHold
		said   string
		left   []v1alpha1.NodeHold
	}{
		{"one of two", holding(motd, web), motd, "resumed", []v1alpha1.NodeHold{web}},
		{"all", holding(motd, web), all, "resumed", nil},
		{"what is not held", holding(web), motd, "", []v1alpha1.NodeHold{web}},
		{"nothing", holding(), all, "", nil},
	} {
		if said := Resume(c.node, c.resume); said != c.said || !slices.Equal(c.node.Spec.Holds, c.left) {
			t.Errorf("%s: %q, left %v", c.name, said, c.node.Spec.Holds)
		}
	}
}

// TestResumeConsents: only resuming the whole node consents to what it withheld.
func TestResumeConsents(t *testing.T) {
	n := holding()
	n.Status.Verdict = &v1alpha1.Verdict{Type: v1alpha1.VerdictWithheld, Root: "sha256:00ff"}
	if said := Resume(n, v1alpha1.NodeHold{Resource: "path:/a"}); said != "" || n.Spec.AllowDeletions != "" {
		t.Errorf("%q, and allowed is %q", said, n.Spec.AllowDeletions)
	}
	if said := Resume(n, v1alpha1.NodeHold{}); said == "" || n.Spec.AllowDeletions != "00ff" {
		t.Errorf("%q, and allowed is %q", said, n.Spec.AllowDeletions)
	}
}

// TestNotes: a person sees which revision is what.
func TestNotes(t *testing.T) {
	c := &Config{Meta: metav1.ObjectMeta{UID: types.UID("u")}}
	c.Status.Revision = "web-3"
	c.Status.Rollout = &v1alpha1.RolloutStatus{Phase: "Halted", Target: "web-2", Proven: "web-1"}
	for name, want := range map[string][]string{"web-1": {"proven"}, "web-2": {"halted"}, "web-3": {"declared"}, "web-0": nil} {
		if got := c.notes(name); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
