package fleet

import (
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/present"
)

// TestShared: what two configs declare equally is told under the first, and the second says so; what is wrong with it is told with both.
func TestShared(t *testing.T) {
	file := func(name, path, content string) declare.Resource {
		return declare.Resource{Name: name, File: &declare.File{Path: path, Content: content}}
	}
	config := func(name string, priority int, resources ...declare.Resource) Config {
		return aConfig(name, func(c *Config) {
			c.Spec.Priority, c.Spec.Resources = &priority, resources
			c.ref = remote.Ref{Kind: remote.Kind{}, Namespace: "prod", Name: name}
			c.ref.Kind.Kind = v1alpha1.KindNodeConfig
		})
	}
	f := Fleet{
		Nodes: []v1alpha1.Node{aNode("web-1", func(n *v1alpha1.Node) {
			n.Status.Problems = []v1alpha1.ResourceProblem{{Resource: "file/same", Claim: "path:/etc/same", Config: "NodeConfig/prod/a", Outcome: "failed", Message: "no space"},
				{Resource: "file/other", Claim: "path:/etc/other", Config: "NodeConfig/prod/a", Outcome: "failed", Message: "no room"}}
		})},
		Configs: []Config{config("a", 500, file("same", "/etc/same", "x"), file("other", "/etc/other", "x")), config("b", 500, file("equal", "/etc/same", "x"), file("own", "/etc/own", "x")),
			config("c", 400, file("lower", "/etc/same", "y")), config("elsewhere", 500, file("equal", "/etc/same", "z"))},
		Assignments: map[string]*v1alpha1.Assignment{"web-1": {Spec: v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/a"}, {Config: "NodeConfig/prod/b"}, {Config: "NodeConfig/prod/c"}}}}},
	}
	about := func(name string) string {
		ref := remote.Ref{Namespace: "prod", Name: name}
		ref.Kind.Kind = v1alpha1.KindNodeConfig
		_, found, err := f.About(ref)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, x := range found {
			lines = append(lines, x.What+": "+x.Text)
		}
		return strings.Join(lines, "\n")
	}
	if text := about("a"); text != "" {
		t.Errorf("the first: %s", text)
	}
	if text := about("b"); text != "Failed: file/same of NodeConfig/prod/a: no space\nShared: file/equal: NodeConfig/prod/a declares the same; hosts tell of it there" {
		t.Errorf("the second: %s", text)
	}
	f.Nodes[0].Status.Problems = nil
	if text := about("b"); text != "Shared: file/equal: kept, as NodeConfig/prod/a declares the same; hosts tell of it there" {
		t.Errorf("the second, when all is well: %s", text)
	}
	if text := about("c"); !strings.Contains(text, "Overridden: file/lower: NodeConfig/prod/a has the priority 500 and declares something else") || strings.Contains(text, "Failed") {
		t.Errorf("one of lower priority: %s", text)
	}
	if text := about("elsewhere"); text != "" {
		t.Errorf("one that is on no node with them: %s", text)
	}
}

// TestHeldConfig: a config says that it is held, once for all nodes on which somebody has held it at once.
func TestHeldConfig(t *testing.T) {
	hold := v1alpha1.NodeHold{Config: "NodeConfig/prod/web", Owner: "ann", Reason: "looking", Until: ago(-10 * 60 * 1e9)}
	with := func(h v1alpha1.NodeHold) func(*v1alpha1.Node) {
		return func(n *v1alpha1.Node) { n.Spec.Holds = []v1alpha1.NodeHold{h} }
	}
	f := Fleet{Configs: []Config{aConfig("web")}, Assignments: map[string]*v1alpha1.Assignment{}, Nodes: []v1alpha1.Node{
		aNode("a", with(hold)), aNode("b", with(hold)), aNode("c", with(v1alpha1.NodeHold{Owner: "bob", Reason: "all of it", Until: hold.Until})),
		aNode("d", with(v1alpha1.NodeHold{Config: "NodeConfig/prod/other", Owner: "eve", Reason: "r", Until: hold.Until})), aNode("e")}}
	for i := range f.Nodes {
		f.Assignments[f.Nodes[i].Name] = &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Layers: []v1alpha1.AssignedLayer{{Config: "NodeConfig/prod/web"}}}}
	}
	f.Configs[0].Spec.Resources = []declare.Resource{{Name: "motd", File: &declare.File{Path: "/etc/motd"}}}
	f.Node("d").Spec.Holds = append(f.Node("d").Spec.Holds, v1alpha1.NodeHold{Resource: "path:/etc/other", Owner: "eve", Reason: "r", Until: hold.Until})
	f.Node("e").Spec.Holds = []v1alpha1.NodeHold{{Resource: "path:/etc/motd", Owner: "eve", Reason: "mine", Until: hold.Until}}
	f.Configs[0].Status.Rollout = &v1alpha1.RolloutStatus{Phase: string(rollout.Rolling), Target: "web-1", Selected: 5, Done: 1, OnTheWay: 4}
	text := Explain("title", f.OfRollout(&f.Configs[0]), now, present.Style{})
	for _, want := range []string{"4 on the way", "on a, b: NodeConfig/prod/web is looked at and not changed, by ann until 2026-03-04T15:10:00Z", "on c: everything", "on e: path:/etc/motd"} {
		if !strings.Contains(text, want) {
			t.Errorf("rollout status does not say %q: %s", want, text)
		}
	}
	if strings.Contains(text, "other") {
		t.Errorf("what is held of other configs is said, too: %s", text)
	}
	found := f.heldOf(&f.Configs[0])
	if len(found) != 3 || found[2].Next != "tako resume node/e --resource path:/etc/motd" || !strings.HasPrefix(found[0].Text, "on a, b: NodeConfig/prod/web is looked at and not changed, by ann") || found[0].Next != "tako resume nodeconfig/web -n prod" ||
		!strings.HasPrefix(found[1].Text, "on c: everything is looked at and not changed, by bob") || found[1].Next != "tako resume node/c" {
		t.Errorf("%+v", found)
	}
}
