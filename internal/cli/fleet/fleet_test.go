package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/present"
)

var now = time.Date(2026, 3, 4, 15, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func condition(kind string, status metav1.ConditionStatus, why, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: why, Message: message, LastTransitionTime: ago(14 * time.Minute)}
}

// aNode is a node that is as declared.
func aNode(name string, change ...func(*v1alpha1.Node)) v1alpha1.Node {
	heard := ago(3 * time.Second)
	n := v1alpha1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeSpec{Environment: "prod"}, Status: v1alpha1.NodeStatus{
		Identity: &v1alpha1.NodeIdentity{Key: "sha256:aa"}, LastHeard: &heard,
		AssignedHead: &v1alpha1.AppliedHead{Epoch: 1, Version: 7}, AppliedHead: &v1alpha1.AppliedHead{Epoch: 1, Version: 7},
		Verdict: &v1alpha1.Verdict{Type: v1alpha1.VerdictApplied, Version: 7}, Promises: v1alpha1.PromiseCounts{Kept: 40, Repaired: 1},
		Conditions: []metav1.Condition{condition(node.Ready, metav1.ConditionTrue, node.ReasonAnswering, "the agent answers")},
	}}
	for _, f := range change {
		f(&n)
	}
	return n
}

func aConfig(name string, change ...func(*Config)) Config {
	c := Config{ID: "NodeConfig/prod/" + name, Meta: metav1.ObjectMeta{Name: name, Namespace: "prod", UID: "u-1", Generation: 2},
		Status: v1alpha1.NodeConfigStatus{ObservedGeneration: 2, Revision: name + "-2", Rollout: &v1alpha1.RolloutStatus{
			Phase: string(rollout.Complete), Target: name + "-2", Proven: name + "-2", Selected: 2, Done: 2}}}
	for _, f := range change {
		f(&c)
	}
	return c
}

func halted(c *Config) {
	r := c.Status.Rollout
	r.Phase, r.Proven, r.Done, r.Failed, r.Left, r.Since = string(rollout.Halted), "web-1", 0, 1, 1, ago(2*time.Minute)
	r.Message = "1 node failed, and haltOnFailed is 1"
	r.Culprits = []v1alpha1.RolloutCulprit{{Node: "web-1", Code: "TK0903", Message: `service/nginx: unknown directive "sendfil"`}}
}

func words(list []Finding) string {
	var parts []string
	for _, x := range list {
		parts = append(parts, x.What)
	}
	return strings.Join(parts, ", ")
}

func TestWhatIsSaidOfANode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.Node)
		what   string // of the findings, in order
		says   string // somewhere in the text
		next   string
	}{
		"as declared": {func(*v1alpha1.Node) {}, "", "", ""},
		"not joined":  {func(n *v1alpha1.Node) { n.Status = v1alpha1.NodeStatus{} }, "Not joined", "no host has joined", "tako token create join --name web-1"},
		"somebody else wants in": {func(n *v1alpha1.Node) {
			n.Status.JoinRequest = &v1alpha1.JoinRequest{Key: "sha256:bb", From: "10.0.0.9", At: ago(time.Minute)}
		}, "Join refused", "10.0.0.9", "tako node approve web-1"},
		"approved already": {func(n *v1alpha1.Node) {
			n.Status.JoinRequest, n.Spec.ApprovedKey = &v1alpha1.JoinRequest{Key: "sha256:bb"}, "sha256:bb"
		}, "", "", ""},
		"silent": {func(n *v1alpha1.Node) {
			n.Status.Conditions = []metav1.Condition{condition(node.Ready, metav1.ConditionUnknown, node.ReasonAgentSilent, "two heartbeats unanswered")}
		}, "Unknown", "AgentSilent: two heartbeats", "on web-1 itself: systemctl status tako-agent, and tako-agent status"},
		"cloned": {func(n *v1alpha1.Node) {
			n.Status.Conditions = []metav1.Condition{condition(node.Ready, metav1.ConditionFalse, node.Cloned, "two"), condition(node.Cloned, metav1.ConditionTrue, node.ReasonTwoSessions, "two agents")}
		}, "Cloned", "two agents", ""},
		"behind":    {func(n *v1alpha1.Node) { n.Status.AssignedHead.Version = 9 }, "Behind", "it has state 7, and state 9", ""},
		"new epoch": {func(n *v1alpha1.Node) { n.Status.AssignedHead = &v1alpha1.AppliedHead{Epoch: 2, Version: 3} }, "Behind", "state 3", ""},
		"no state":  {func(n *v1alpha1.Node) { n.Status.AppliedHead = nil }, "Not fetched", "state 7 is there", ""},
		"withheld": {func(n *v1alpha1.Node) {
			n.Status.Verdict = &v1alpha1.Verdict{Type: v1alpha1.VerdictWithheld, Version: 9, Message: "deletes 20 of 21", Code: "TK1025"}
			n.Status.AssignedHead.Version = 9
		}, "Withheld", "deletes 20 of 21", "tako resume node/web-1"},
		"a failed and a blocked resource": {func(n *v1alpha1.Node) {
			n.Status.Problems = []v1alpha1.ResourceProblem{
				{Resource: "service/b", Config: "NodeConfig/prod/web", Outcome: "blocked", Message: "waits for service/nginx"},
				{Resource: "service/nginx", Config: "NodeConfig/prod/web", Outcome: "failed", Code: "TK0903", Message: "exit-code"}}
		}, "Failed, Blocked", "service/nginx of NodeConfig/prod/web: exit-code", "tako why service/nginx --node web-1"},
		"was lied to": {func(n *v1alpha1.Node) { n.Status.Disbelieved = &v1alpha1.Disbelieved{Forged: 2, Content: 1} },
			"Disbelieved", "2 forged states, 1 parts that were not what it had asked for were sent to it", "tako events --for node/web-1"},
		"has an order": {func(n *v1alpha1.Node) {
			n.Status.Statements = []v1alpha1.LayerStatement{{Config: "NodeConfig/prod/web", Number: 7}}
		},
			"Ordered", "in place of NodeConfig/prod/web the host enforces order 7", "tako apply -f the file that the order was made of"},
		"has refused an order": {func(n *v1alpha1.Node) {
			n.Status.Statements = []v1alpha1.LayerStatement{{Config: "NodeConfig/prod/web", Number: 7, Code: "TK1022", Message: "it deletes much"}}
		}, "Order refused", "number 7 about NodeConfig/prod/web was brought to the host by hand, and what was enforced before stays: it deletes much", ""},
		"cordoned":       {func(n *v1alpha1.Node) { n.Spec.Unschedulable = true }, "Cordoned", "what runs there stays", "tako node uncordon web-1"},
		"to be drained":  {func(n *v1alpha1.Node) { n.Spec.Drain = &v1alpha1.NodeDrain{} }, "Draining", "nobody has looked yet", ""},
		"drained before": {draining(metav1.ConditionTrue, "Drained", 0), "Draining", "nobody has looked yet", ""},
		"draining":       {draining(metav1.ConditionFalse, "Draining", 1), "Draining", "words", ""},
		"drain stuck":    {draining(metav1.ConditionFalse, "TK0760", 1), "Drain stuck", "words", "tako node drain web-1 --deadline 10m"},
		"drained":        {draining(metav1.ConditionTrue, "Drained", 1), "Drained", "words", "tako node uncordon web-1"},
		"held": {func(n *v1alpha1.Node) {
			n.Spec.Holds = []v1alpha1.NodeHold{{Resource: "path:/etc/motd", Reason: "mine", Owner: "ann", Until: ago(-time.Hour)}}
		}, "Held", "path:/etc/motd is looked at and not changed, by ann until 2026-03-04T16:00:00Z: mine", "tako resume node/web-1"},
	} {
		t.Run(name, func(t *testing.T) {
			n := aNode("web-1", c.change)
			list := (&Fleet{Nodes: []v1alpha1.Node{n}}).OfNode(&n)
			if got := words(list); got != c.what {
				t.Fatalf("%q, want %q", got, c.what)
			}
			if len(list) > 0 && (!strings.Contains(list[0].Text, c.says) || list[0].Next != c.next || list[0].Subject != "node/web-1") {
				t.Errorf("%+v, want %q and next %q", list[0], c.says, c.next)
			}
		})
	}
}

// draining is a node that is drained, with what was said of that at a generation; its own is 1.
func draining(status metav1.ConditionStatus, why string, generation int64) func(*v1alpha1.Node) {
	return func(n *v1alpha1.Node) {
		n.Generation, n.Spec.Drain = 1, &v1alpha1.NodeDrain{}
		n.Status.Conditions = append(n.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionDrained, Status: status, Reason: why, Message: "words", ObservedGeneration: generation})
	}
}

func TestWhatIsSaidOfAConfig(t *testing.T) {
	conflict := func(c *Config) {
		c.Status.Conflicts = []v1alpha1.ConfigConflict{{Config: "NodeConfig/prod/old", Claim: "path:/etc/motd", Field: "file.content", Value: "a", OtherValue: "b",
			Nodes: []string{"web-1"}, NodeCount: 3, Message: "NodeConfig/prod/old is there already"}}
	}
	for name, c := range map[string]struct {
		change   func(*Config)
		what     string
		evidence string
		next     string
	}{
		"complete":      {func(*Config) {}, "", "", ""},
		"not looked at": {func(c *Config) { c.Meta.Generation = 3 }, "Not looked at", "", ""},
		"halted":        {halted, "Halted", `node/web-1: TK0903 service/nginx: unknown directive "sendfil"`, "tako rollout undo nodeconfig/web -n prod"},
		"halted, and nothing was before": {func(c *Config) { halted(c); c.Status.Rollout.Proven = "" }, "Halted", "node/web-1",
			"tako edit nodeconfig/web -n prod"},
		"waiting for a silent node": {func(c *Config) {
			c.Status.Rollout.Phase, c.Status.Rollout.Culprits = string(rollout.Waiting), []v1alpha1.RolloutCulprit{{Node: "web-1", Message: "silent"}}
		}, "Waiting", "node/web-1: silent", ""},
		"failed by a gate": {func(c *Config) {
			halted(c)
			c.Status.Rollout.Target, c.Status.Rollout.Failure = "web-2", &v1alpha1.RolloutFailure{Revision: "web-2"}
		}, "Halted", "", "tako rollout undo nodeconfig/web -n prod"},
		"rolled back": {func(c *Config) {
			halted(c)
			r := c.Status.Rollout
			r.Phase, r.Target, r.Failure = string(rollout.RolledBack), "web-2", &v1alpha1.RolloutFailure{Revision: "web-2", Goal: "web-1"}
			c.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, "RolledBack", "it failed")}
		}, "Rolled back", "", "tako edit nodeconfig/web -n prod"},
		"rolling back": {func(c *Config) { c.Status.Rollout.Phase = string(rollout.RollingBack) }, "Rolling back", "", ""},
		"paused":       {func(c *Config) { c.Status.Rollout.Phase = string(rollout.Paused) }, "Paused", "", "tako rollout resume nodeconfig/web -n prod"},
		"rolling":      {func(c *Config) { c.Status.Rollout.Phase = string(rollout.Rolling) }, "Rolling", "", ""},
		"stalled for another reason": {func(c *Config) {
			c.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, "TK1070", "secret app has no key token")}
		}, "Stalled", "", ""},
		"halted says it once": {func(c *Config) {
			halted(c)
			c.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, "Halted", "at web-1")}
		}, "Halted", "node/web-1", "tako rollout undo nodeconfig/web -n prod"},
		"tried":    {func(c *Config) { c.Spec.Rollout = declare.Rollout{Try: "20s"} }, "Tried", "", "tako rollout confirm nodeconfig/web -n prod"},
		"conflict": {conflict, "Conflict", "on web-1 and 2 more nodes", ""},
	} {
		t.Run(name, func(t *testing.T) {
			config := aConfig("web", c.change)
			list := (&Fleet{}).OfConfig(&config)
			if got := words(list); got != c.what {
				t.Fatalf("%q, want %q", got, c.what)
			}
			if len(list) > 0 && (!strings.Contains(list[0].Evidence, c.evidence) || list[0].Next != c.next) {
				t.Errorf("%+v, want %q and next %q", list[0], c.evidence, c.next)
			}
		})
	}
}

// TestConflictIsToldOnTheNode: a node that two configs fight about says so too, and a page says it once.
func TestConflictIsToldOnTheNode(t *testing.T) {
	f := &Fleet{Nodes: []v1alpha1.Node{aNode("web-1"), aNode("web-2")}, Configs: []Config{aConfig("web", func(c *Config) {
		c.Status.Conflicts = []v1alpha1.ConfigConflict{{Config: "NodeConfig/prod/old", Nodes: []string{"web-1"}, NodeCount: 1, Message: "both want /etc/motd"}}
	})}}
	if got := words(f.OfNode(&f.Nodes[0])); got != "Conflict" {
		t.Errorf("on web-1: %q", got)
	}
	if got := words(f.OfNode(&f.Nodes[1])); got != "" {
		t.Errorf("on web-2: %q", got)
	}
	if s := f.Status(nil); len(s.Attention) != 1 || s.Healthy() || s.Nodes.Converged != 2 {
		t.Errorf("the page: %+v", s)
	}
}

func TestRevision(t *testing.T) {
	f := &Fleet{Nodes: []v1alpha1.Node{aNode("web-1"), aNode("web-2")}, Configs: []Config{aConfig("web", halted)},
		Assignments: map[string]*v1alpha1.Assignment{
			"web-1": {Spec: v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/web", Revision: "web-2"}}}},
			"web-2": {Spec: v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/web", Revision: "web-1"}}}},
		}}
	title, list := f.OfRevision("prod", "web-2")
	if title != "revision web-2 of nodeconfig/web -n prod" || words(list) != "Halted, Not there, Assigned" {
		t.Errorf("%q: %q", title, words(list))
	}
	if _, list := f.OfRevision("prod", "web-1"); words(list) != "Halted, Replaced, Assigned" && words(list) != "Halted, Assigned, Replaced" {
		t.Errorf("the old one: %q", words(list))
	}
	if title, _ := f.OfRevision("qa", "web-2"); title != "" {
		t.Errorf("in another namespace: %q", title)
	}
}

func TestPage(t *testing.T) {
	f := &Fleet{
		Nodes: []v1alpha1.Node{aNode("web-1"), aNode("web-2", func(n *v1alpha1.Node) { n.Status.AssignedHead.Version = 9 }),
			aNode("web-3", func(n *v1alpha1.Node) {
				n.Status.Conditions = []metav1.Condition{condition(node.Ready, metav1.ConditionUnknown, node.ReasonHostGone, "host or link are lost")}
			}),
			aNode("web-4", func(n *v1alpha1.Node) {
				n.Status.Promises.Failed = 1
				n.Status.Problems = []v1alpha1.ResourceProblem{{Resource: "service/nginx", Config: "NodeConfig/prod/web", Outcome: "failed", Message: "exit-code\nand more"}}
			})},
		Configs: []Config{aConfig("web", halted), aConfig("db")},
	}
	want := `Nodes      4 · 1 as declared · 1 on the way · 1 not as declared · 1 unknown
Configs    2 · 1 complete · 1 halted
Resources  ✔ Kept 120 · ↻ Repaired 3 · ✗ Failed 1 · 41 unknown

✗ Failed       node/web-4: service/nginx of NodeConfig/prod/web: exit-code …
✗ Halted       nodeconfig/web -n prod: 0 of 2 nodes have web-2, 1 failed, 1 left; 1 node failed, and haltOnFailed is 1 (2m ago)
✗ Join refused node/web-1: a host at 10.0.0.9 wants to join under this name and has another key: sha256:bb (1m ago)
? Unknown      node/web-3: HostGone: host or link are lost (14m ago)
`
	// That somebody else wants the name says nothing of the host that has it, and of what is not reached nobody knows how it is.
	f.Nodes[0].Status.JoinRequest = &v1alpha1.JoinRequest{Key: "sha256:bb", From: "10.0.0.9", At: ago(time.Minute)}
	f.Nodes[2].Status.Promises = v1alpha1.PromiseCounts{Unknown: 41}
	s := f.Status(nil)
	got := s.Text(now, present.Style{})
	if !strings.HasPrefix(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if s.Healthy() || !strings.HasSuffix(got, "next: tako why node/web-4\n") {
		t.Errorf("the end:\n%s", got)
	}
	quiet := (&Fleet{Nodes: []v1alpha1.Node{aNode("web-1")}}).Status(nil)
	if text := quiet.Text(now, present.Style{}); !quiet.Healthy() || !strings.HasSuffix(text, "nothing needs attention\n") {
		t.Errorf("a quiet fleet:\n%s", text)
	}
}

// TestStoreBehindComesFirst: that the store may be an old copy is the first that a person reads, with what ends it.
func TestStoreBehindComesFirst(t *testing.T) {
	n := aNode("web-1", func(n *v1alpha1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, condition(node.RollbackSuspected, metav1.ConditionTrue, node.ReasonStoreBehind, "its host has accepted version 9"))
	})
	f := &Fleet{Nodes: []v1alpha1.Node{n, aNode("web-2")}}
	s := f.Status(nil)
	want := "✗ The store of the server is older than what 1 nodes have: web-1. Nothing new is signed for them; what is declared may be an old copy\n  next: tako trust bump-epoch"
	if text := s.Text(now, present.Style{}); s.Healthy() || !strings.HasPrefix(text, want) {
		t.Errorf("healthy %v:\n%s", s.Healthy(), text)
	}
	if found := f.OfNode(&n); words(found) != "RollbackSuspected" || found[0].Next != bumpEpoch {
		t.Errorf("%+v", found)
	}
}

// TestNothingMovesTheCursor: what hosts and people wrote is shown and not obeyed.
func TestNothingMovesTheCursor(t *testing.T) {
	text := Explain("node/\x1b[31mweb", []Finding{{Weight: Broken, Subject: "node/a\x1b[2J", What: "Failed", Text: "x\x07", Evidence: "line\x1b]0;t\x07", Next: "tako\r"}}, now, present.Style{})
	if strings.ContainsAny(text, "\x1b\x07\r") {
		t.Errorf("%q", text)
	}
}
