package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/fleet/node"
	"tako.dev/tako/internal/fleet/rollout"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// attentionMax is how many findings the page shows: it is one page.
const attentionMax = 12

// Status is the fleet on one page, for programs too.
type Status struct {
	// Store says that the server's store is not the one that hosts know; empty: nothing says so.
	Store     string       `json:"store,omitempty"`
	Nodes     NodeCounts   `json:"nodes"`
	Configs   ConfigCounts `json:"configs"`
	Resources Resources    `json:"resources"`
	// Workloads is left out where there are none.
	Workloads *WorkloadCounts `json:"workloads,omitempty"`
	// Attention is what somebody should know, the worst first.
	Attention []Finding `json:"attention,omitempty"`
	// Unseen are kinds that the reader may not see.
	Unseen []string `json:"unseen,omitempty"`
}

// NodeCounts counts nodes, each once behind All.
type NodeCounts struct {
	All       int `json:"all"`
	Converged int `json:"converged"` // all is as declared
	OnTheWay  int `json:"onTheWay"`  // behind, or not settled yet
	Broken    int `json:"broken"`    // something is not as declared
	Unknown   int `json:"unknown"`   // not reached, or never heard
}

// WorkloadCounts counts workloads, each once behind All.
type WorkloadCounts struct {
	All      int `json:"all"`
	Ready    int `json:"ready"`    // as declared: nothing wanted, a schedule and a job that has ended well among them
	OnTheWay int `json:"onTheWay"` // or not looked at yet
	Stalled  int `json:"stalled"`  // nothing goes on until somebody does something
}

// ConfigCounts counts configs, each once behind All.
type ConfigCounts struct {
	All      int `json:"all"`
	Complete int `json:"complete"`
	Rolling  int `json:"rolling"` // or waiting, or paused
	Halted   int `json:"halted"`
	Empty    int `json:"empty"`
}

// Resources counts the resources of all nodes.
type Resources struct {
	Kept     int64 `json:"kept"`
	Repaired int64 `json:"repaired"`
	Failed   int64 `json:"failed"`
	Unknown  int64 `json:"unknown"` // of hosts that are not reached, or not looked at yet
	Other    int64 `json:"other"`
	Held     int64 `json:"held"`
}

// Healthy says that nothing needs attention.
func (s *Status) Healthy() bool {
	for i := range s.Attention {
		if s.Attention[i].Weight >= Unclear {
			return false
		}
	}
	return true
}

// Status sums the fleet up. ofWorkload is what is to be said of a workload.
func (f *Fleet) Status(ofWorkload func(*v1alpha1.Workload) []Finding) *Status {
	s := &Status{Unseen: f.Unseen}
	s.Nodes.All, s.Configs.All = len(f.Nodes), len(f.Configs)
	told := map[string]bool{} // a conflict is found from both sides
	add := func(list []Finding) {
		for _, x := range list {
			key := x.Subject + x.What + x.Text
			if !told[key] && (x.Weight > Note || x.What == "Held" || x.What == v1alpha1.ConditionSuspended) {
				told[key] = true
				s.Attention = append(s.Attention, x)
			}
		}
	}
	if len(f.Workloads) > 0 {
		s.Workloads = &WorkloadCounts{All: len(f.Workloads)}
	}
	for i := range f.Workloads {
		s.Workloads.count(&f.Workloads[i])
		add(ofWorkload(&f.Workloads[i]))
	}
	for i := range f.Configs {
		list := f.OfConfig(&f.Configs[i])
		s.Configs.count(f.Configs[i].Status.Rollout)
		add(list)
	}
	for i := range f.Sources {
		add(f.OfSource(&f.Sources[i]))
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		list := f.OfNode(n)
		s.Nodes.count(n, list)
		s.Resources.add(n)
		add(list)
	}
	s.Store = f.storeBehind()
	for i := range f.Exposed {
		add(f.OfSecret(&f.Exposed[i]))
	}
	sorted(s.Attention)
	return s
}

func (c *WorkloadCounts) count(w *v1alpha1.Workload) {
	is := func(kind string) bool {
		c := meta.FindStatusCondition(w.Status.Conditions, kind)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= w.Generation
	}
	switch {
	case is(v1alpha1.ConditionReady):
		c.Ready++
	case is(v1alpha1.ConditionStalled):
		c.Stalled++
	default:
		c.OnTheWay++
	}
}

func (c *ConfigCounts) count(r *v1alpha1.RolloutStatus) {
	phase := rollout.Waiting
	if r != nil {
		phase = rollout.Phase(r.Phase)
	}
	switch phase {
	case rollout.Complete:
		c.Complete++
	case rollout.Halted, rollout.RolledBack:
		c.Halted++
	case rollout.Empty:
		c.Empty++
	default:
		c.Rolling++
	}
}

func (c *NodeCounts) count(n *v1alpha1.Node, list []Finding) {
	ready := meta.FindStatusCondition(n.Status.Conditions, node.Ready)
	heaviest := Note
	for i := range list {
		if list[i].Subject == "node/"+n.Name && list[i].What != joinRefused {
			heaviest = max(heaviest, list[i].Weight)
		}
	}
	switch {
	case n.Status.Identity == nil || ready == nil || ready.Status == metav1.ConditionUnknown:
		c.Unknown++
	case heaviest == Broken || ready.Status != metav1.ConditionTrue:
		c.Broken++
	case heaviest == Note && (n.Status.AssignedHead == nil || n.Status.Verdict != nil && n.Status.Verdict.Type == v1alpha1.VerdictApplied):
		c.Converged++
	default:
		c.OnTheWay++
	}
}

func (r *Resources) add(n *v1alpha1.Node) {
	p := &n.Status.Promises
	r.Kept += int64(p.Kept)
	r.Repaired += int64(p.Repaired)
	r.Failed += int64(p.Failed)
	r.Other += int64(p.Blocked) + int64(p.Deferred) + int64(p.Contended) + int64(p.NotApplicable)
	r.Unknown += int64(p.Unknown)
	r.Held += int64(n.Status.Held)
}

// Text is the page for a person.
func (s *Status) Text(now time.Time, style present.Style) string {
	var b strings.Builder
	if s.Store != "" {
		fmt.Fprintf(&b, "%s\n  next: %s\n", present.Escape(s.Store), bumpEpoch)
	}
	for _, line := range s.counts(style) {
		if line != "" {
			b.WriteString(line + "\n")
		}
	}
	for _, kind := range s.Unseen {
		fmt.Fprintf(&b, "! you may not see %s\n", kind)
	}
	if len(s.Attention) == 0 {
		if len(s.Unseen) > 0 {
			b.WriteString("nothing that you may see needs attention\n")
			return b.String()
		}
		b.WriteString("nothing needs attention\n")
		return b.String()
	}
	b.WriteString("\n")
	for i := range s.Attention {
		if i == attentionMax {
			fmt.Fprintf(&b, "… and %d more: tako status -o json\n", len(s.Attention)-i)
			break
		}
		b.WriteString(s.Attention[i].line(now, style))
	}
	if next := s.Attention[0].Subject; next != "" {
		fmt.Fprintf(&b, "next: tako why %s\n", present.Escape(next))
	}
	return b.String()
}

// counts are the lines of the page that count: always as many, and one of what there is none of is empty.
func (s *Status) counts(style present.Style) []string {
	line := func(name string, parts ...string) string {
		shown := slices.DeleteFunc(parts, func(part string) bool { return part == "" })
		return fmt.Sprintf("%-11s%s", name, strings.Join(shown, " · "))
	}
	n, c, r := &s.Nodes, &s.Configs, &s.Resources
	lines := []string{
		line("Nodes", fmt.Sprint(n.All), some(n.Converged, "as declared"), some(n.OnTheWay, "on the way"), some(n.Broken, "not as declared"), some(n.Unknown, "unknown")),
		line("Configs", fmt.Sprint(c.All), some(c.Complete, "complete"), some(c.Rolling, "rolling out"), some(c.Halted, "halted"), some(c.Empty, "without nodes")),
		line("Resources", outcome(reason.Kept, r.Kept, style), outcome(reason.Repaired, r.Repaired, style), outcome(reason.Failed, r.Failed, style),
			some(int(r.Unknown), "unknown"), some(int(r.Other), "other"), some(int(r.Held), "held")),
		"",
	}
	if w := s.Workloads; w != nil {
		lines[3] = line("Workloads", fmt.Sprint(w.All), some(w.Ready, "ready"), some(w.OnTheWay, "on the way"), some(w.Stalled, "stalled"))
	}
	return lines
}

func some(n int, words string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, words)
}

func outcome(o reason.Outcome, n int64, style present.Style) string {
	if n == 0 && o != reason.Kept {
		return ""
	}
	return fmt.Sprintf("%s %d", present.Outcome(o, "").Render(style), n)
}

// mark is the sign and the words of a finding.
func (x *Finding) mark() string { return weightMarks[x.Weight].Glyph() + " " + x.What }

// line is a finding on one line.
func (x *Finding) line(now time.Time, _ present.Style) string {
	text := fmt.Sprintf("%-14s %s: %s", x.mark(), present.Escape(x.Subject), present.Escape(firstLine(x.Text)))
	if !x.Since.IsZero() {
		text += " (" + present.Ago(x.Since.Time, now) + ")"
	}
	return text + "\n"
}

func firstLine(s string) string {
	line, more, cut := strings.Cut(s, "\n")
	if cut && strings.TrimSpace(more) != "" {
		line += " …"
	}
	return line
}

// Explain is why something is as it is, for a person: findings with all that is known about them.
func Explain(title string, list []Finding, now time.Time, style present.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "● %s\n", present.Escape(title))
	if !slices.ContainsFunc(list, func(x Finding) bool { return x.What != transferred }) {
		b.WriteString("  everything is as declared\n")
	}
	for i := range list {
		x := &list[i]
		b.WriteString("  " + x.line(now, style))
		for _, line := range strings.Split(x.Evidence, "\n") {
			if line != "" {
				fmt.Fprintf(&b, "    | %s\n", present.Escape(line))
			}
		}
		if x.Code != "" {
			fmt.Fprintf(&b, "    tako help %s\n", x.Code)
		}
		if x.Next != "" {
			fmt.Fprintf(&b, "    next: %s\n", present.Escape(x.Next))
		}
	}
	return b.String()
}
