package placement

import (
	"fmt"
	"strings"

	"tako.dev/tako/api/v1alpha1"
)

// shownMax is how many nodes, values of a label and reasons are written in a line: -o json has the others.
const shownMax = 20

// text is an outcome for people: a line for each object, and below those that are workloads where their instances would go.
func (o *Outcome) text() string {
	var b strings.Builder
	for _, c := range o.Changes {
		fmt.Fprintf(&b, "%s %s\n", c.Object, c.Action)
		if c.workload {
			if p := o.planOf(c.Namespace, c.name); p != nil {
				writePlan(&b, p)
			}
		}
	}
	for i := range o.Plans {
		s := &o.Plans[i].Status
		for j := range s.Displaced {
			writeDisplaced(&b, &s.Displaced[j])
		}
		if s.MoreDisplaced > 0 {
			fmt.Fprintf(&b, "%d more workloads would make room\n", s.MoreDisplaced)
		}
		if s.Message != "" {
			fmt.Fprintf(&b, "namespace %s: %s\n", o.Plans[i].Namespace, s.Message)
		}
	}
	return b.String()
}

func (o *Outcome) planOf(namespace, name string) *v1alpha1.WorkloadPlan {
	for i := range o.Plans {
		if o.Plans[i].Namespace != namespace {
			continue
		}
		all := o.Plans[i].Status.Workloads
		for j := range all {
			if all[j].Name == name {
				return &all[j]
			}
		}
	}
	return nil
}

func writePlan(b *strings.Builder, p *v1alpha1.WorkloadPlan) {
	fmt.Fprintf(b, "  instances: %s\n", instancesText(p))
	if len(p.Nodes) > 0 {
		fmt.Fprintf(b, "  nodes: %s\n", nodesText(p))
	}
	for i := 0; i < len(p.Domains); {
		end := i
		for end < len(p.Domains) && p.Domains[end].Key == p.Domains[i].Key {
			end++
		}
		var parts []string
		for _, d := range p.Domains[i:end] {
			parts = append(parts, fmt.Sprintf("%s %d", d.Value, d.Instances))
		}
		fmt.Fprintf(b, "  %s: %s\n", p.Domains[i].Key, listed(parts, 0))
		i = end
	}
	if p.Pending != nil {
		writePending(b, p.Pending)
	}
	if p.Message != "" {
		fmt.Fprintf(b, "  %s: %s\n", p.Phase, p.Message)
	}
}

// instancesText says how many have a node, and what becomes of those that there are.
func instancesText(p *v1alpha1.WorkloadPlan) string {
	parts := []string{fmt.Sprintf("%d of %d would have a node", p.Placed, p.Wanted)}
	if p.Wanted == 0 && p.Placed == 0 {
		parts[0] = "none would be left"
	}
	for _, of := range []struct {
		count int32
		what  string
	}{
		{p.Added, "added"}, {p.Replaced, "replaced"}, {p.Changed, "changed in place"}, {p.Removed, "removed"}, {p.Kept, "kept"},
	} {
		if of.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", of.count, of.what))
		}
	}
	return strings.Join(parts, ", ")
}

// nodesText says of nodes how many instances would be there, with what comes and goes.
func nodesText(p *v1alpha1.WorkloadPlan) string {
	var parts []string
	for _, n := range p.Nodes {
		var moves []string
		for _, of := range []struct {
			count int32
			form  string
		}{{n.Added, "+%d"}, {n.Removed, "-%d"}, {n.Changed, "~%d"}} {
			if of.count > 0 {
				moves = append(moves, fmt.Sprintf(of.form, of.count))
			}
		}
		text := fmt.Sprintf("%s %d", n.Name, n.Instances)
		if len(moves) > 0 {
			text += " (" + strings.Join(moves, " ") + ")"
		}
		parts = append(parts, text)
	}
	return listed(parts, int(p.MoreNodes))
}

// writePending says why instances would have no node, as `tako why` does of those that have none.
func writePending(b *strings.Builder, p *v1alpha1.PendingExplanation) {
	fmt.Fprintf(b, "  ✗ %d would have no node: %s\n", p.Instances, p.Message)
	for i := range p.Nearest {
		fmt.Fprintf(b, "    %s would fit with %s\n", p.Nearest[i].Node, strings.Join(p.Nearest[i].Cures, ", "))
	}
}

func writeDisplaced(b *strings.Builder, d *v1alpha1.DisplacedWorkload) {
	fmt.Fprintf(b, "workload %s would make room: %d of its instances go from %s", d.Name, d.Displaced, strings.Join(d.Nodes, ", "))
	if d.Pending > 0 {
		fmt.Fprintf(b, ", and %d would have no node", d.Pending)
	}
	b.WriteByte('\n')
}

// listed is a list that is clipped, with how many more there are.
func listed(parts []string, more int) string {
	if len(parts) > shownMax {
		more += len(parts) - shownMax
		parts = parts[:shownMax]
	}
	text := strings.Join(parts, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
