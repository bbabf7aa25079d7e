package declare

import (
	"slices"
	"strings"
	"testing"
)

func TestAgentMistakes(t *testing.T) {
	object := &ObjectReference{Digest: someDigest, SizeBytes: 4}
	good := AgentProgram{Arch: "amd64", Object: object}
	for _, c := range []struct {
		programs []AgentProgram
		want     string
	}{
		{[]AgentProgram{good}, ""},
		{[]AgentProgram{good, {Arch: "arm64", Path: "/srv/tako-agent"}}, ""},
		{nil, "TK0413 agent.programs"},
		{[]AgentProgram{good, good}, "TK0414 agent.programs[1].arch"},
		{[]AgentProgram{good, {Arch: "arm64", Object: object}, {Arch: "s390x", Object: object}}, "TK0414 agent.programs"},
		{[]AgentProgram{{Object: object}}, "TK0413 agent.programs[0].arch"},
		{[]AgentProgram{{Arch: "x86_64", Object: object}}, "TK0414 agent.programs[0].arch"},
		{[]AgentProgram{{Arch: "amd64"}}, "TK0413 agent.programs[0]"},
		{[]AgentProgram{{Arch: "amd64", Object: object, Path: "/srv/a"}}, "TK0415 agent.programs[0].path"},
		{[]AgentProgram{{Arch: "amd64", Path: "a"}}, "TK0414 agent.programs[0].path"},
		{[]AgentProgram{{Arch: "amd64", Object: &ObjectReference{Digest: "x"}}}, "TK0414 agent.programs[0].object.digest"},
	} {
		got := strings.ReplaceAll(mistakes(Resource{Name: "a", Agent: &Agent{Programs: c.programs}}), "spec.resources[0].", "")
		if got != c.want {
			t.Errorf("%+v: %s, want %s", c.programs, got, c.want)
		}
	}
}

func TestAgent(t *testing.T) {
	object := &ObjectReference{Digest: someDigest, SizeBytes: 4}
	a := &Agent{Programs: []AgentProgram{{Arch: "amd64", Object: object}, {Arch: "arm64", Path: "/srv/tako-agent"}}}
	r := Resource{Name: "program", Agent: a}
	if r.Claim() != (Claim{ClaimAgent, "agent"}) || r.Title() != "agent/program" {
		t.Errorf("it is %s, and claims %s", r.Title(), r.Claim())
	}
	if !slices.Equal(r.Objects(), []*ObjectReference{object}) {
		t.Errorf("it is made of %v", r.Objects())
	}
	if a.Program("amd64") != &a.Programs[0] || a.Program("riscv64") != nil {
		t.Error("another program is found")
	}
	if !slices.ContainsFunc(r.AutoEdges(), func(e AutoEdge) bool { return e.Other == Claim{ClaimPath, "/srv/tako-agent"} }) {
		t.Errorf("edges %v", r.AutoEdges())
	}
	r.OnRemove = OnRemoveDelete
	if got := mistakes(r); !strings.Contains(got, "onRemove") {
		t.Errorf("it may be deleted: %q", got)
	}
}
