package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Reason is why a node does not take an instance. Their order is that in which people are told.
type Reason uint8

// The reasons. Check finds those of a node by itself; Refused, DataWhere and the last three are of a node among others, and the scheduler finds
// them.
const (
	Unhealthy Reason = iota
	Cordoned
	WrongLabels
	WrongArchitecture
	NoRuntime
	Tainted
	NoDirectory
	Refused   // it has refused such an instance lately, or too many of any kind
	DataWhere // the data of the instance is on another node
	PortTaken
	NoDevice
	NoCPU
	NoMemory
	NoDisk
	NoPlace     // it has as many instances as a node may have
	NotNear     // no instance that it must be near to is near
	TooNear     // an instance that it must be away from is near
	Uneven      // the spread over a label would be too uneven
	reasonCount // how many there are
)

// Reasons is how many reasons there are.
const Reasons = int(reasonCount)

var reasonNames = [...]string{"unhealthy", "cordoned", "labels", "architecture", "runtime", "taint", "directory", "refused", "data",
	"port", "device", "cpu", "memory", "disk", "instances", "affinity", "antiAffinity", "spread"}

// String is the reason's name as it stands in statuses.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Node is what one node is and has.
type Node struct {
	Name          string
	Labels        map[string]string
	Architecture  string
	Taints        []Taint
	Unschedulable bool
	Unhealthy     string // why nothing is placed there, for people; empty: it is healthy
	Capacity      Amounts
	Devices       map[string][]string // names of the pieces by kind
	Directories   []string            // that instances may mount
	Runtimes      []workload.Runtime  // that run something there now
}

// Left is what nobody holds of a node.
type Left struct {
	Amounts Amounts
	Devices map[string]int64
	Ports   map[Port]string // those that are taken, and who has them
}

// Refusal is one reason why a node does not take an instance, with its numbers.
type Refusal struct {
	Reason     Reason
	What       string // a label, taint, device, port, directory or topology key; for Unhealthy, Refused and DataWhere the words themselves
	Need, Have int64  // for what is counted; of Uneven without the label nothing
	Holder     string // who has the port
}

// String says it in words.
func (r Refusal) String() string {
	switch r.Reason {
	case Unhealthy, Refused, DataWhere:
		return r.What
	case Cordoned:
		return "is cordoned"
	case WrongLabels:
		return "has not " + r.What
	case WrongArchitecture:
		return "is " + r.What
	case NoRuntime:
		return "has no runtime " + r.What
	case Tainted:
		return "has taint " + r.What
	case NoDirectory:
		return "has no directory " + r.What
	case NoDevice:
		return fmt.Sprintf("needs %d %s, %d are free", r.Need, r.What, r.Have)
	case PortTaken:
		return fmt.Sprintf("port %s is taken by %s", r.What, r.Holder)
	case NoCPU:
		return fmt.Sprintf("needs %s cpu, %s is free", cpuText(r.Need), cpuText(r.Have))
	case NoMemory:
		return fmt.Sprintf("needs %s memory, %s is free", bytesText(r.Need, true), bytesText(r.Have, false))
	case NoDisk:
		return fmt.Sprintf("needs %s disk, %s is free", bytesText(r.Need, true), bytesText(r.Have, false))
	case NoPlace:
		return fmt.Sprintf("has as many instances as a node may have, %d", InstancesMax)
	case NotNear:
		return "has none of " + r.What + " near"
	case TooNear:
		return "has one of " + r.What + " near"
	case Uneven:
		if r.Need == 0 {
			return "has no label " + r.What
		}
		return fmt.Sprintf("would have %d more than the emptiest %s, at most %d", r.Have, r.What, r.Need)
	}
	return r.Reason.String() + " " + r.What
}

// runtimeCures say what a runtime needs.
var runtimeCures = map[workload.Runtime]string{
	workload.Systemd: "run its agent as root under systemd", workload.OCI: "install runc, and run its agent as root",
	WithNetwork(workload.OCI): "install runc and containernetworking-plugins, and run its agent as root",
}

// Cure is what would make it fit, in the imperative; what is missing of an amount begins with a plus.
func (r Refusal) Cure() string {
	switch r.Reason {
	case Unhealthy:
		return "make it healthy"
	case Cordoned:
		return "uncordon it"
	case WrongLabels:
		return "label it " + r.What
	case WrongArchitecture:
		return "add architecture " + r.What
	case NoRuntime:
		return cmp.Or(runtimeCures[workload.Runtime(r.What)], "bring its agent up to date")
	case Tainted:
		return "tolerate " + r.What
	case NoDirectory:
		return "make directory " + r.What
	case NoDevice:
		return fmt.Sprintf("+%d %s", r.Need-r.Have, r.What)
	case PortTaken:
		return "free port " + r.What
	case NoCPU:
		return "+" + cpuText(r.Need-r.Have) + " cpu"
	case NoMemory:
		return "+" + bytesText(r.Need-r.Have, true) + " memory"
	case NoDisk:
		return "+" + bytesText(r.Need-r.Have, true) + " disk"
	case NoPlace:
		return "move an instance away"
	case Refused:
		return "wait, or see why it refuses"
	case DataWhere:
		return "make room where the data is, or let it stick by Prefer"
	case NotNear:
		return "bring one of " + r.What + " near"
	case TooNear:
		return "take " + r.What + " away from it"
	case Uneven:
		if r.Need == 0 {
			return "label it with a " + r.What
		}
		return "make room in the emptiest " + r.What + ", or raise maxSkew"
	}
	return ""
}

// Check returns all that keeps an instance off a node, in the order of Reason; nothing where it fits.
func Check(n *Node, left *Left, r *Request) []Refusal {
	var found []Refusal
	add := func(why Reason, what string, need, have int64) {
		found = append(found, Refusal{Reason: why, What: what, Need: need, Have: have})
	}
	if n.Unhealthy != "" {
		add(Unhealthy, n.Unhealthy, 0, 0)
	}
	if n.Unschedulable {
		add(Cordoned, "", 0, 0)
	}
	for _, one := range Requirements(r.Selector) {
		if !one.Matches(n.Labels) {
			add(WrongLabels, SelectorText(one), 0, 0)
		}
	}
	if len(r.Architectures) > 0 && !slices.Contains(r.Architectures, n.Architecture) {
		add(WrongArchitecture, n.Architecture, 0, 0)
	}
	if r.Runtime != "" && !slices.Contains(n.Runtimes, r.Runtime) {
		add(NoRuntime, string(r.Runtime), 0, 0)
	}
	for _, t := range n.Taints {
		if t.Effect != declare.TaintPreferNoSchedule && !Tolerated(t.Taint, r.Tolerations) {
			add(Tainted, t.String(), 0, 0)
		}
	}
	for _, d := range r.Directories {
		if !slices.Contains(n.Directories, d) {
			add(NoDirectory, d, 0, 0)
		}
	}
	return append(found, Held(left, r)...)
}

// Held returns what keeps an instance off a node because others have it: the part of Check that changes with what is there.
func Held(left *Left, r *Request) []Refusal {
	var found []Refusal
	for _, p := range r.Ports {
		if holder, taken := left.Ports[p]; taken {
			found = append(found, Refusal{Reason: PortTaken, What: p.String(), Holder: holder})
		}
	}
	for _, d := range r.Devices {
		if have := left.Devices[d.Name]; have < d.Count {
			found = append(found, Refusal{Reason: NoDevice, What: d.Name, Need: d.Count, Have: have})
		}
	}
	for _, a := range []struct {
		why        Reason
		need, have int64
	}{{NoCPU, r.Amounts.CPU, left.Amounts.CPU}, {NoMemory, r.Amounts.Memory, left.Amounts.Memory}, {NoDisk, r.Amounts.Disk, left.Amounts.Disk}, {NoPlace, r.Amounts.Instances, left.Amounts.Instances}} {
		if a.need > 0 && a.need > a.have {
			found = append(found, Refusal{Reason: a.why, Need: a.need, Have: a.have})
		}
	}
	return found
}

// Requirements takes a selector apart into selectors of one condition each, labels in order of their keys first.
func Requirements(s declare.Selector) []declare.Selector {
	keys := make([]string, 0, len(s.MatchLabels))
	for k := range s.MatchLabels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	list := make([]declare.Selector, 0, len(keys)+len(s.MatchExpressions))
	for _, k := range keys {
		list = append(list, declare.Selector{MatchLabels: map[string]string{k: s.MatchLabels[k]}})
	}
	for _, e := range s.MatchExpressions {
		list = append(list, declare.Selector{MatchExpressions: []declare.SelectorRequirement{e}})
	}
	return list
}

// SelectorText is a selector in words, the same for selectors that say the same in the same order: disk=ssd, zone in (a, b).
func SelectorText(s declare.Selector) string {
	var parts []string
	for k, v := range s.MatchLabels {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case declare.OpIn:
			parts = append(parts, e.Key+" in ("+strings.Join(e.Values, ", ")+")")
		case declare.OpNotIn:
			parts = append(parts, e.Key+" not in ("+strings.Join(e.Values, ", ")+")")
		case declare.OpExists:
			parts = append(parts, e.Key)
		case declare.OpDoesNotExist:
			parts = append(parts, "no "+e.Key)
		}
	}
	return strings.Join(parts, ", ")
}

// Refuse is the error of an agent that does not take an instance; nil where nothing speaks against it.
func Refuse(instance string, why []Refusal) error {
	if len(why) == 0 {
		return nil
	}
	words := make([]string, len(why))
	for i, r := range why {
		words[i] = r.String()
	}
	return &reason.Error{Code: reason.InstanceRefused, Doing: "take instance " + instance, Cause: fmt.Errorf("%s", strings.Join(words, "; ")),
		Hint: "it is placed on another node; where a node refuses again and again, compare what it has with what is declared of it"}
}

// Misplaced reports whether the labels of a node speak against an instance that is there.
func Misplaced(n *Node, r *Request) bool { return !r.Selector.Matches(n.Labels) }
