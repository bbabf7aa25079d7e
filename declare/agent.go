package declare

import (
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/internal/reason"
)

// architectures are the machines that there are programs of the agent for, named as facts.arch names them.
var architectures = []string{"amd64", "arm64"}

// Agent is the program of tako-agent that keeps the host itself. Another one takes its place only after it has planned the same as the one
// before, and stays only if it keeps the host within a minute.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type Agent struct {
	// Programs are the program's files, one for each architecture of the hosts that this is for.
	// +listType=map
	// +listMapKey=arch
	Programs []AgentProgram `json:"programs"`
}

// AgentProgram is the program for one architecture. Exactly one of Object and Path is set.
//
// +k8s:deepcopy-gen=true
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=dev.tako.declare
type AgentProgram struct {
	// Arch is what facts.arch is: amd64 or arm64.
	Arch string `json:"arch"`
	// Object is what was put on the servers by `tako content put`.
	Object *ObjectReference `json:"object,omitempty"`
	// Path is a file of the host. Nobody but root and the agent's user may be able to change it.
	Path string `json:"path,omitempty"`
}

func (a *Agent) claim(string) Claim { return Claim{ClaimAgent, "agent"} }

func (a *Agent) claimField() string { return "agent" }

func (a *Agent) texts() []expandableText { return nil }

func (a *Agent) autoEdges(Claim) []AutoEdge {
	var edges []AutoEdge
	for i := range a.Programs {
		edges = append(edges, sourceEdges(a.Programs[i].Path)...)
	}
	return edges
}

func (a *Agent) permanent() (message, hint string) {
	return "the agent cannot delete itself", "leave onRemove out: the program stays as it is"
}

// Program returns the program for an architecture; nil where there is none.
func (a *Agent) Program(arch string) *AgentProgram {
	for i := range a.Programs {
		if a.Programs[i].Arch == arch {
			return &a.Programs[i]
		}
	}
	return nil
}

func (a *Agent) validate(v *validator) {
	if len(a.Programs) == 0 {
		v.fault(v.path("agent.programs"), reason.MissingField, v.path("agent")+` has no "programs"`, "write for example - {arch: amd64, path: /srv/tako-agent}")
	}
	if !v.atMost(v.path("agent.programs"), len(a.Programs), len(architectures), "programs", "there is one for each architecture") {
		return
	}
	for i := range a.Programs {
		at, p := indexPath("agent.programs", i), &a.Programs[i]
		switch {
		case p.Arch == "":
			v.fault(v.path(at+".arch"), reason.MissingField, v.path(at)+` has no "arch"`, "write "+strings.Join(architectures, " or "))
		case !slices.Contains(architectures, p.Arch):
			v.invalid(v.path(at+".arch"), fmt.Sprintf("%q is not an architecture that there is an agent for", clipText(p.Arch)), "write "+strings.Join(architectures, " or "))
		case a.Program(p.Arch) != p:
			v.invalid(v.path(at+".arch"), p.Arch+" is there twice", "keep one of them")
		}
		v.bytesSource(at, p.Object, p.Path)
		switch {
		case p.Object == nil && p.Path == "":
			v.fault(v.path(at), reason.MissingField, v.path(at)+` has neither "object" nor "path"`, "tako content put FILE prints what to write")
		case p.Object != nil && p.Path != "":
			v.fault(v.path(at+".path"), reason.FieldNotAllowed, "the program is an object already", "keep one of object and path")
		}
	}
}
