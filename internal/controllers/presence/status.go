package presence

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// rootPrefix stands before the digits of a root, as the API has it.
const rootPrefix = "sha256:"

// Decorate fills into a Node what is known of it now. What was not heard since this server began stays as it was stored. It
// replaces fields, and changes nothing that they point to.
func (r *Register) Decorate(n *v1alpha1.Node) {
	if head, ok := r.options.Assigned(n.UID); ok {
		n.Status.AssignedHead = &head
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.nodes[n.UID]
	if e == nil || !e.known || len(e.said.Conditions) == 0 {
		return
	}
	s := &n.Status
	s.Conditions = withConditions(s.Conditions, e)
	if !e.heard.IsZero() {
		heard := metav1.NewTime(e.heard)
		s.LastHeard, s.Through = &heard, e.life.Through()
	}
	if e.host != nil {
		s.Facts = e.host.Facts
		s.Capacity = capacityOf(e.host)
		s.Disks, s.Interfaces = disksOf(e.host.Disks), interfacesOf(e.host.Interfaces)
	}
	if e.report == nil {
		return
	}
	s.AppliedHead = headOf(e.report, e.enforced)
	s.Verdict = verdictOf(&e.report.Verdict)
	s.Problems = problemsOf(e.report.Problems)
	s.Statements = statementsOf(e.report.Statements)
	s.Held = int32(e.report.Counts.Held)
	if s.FromPeer = nil; e.report.FromPeer != "" {
		s.FromPeer = &v1alpha1.NodeNews{Node: e.report.FromPeer, At: metav1.Unix(e.report.FromPeerAt, 0)}
	}
	s.Offers = offersOf(e.report.Offers, e.host)
	s.Disbelieved, s.Server = disbelievedOf(e.report.Refused), e.report.Server
	s.Agent = &v1alpha1.NodeAgent{Session: e.report.Session.ID, Starts: int64(e.report.Session.Start)}
	if e.host != nil {
		s.Agent.Version = e.host.Version
	}
	s.Agent.Usage = usageOf(e.report.Usage)
	s.Promises = promisesOf(&e.report.Counts, e.said.Presence)
	s.Delivered = int64(min(e.report.Delivered, math.MaxInt64))
}

// withConditions puts the conditions of an entry in the place of those of their types.
func withConditions(all []metav1.Condition, e *entry) []metav1.Condition {
	merged := make([]metav1.Condition, 0, len(all)+len(e.said.Conditions))
	for _, c := range all {
		if !slices.ContainsFunc(e.said.Conditions, func(said node.Condition) bool { return said.Type == c.Type }) {
			merged = append(merged, c)
		}
	}
	for _, c := range e.said.Conditions {
		since := c.Since
		if since.IsZero() {
			since = e.created
		}
		merged = append(merged, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.NewTime(since),
		})
	}
	return merged
}

// headOf is the state that a host enforces. Where the highest that it has accepted is of the same version, its root counts: what is
// stored here is what a host is measured by later.
func headOf(r *wire.Report, since time.Time) *v1alpha1.AppliedHead {
	m := r.Enforced
	if m.Version == 0 {
		return nil
	}
	if m.Epoch == r.Have.Epoch && m.Version == r.Have.Version {
		m = r.Have
	}
	head := &v1alpha1.AppliedHead{Epoch: numberOf(m.Epoch), Version: numberOf(m.Version), Root: rootPrefix + m.Root.String()}
	if !since.IsZero() {
		at := metav1.NewTime(since)
		head.Since = &at
	}
	return head
}

// numberOf is a number as the API has it. What is beyond the highest is as much as can be said: only who has stolen the heads key signs
// such a version.
func numberOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func verdictOf(v *wire.Verdict) *v1alpha1.Verdict {
	if v.Version == 0 {
		return nil
	}
	return &v1alpha1.Verdict{
		Type: v1alpha1.VerdictType(v.Type.String()), Version: numberOf(v.Version), Root: rootPrefix + v.Root.String(), Code: codeText(v.Code),
		Message: v.Message, Since: metav1.NewTime(time.UnixMilli(v.Since)),
	}
}

func codeText(c reason.Code) string {
	if c == 0 {
		return ""
	}
	return c.String()
}

func problemsOf(all []wire.Resource) []v1alpha1.ResourceProblem {
	var problems []v1alpha1.ResourceProblem
	for i := range all {
		x := &all[i]
		p := v1alpha1.ResourceProblem{Resource: x.Title, Claim: x.Claim, Config: x.Config, Outcome: x.Outcome, Code: codeText(x.Code), Message: x.Message}
		if x.Since != 0 {
			p.Since = metav1.NewTime(time.UnixMilli(x.Since))
		}
		if x.RetryAt != 0 {
			at := metav1.NewTime(time.UnixMilli(x.RetryAt))
			p.RetryAt = &at
		}
		problems = append(problems, p)
	}
	return problems
}

// statementsOf are the statements of operators that a host has.
func statementsOf(all []wire.Statement) []v1alpha1.LayerStatement {
	var statements []v1alpha1.LayerStatement
	for i := range all {
		s := &all[i]
		statements = append(statements, v1alpha1.LayerStatement{Config: s.Layer, Number: int64(min(s.Number, math.MaxInt64)), Root: rootPrefix + s.Root.String(), Code: codeText(s.Code), Message: s.Message})
	}
	return statements
}

// promisesOf counts what was reported. Of a host that is not reached nobody knows how it stands by now.
func promisesOf(c *wire.Counts, p node.Presence) v1alpha1.PromiseCounts {
	if p == node.Silent || p == node.Gone {
		return v1alpha1.PromiseCounts{Unknown: int32(c.Kept + c.Repaired + c.Failed + c.Blocked + c.Deferred + c.Contended + c.NotApplicable + c.Unknown)}
	}
	return v1alpha1.PromiseCounts{
		Kept: int32(c.Kept), Repaired: int32(c.Repaired), Failed: int32(c.Failed), Blocked: int32(c.Blocked), Deferred: int32(c.Deferred),
		Contended: int32(c.Contended), NotApplicable: int32(c.NotApplicable), Unknown: int32(c.Unknown),
	}
}

// bytesOf is an amount. What is too much to be true is as much as can be said.
func bytesOf(n uint64) resource.Quantity {
	return *resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.BinarySI)
}

// usageOf is what an agent takes; nil where it does not tell. What is too much to be true is as much as can be said.
func usageOf(u *wire.Usage) *v1alpha1.AgentUsage {
	if u == nil {
		return nil
	}
	spent := func(milliseconds uint64) metav1.Duration {
		return metav1.Duration{Duration: time.Duration(min(milliseconds, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond}
	}
	return &v1alpha1.AgentUsage{CPU: spent(u.CPU), Memory: bytesOf(u.RSS), AnonymousMemory: bytesOf(u.Anonymous), CommandsCPU: spent(u.CommandsCPU),
		CommandsMemory: bytesOf(u.CommandsRSS)}
}

func capacityOf(h *wire.Host) map[v1alpha1.CapacityName]resource.Quantity {
	capacity := map[v1alpha1.CapacityName]resource.Quantity{}
	if h.CPUs > 0 {
		capacity[v1alpha1.CapacityCPU] = *resource.NewQuantity(int64(h.CPUs), resource.DecimalSI)
	}
	if h.Memory > 0 {
		capacity[v1alpha1.CapacityMemory] = bytesOf(h.Memory)
	}
	return capacity
}

func disksOf(all []wire.Disk) []v1alpha1.NodeDisk {
	var disks []v1alpha1.NodeDisk
	for _, d := range all {
		disks = append(disks, v1alpha1.NodeDisk{Name: d.Name, Size: bytesOf(d.Bytes), Model: d.Model, Rotational: d.Rotational})
	}
	return disks
}

func interfacesOf(all []wire.Interface) []v1alpha1.NodeInterface {
	var interfaces []v1alpha1.NodeInterface
	for _, n := range all {
		interfaces = append(interfaces, v1alpha1.NodeInterface{Name: n.Name, MAC: n.MAC, Addresses: n.Addresses})
	}
	return interfaces
}

// parseRoot reads a root as the API has it.
func parseRoot(text string) (catalog.Digest, error) {
	var d catalog.Digest
	b, err := hex.DecodeString(strings.TrimPrefix(text, rootPrefix))
	if err == nil && len(b) != len(d) {
		err = fmt.Errorf("a digest of %d bytes", len(b))
	}
	if err != nil {
		return catalog.Digest{}, err
	}
	return catalog.Digest(b), nil
}

// eventsOf are what people are told when conditions have changed.
func eventsOf(e *entry, was []node.Condition) []event {
	var all []event
	about := e.reference()
	for _, c := range e.said.Conditions {
		before := node.Condition{}
		if i := slices.IndexFunc(was, func(b node.Condition) bool { return b.Type == c.Type }); i >= 0 {
			before = was[i]
		}
		if kind, why := worthTelling(before, c); why != "" {
			all = append(all, event{about, kind, why, cmp.Or(c.Message, c.Reason)})
		}
	}
	return all
}

// reference names the Node.
func (e *entry) reference() core.ObjectReference {
	return core.ObjectReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNode, Name: e.name, UID: e.uid}
}

// worthTelling says whether a change of a condition is told, and as what.
func worthTelling(was, is node.Condition) (kind, why string) {
	changed := was.Status != is.Status || was.Reason != is.Reason
	switch {
	case !changed:
		return "", ""
	case is.Reason == node.ReasonStoreBehind:
		return "", "" // told where it was found out
	case is.Type != node.Ready && is.Status == node.True:
		return core.EventTypeWarning, is.Type
	case is.Type != node.Ready && is.Status == node.False && was.Status == node.True:
		return core.EventTypeNormal, is.Reason
	case is.Type != node.Ready:
		return "", ""
	case is.Reason == node.ReasonAnswering && (was.Reason == "" || was.Reason == node.ReasonNeverHeard):
		return core.EventTypeNormal, "FirstHeard"
	case is.Reason == node.ReasonAnswering:
		return core.EventTypeNormal, "Back"
	case is.Reason == node.ReasonAgentSilent || is.Reason == node.ReasonHostGone:
		return core.EventTypeWarning, is.Reason
	}
	return "", ""
}
