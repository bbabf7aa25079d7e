package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/present"
)

func nodes() *Kind {
	k := of[v1alpha1.Node, v1alpha1.NodeList](v1alpha1.SchemeGroupVersion, v1alpha1.KindNode,
		Names{Plural: v1alpha1.ResourceNodes, Short: []string{"no"}, Categories: []string{category}})
	// Who could write the sealing key of a host could have its secrets sealed to a key of his own.
	k.HasStatus, k.SealedStatus = true, true
	k.Prepare = func(_ context.Context, obj, _ runtime.Object) {
		n := obj.(*v1alpha1.Node)
		dismissRejected(n)
		n.Status.Taints = taintedSince(n, metav1.Now())
	}
	k.Columns = nodeColumns(func(o runtime.Object) *v1alpha1.Node { return o.(*v1alpha1.Node) })
	k.Validate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		before, _ := old.(*v1alpha1.Node)
		return fieldErrors(v1alpha1.ValidateNode(obj.(*v1alpha1.Node), before, time.Now()))
	}
	k.Fields = func(o runtime.Object) fields.Set {
		return fields.Set{"spec.environment": o.(*v1alpha1.Node).Spec.Environment}
	}
	return k
}

// dismissRejected ends a request to join that a person does not want to see any more, with the very write that says so.
func dismissRejected(n *v1alpha1.Node) {
	if r := n.Status.JoinRequest; r != nil && r.Key == n.Spec.RejectedKey {
		n.Status.JoinRequest = nil
	}
}

// taintedSince is since when a node has the taints that instances leave. It is stored with the taint: a controller that noted it would begin anew with each
// change of leaders, and what tolerates a taint for an hour would stay for ever.
func taintedSince(n *v1alpha1.Node, now metav1.Time) []v1alpha1.NodeTaint {
	var all []v1alpha1.NodeTaint
	for _, t := range n.Spec.Taints {
		if t.Effect != declare.TaintNoExecute {
			continue
		}
		is := v1alpha1.NodeTaint{Key: t.Key, Value: t.Value, Since: now}
		for _, was := range n.Status.Taints {
			if was.Key == t.Key && was.Value == t.Value {
				is.Since = was.Since
			}
		}
		all = append(all, is)
	}
	return all
}

func nodeColumns(node func(runtime.Object) *v1alpha1.Node) []Column {
	return []Column{
		{Name: "Environment", Type: "string", Description: "namespace whose configs are for the node", Value: func(o runtime.Object) any { return node(o).Spec.Environment }},
		{Name: "Ready", Type: "string", Description: "whether the host is there and answers", Value: func(o runtime.Object) any {
			return conditionStatus(node(o).Status.Conditions, v1alpha1.ConditionReady)
		}},
		{Name: "Head", Type: "string", Description: "version of the signed state that the host enforces, and for how long there has been another one for it", Value: func(o runtime.Object) any {
			return headText(&node(o).Status)
		}},
		{Name: "Kept", Type: "integer", Description: "resources that are as declared", Value: func(o runtime.Object) any { return node(o).Status.Promises.Kept }},
		{Name: "Repaired", Type: "integer", Description: "resources that were made so", Value: func(o runtime.Object) any { return node(o).Status.Promises.Repaired }},
		{Name: "Failed", Type: "integer", Description: "resources that are not", Value: func(o runtime.Object) any { return node(o).Status.Promises.Failed }},
		{Name: "Heard", Type: "string", Description: "time since the host was heard", Value: func(o runtime.Object) any {
			if t := node(o).Status.LastHeard; t != nil {
				return since(*t)
			}
			return "never"
		}},
		{Name: "Held", Type: "integer", Wide: true, Description: "resources that are looked at and not changed", Value: func(o runtime.Object) any { return node(o).Status.Held }},
		{Name: "Verdict", Type: "string", Wide: true, Description: "what the host has made of the newest state that it was given", Value: func(o runtime.Object) any {
			if v := node(o).Status.Verdict; v != nil {
				return string(v.Type)
			}
			return ""
		}},
		{Name: "Agent", Type: "string", Wide: true, Description: "version of tako-agent", Value: func(o runtime.Object) any {
			if a := node(o).Status.Agent; a != nil {
				return a.Version
			}
			return ""
		}},
		{Name: "OS", Type: "string", Wide: true, Description: "operating system and its release, as the host tells", Value: func(o runtime.Object) any {
			return factsText(node(o), "os.id", "os.version")
		}},
		{Name: "Kernel", Type: "string", Wide: true, Description: "release of the kernel that runs", Value: func(o runtime.Object) any {
			return factsText(node(o), "kernel.release")
		}},
		{Name: "CPU", Type: "string", Wide: true, Description: "processors", Value: func(o runtime.Object) any {
			if n, told := node(o).Status.Capacity[v1alpha1.CapacityCPU]; told {
				return n.String()
			}
			return ""
		}},
		{Name: "Memory", Type: "string", Wide: true, Description: "memory of the host", Value: func(o runtime.Object) any {
			if n, told := node(o).Status.Capacity[v1alpha1.CapacityMemory]; told {
				return present.Bytes(n.Value())
			}
			return ""
		}},
		{Name: "Virtualization", Type: "string", Wide: true, Description: "kind of virtual machine or container, none on bare metal", Value: func(o runtime.Object) any {
			return factsText(node(o), "virtualization")
		}},
		{Name: "Address", Type: "string", Wide: true, Description: "address of the interface with the default route", Value: func(o runtime.Object) any {
			return factsText(node(o), "network.primary.address")
		}},
		{Name: "Takes", Type: "string", Wide: true, Description: "memory and processor time of tako-agent since it started, and with + those of what it ran", Value: func(o runtime.Object) any {
			if a := node(o).Status.Agent; a != nil && a.Usage != nil {
				return usageText(a.Usage)
			}
			return ""
		}},
		{Name: "Through", Type: "string", Wide: true, Description: "relay that the host is connected through; empty: to a server", Value: func(o runtime.Object) any {
			return node(o).Status.Through
		}},
	}
}

// factWidth is how much of a fact a column shows: more than honest hosts have to say.
const factWidth = 40

// factsText is what a host tells, for a column. Others can be asked for it in full.
func factsText(n *v1alpha1.Node, names ...string) string {
	var texts []string
	for _, name := range names {
		if text := n.Status.Facts[name]; text != "" {
			texts = append(texts, text)
		}
	}
	text := []rune(strings.Join(texts, " "))
	if len(text) > factWidth {
		text = append(text[:factWidth-1], '…')
	}
	return string(text)
}

// usageText is what an agent takes, for a column.
func usageText(u *v1alpha1.AgentUsage) string {
	text := fmt.Sprintf("%s, %s", present.Bytes(u.Memory.Value()), u.CPU.Round(10*time.Millisecond))
	if u.CommandsCPU.Duration > 0 {
		text += fmt.Sprintf(" + %s", u.CommandsCPU.Round(10*time.Millisecond))
	}
	return text
}

// headText is the state that a host enforces, and how far it is behind.
func headText(s *v1alpha1.NodeStatus) string {
	applied, assigned := s.AppliedHead, s.AssignedHead
	text := "none"
	if applied != nil {
		text = fmt.Sprint(applied.Version)
	}
	switch {
	case applied == nil && (assigned == nil || s.Identity == nil):
		return "" // there is no host that could be behind
	case assigned == nil || applied != nil && applied.Epoch == assigned.Epoch && applied.Version == assigned.Version:
		return text
	}
	return text + ", behind" + lagText(assigned, s.Verdict)
}

// lagText is how long ago the newest state came to be: since it was assigned or, where nobody has noted that, since the host has told
// of it.
func lagText(assigned *v1alpha1.AppliedHead, v *v1alpha1.Verdict) string {
	var from metav1.Time
	switch {
	case assigned.Since != nil:
		from = *assigned.Since
	case v != nil && v.Version == assigned.Version:
		from = v.Since
	}
	if from.IsZero() {
		return ""
	}
	return " " + since(from)
}
