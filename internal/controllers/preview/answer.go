package preview

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	declared "tako.dev/tako/declare/workload"
)

const (
	// nodesMax, domainsMax, displacedMax and displacedNodesMax bound what an answer lists, as its type says: what people look through, and programs
	// can count on.
	nodesMax, domainsMax, displacedMax, displacedNodesMax = 500, 100, 100, 10
	// zoneLabel is the label of nodes that people think of first when they ask where something is.
	zoneLabel = "topology.kubernetes.io/zone"
)

// answer compares what there was with what there would be.
type answer struct {
	namespace string
	labels    map[string]map[string]string // of nodes, by name
	was, is   map[string]*v1alpha1.Workload
	before    map[string][]*v1alpha1.Instance // of the workloads, those that live
	after     map[string][]*v1alpha1.Instance
	displaced map[types.UID]*v1alpha1.Instance
}

func compare(fleet *Fleet, namespace string, s *store) *answer {
	a := &answer{namespace: namespace, labels: map[string]map[string]string{}, displaced: s.displaced}
	for _, n := range fleet.Nodes {
		a.labels[n.Name] = n.Labels
	}
	a.was, a.before = living(namespace, fleet.Workloads, fleet.Instances)
	a.is, a.after = living(namespace, of[*v1alpha1.Workload](s), of[*v1alpha1.Instance](s))
	return a
}

// living are the workloads of a namespace, and the instances that count as theirs: those that were not told to end, have not ended, and were not
// given up.
func living(namespace string, workloads []*v1alpha1.Workload, instances []*v1alpha1.Instance) (map[string]*v1alpha1.Workload, map[string][]*v1alpha1.Instance) {
	byName, byWorkload := map[string]*v1alpha1.Workload{}, map[string][]*v1alpha1.Instance{}
	for _, o := range workloads {
		if o.Namespace == namespace {
			byName[o.Name] = o
		}
	}
	for _, in := range instances {
		of, owner := byName[in.Spec.Workload], metav1.GetControllerOf(in)
		if in.Namespace != namespace || of == nil || owner == nil || owner.UID != of.UID {
			continue
		}
		if in.Spec.Stop == nil && in.Status.Abandoned == nil && in.Status.Phase != v1alpha1.InstanceFailed && in.Status.Phase != v1alpha1.InstanceDone {
			byWorkload[of.Name] = append(byWorkload[of.Name], in)
		}
	}
	return byName, byWorkload
}

// status is the answer to a question.
func (a *answer) status(spec *v1alpha1.PlanSpec) v1alpha1.PlanStatus {
	var s v1alpha1.PlanStatus
	asked := map[string]bool{}
	for i := range spec.Workloads {
		name := spec.Workloads[i].Name
		asked[name] = true
		s.Workloads = append(s.Workloads, a.workload(name, &spec.Workloads[i].Spec))
	}
	for _, name := range spec.Delete {
		asked[name] = true
		s.Workloads = append(s.Workloads, a.workload(name, &declared.Spec{}))
	}
	s.Displaced = a.others(asked)
	if more := len(s.Displaced) - displacedMax; more > 0 {
		s.Displaced, s.MoreDisplaced = s.Displaced[:displacedMax], int32(more)
	}
	return s
}

// workload is what becomes of one.
func (a *answer) workload(name string, spec *declared.Spec) v1alpha1.WorkloadPlan {
	p := v1alpha1.WorkloadPlan{Name: name}
	nodes := map[string]*v1alpha1.PlannedNode{}
	on := func(in *v1alpha1.Instance) *v1alpha1.PlannedNode {
		n := nodes[in.Spec.Node]
		if n == nil {
			n = &v1alpha1.PlannedNode{Name: in.Spec.Node}
			nodes[n.Name] = n
		}
		return n
	}
	was := map[types.UID]*v1alpha1.Instance{}
	for _, in := range a.before[name] {
		was[in.UID] = in
	}
	for _, in := range a.after[name] {
		n := on(in)
		n.Instances++
		p.Placed++
		before, there := was[in.UID]
		delete(was, in.UID)
		switch {
		case !there:
			n.Added++
			p.Added++
		case before.Spec.Revision != in.Spec.Revision:
			n.Changed++
			p.Changed++
		default:
			p.Kept++
		}
	}
	for _, in := range was {
		on(in).Removed++
		p.Removed++
	}
	p.Replaced = min(p.Added, p.Removed)
	p.Added, p.Removed = p.Added-p.Replaced, p.Removed-p.Replaced
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		if len(p.Nodes) == nodesMax {
			p.MoreNodes = int32(len(nodes) - nodesMax)
			break
		}
		p.Nodes = append(p.Nodes, *nodes[n])
	}
	p.Domains = a.domains(name, spec)
	if o := a.is[name]; o != nil {
		s := &o.Status
		p.Wanted, p.Phase, p.Message = s.Wanted, s.Phase, s.Message
		if s.PendingReplicas > 0 {
			p.Pending = s.Pending
		}
	}
	return p
}

// domains count the instances that would be there by the values of labels.
func (a *answer) domains(name string, spec *declared.Spec) []v1alpha1.PlannedDomain {
	counts := map[[2]string]int32{}
	for _, key := range topologies(spec) {
		for _, in := range a.after[name] {
			if value, labelled := a.labels[in.Spec.Node][key]; labelled {
				counts[[2]string{key, value}]++
			}
		}
	}
	var all []v1alpha1.PlannedDomain
	for at, n := range counts {
		all = append(all, v1alpha1.PlannedDomain{Key: at[0], Value: at[1], Instances: n})
	}
	slices.SortFunc(all, func(a, b v1alpha1.PlannedDomain) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value))
	})
	return all[:min(len(all), domainsMax)]
}

// topologies are the labels of nodes by whose values a workload is spread, and that of the zone.
func topologies(spec *declared.Spec) []string {
	keys, p := []string{zoneLabel}, &spec.Placement
	for i := range p.TopologySpread {
		keys = append(keys, p.TopologySpread[i].TopologyKey)
	}
	for _, a := range slices.Concat(p.Affinity, p.AntiAffinity) {
		if a.TopologyKey != "" {
			keys = append(keys, a.TopologyKey)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// others are the workloads of which instances make room, and that nobody has asked about: those first that lose the most.
func (a *answer) others(asked map[string]bool) []v1alpha1.DisplacedWorkload {
	nodes := map[string][]string{}
	for _, in := range a.displaced {
		if in.Namespace == a.namespace && !asked[in.Spec.Workload] {
			nodes[in.Spec.Workload] = append(nodes[in.Spec.Workload], in.Spec.Node)
		}
	}
	var all []v1alpha1.DisplacedWorkload
	for name, from := range nodes {
		d := v1alpha1.DisplacedWorkload{Name: name, Displaced: int32(len(from))}
		if o := a.is[name]; o != nil {
			d.Pending = o.Status.PendingReplicas
		}
		slices.Sort(from)
		from = slices.Compact(from)
		d.Nodes = from[:min(len(from), displacedNodesMax)]
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b v1alpha1.DisplacedWorkload) int {
		return cmp.Or(-cmp.Compare(a.Displaced, b.Displaced), strings.Compare(a.Name, b.Name))
	})
	return all
}
