package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/present"
)

// TestWhyNodeSpeaksTransfer: which state a host has, which there is, what it has made of it, when and through whom it was heard, and what is held.
func TestWhyNodeSpeaksTransfer(t *testing.T) {
	root := func(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }
	since := func(d time.Duration) *metav1.Time {
		at := ago(d)
		return &at
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.Node)
		want   string
	}{
		"as declared": {func(*v1alpha1.Node) {}, `
  everything is as declared
  – State        node/web-1: it enforces version 7, the newest that there is for it
    | enforced version 7 of epoch 1, root aaaaaaaaaaaa, since 2026-03-04T14:00:00Z
    | verdict  Applied, of version 7, since 2026-03-04T14:01:00Z
    | heard    last at 2026-03-04T14:59:57Z, through server tako.example:6444
`},
		"behind": {func(n *v1alpha1.Node) {
			n.Status.AssignedHead = &v1alpha1.AppliedHead{Epoch: 1, Version: 90, Root: root("b"), Since: since(10 * time.Minute)}
			n.Status.Verdict = &v1alpha1.Verdict{Type: v1alpha1.VerdictPending, Version: 42}
			n.Status.Server, n.Status.Through = "relay.example:6444", "edge-1"
		}, `
  … Behind       node/web-1: it has state 7, and state 90 is there for it (10m ago)
  – State        node/web-1: it enforces version 7; the newest that there is for it is version 90
    | enforced version 7 of epoch 1, root aaaaaaaaaaaa, since 2026-03-04T14:00:00Z
    | newest   version 90 of epoch 1, root bbbbbbbbbbbb, since 2026-03-04T14:50:00Z
    | verdict  Pending, of version 42
    | heard    last at 2026-03-04T14:59:57Z, through relay edge-1 at relay.example:6444
`},
		"quarantined": {func(n *v1alpha1.Node) {
			n.Status.AssignedHead = &v1alpha1.AppliedHead{Epoch: 1, Version: 9, Root: root("b")}
			n.Status.Verdict = &v1alpha1.Verdict{Type: v1alpha1.VerdictQuarantined, Version: 9, Code: "TK1023", Message: "the agent died three times on the way to it", Since: ago(time.Minute)}
		}, `
  ✗ Quarantined  node/web-1: state 9: the agent died three times on the way to it (1m ago)
    tako help TK1023
    next: tako history node/web-1
  – State        node/web-1: it enforces version 7; the newest that there is for it is version 9
    | enforced version 7 of epoch 1, root aaaaaaaaaaaa, since 2026-03-04T14:00:00Z
    | newest   version 9 of epoch 1, root bbbbbbbbbbbb
    | verdict  Quarantined, of version 9, since 2026-03-04T14:59:00Z  TK1023
    | heard    last at 2026-03-04T14:59:57Z, through server tako.example:6444
`},
		"nothing yet, and from an agent that does not tell": {func(n *v1alpha1.Node) {
			n.Status.AppliedHead, n.Status.Verdict, n.Status.Server = nil, nil, ""
			n.Status.FromPeer = &v1alpha1.NodeNews{Node: "web-2", At: ago(time.Hour)}
		}, `
  … Not fetched  node/web-1: state 7 is there for it, and it has none yet
  – State        node/web-1: it enforces none yet; the newest that there is for it is version 7
    | newest   version 7 of epoch 1, root aaaaaaaaaaaa
    | heard    last at 2026-03-04T14:59:57Z
    | peer     node web-2 had something new for it at 2026-03-04T14:00:00Z, while it reached no server
`},
		"held, and its clock is ahead": {func(n *v1alpha1.Node) {
			n.Status.Held, n.Status.AssignedHead = 3, nil
			n.Spec.Holds = []v1alpha1.NodeHold{{Reason: "mine", Owner: "ann", Until: ago(-time.Hour)}}
			n.Status.Conditions = append(n.Status.Conditions, condition(node.Stale, metav1.ConditionTrue, node.ReasonClockAhead, "its clock is ahead by 26h0m0s"))
		}, `
  ✗ Stale        node/web-1: its clock is ahead by 26h0m0s (14m ago)
  – Held         node/web-1: everything is looked at and not changed, by ann until 2026-03-04T16:00:00Z: mine
    next: tako resume node/web-1
  – State        node/web-1: it enforces version 7; nothing is assigned to it
    | enforced version 7 of epoch 1, root aaaaaaaaaaaa, since 2026-03-04T14:00:00Z
    | verdict  Applied, of version 7, since 2026-03-04T14:01:00Z
    | heard    last at 2026-03-04T14:59:57Z, through server tako.example:6444
    | held     3 of its resources
`},
	} {
		t.Run(name, func(t *testing.T) {
			n := aNode("web-1", func(n *v1alpha1.Node) {
				n.Status.AppliedHead.Root, n.Status.AssignedHead.Root, n.Status.AppliedHead.Since = root("a"), root("a"), since(time.Hour)
				n.Status.Verdict.Since, n.Status.Server = ago(59*time.Minute), "tako.example:6444"
			}, c.change)
			f := &Fleet{Nodes: []v1alpha1.Node{n}}
			title, found, err := f.About(remote.Ref{Kind: remote.Kind{GroupVersionKind: v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.KindNode)}, Name: "web-1"})
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ := strings.Cut(Explain(title, found, now, present.Style{}), "\n")
			if "\n"+got != c.want {
				t.Errorf("it says\n%s\nwant%s", got, c.want)
			}
			if status := f.Status(nil); strings.Contains(status.Text(now, present.Style{}), transferred+" ") {
				t.Errorf("the page of the fleet has it too: %s", status.Text(now, present.Style{}))
			}
		})
	}
}
