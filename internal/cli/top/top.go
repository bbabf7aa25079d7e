// Package top says what instances take of what they request: each by itself, by workload and by node. What is shown follows from what was read alone.
package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// amounts are processors, in thousandths, and memory, in bytes.
type amounts struct {
	CPU    int64 `json:"cpuMilli"`
	Memory int64 `json:"memoryBytes"`
}

func (a *amounts) add(b amounts) {
	a.CPU += b.CPU
	a.Memory += b.Memory
}

// amountsOf are those that the API has by name.
func amountsOf(by map[v1alpha1.CapacityName]resource.Quantity) amounts {
	cpu, memory := by[v1alpha1.CapacityCPU], by[v1alpha1.CapacityMemory]
	return amounts{cpu.MilliValue(), memory.Value()}
}

// row is one instance, workload or node.
type row struct {
	Namespace string `json:"namespace,omitempty"` // empty of a node
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"` // of an instance
	// Instances counts those that are not over, and Measured those of them of which it is known what they use.
	Instances int `json:"instances"`
	Measured  int `json:"measured"`
	// Used is what those that are measured use, and Of what they request.
	Used amounts `json:"used"`
	Of   amounts `json:"of"`
	// Requested is what all request.
	Requested amounts `json:"requested"`
	// Offered is what a node has for instances. Left out of others, and of nodes that run none.
	Offered *amounts `json:"offered,omitempty"`
	// Seen is when the oldest sample was taken.
	Seen *metav1.Time `json:"seen,omitempty"`
}

// add counts an instance in.
func (r *row) add(i *v1alpha1.Instance) {
	r.Instances++
	asked := amountsOf(i.Status.Requests)
	r.Requested.add(asked)
	u := i.Status.Usage
	if u == nil || u.CPU == nil {
		return
	}
	r.Measured++
	r.Of.add(asked)
	r.Used.add(amounts{u.CPU.MilliValue(), u.Memory.Value()})
	if r.Seen == nil || u.At.Before(r.Seen) {
		r.Seen = &u.At
	}
}

// What is shown.
const (
	ofNodes     = "nodes"
	ofWorkloads = "workloads"
	ofInstances = "instances"
)

// rowsOf are what instances come to, by name. Those that are over count nowhere. Nodes are given where they are what is shown.
func rowsOf(what string, instances []v1alpha1.Instance, nodes []v1alpha1.Node) []row {
	by := map[[2]string]*row{}
	for i := range nodes {
		n := &nodes[i]
		r := &row{Name: n.Name}
		if o := n.Status.Offers; o != nil {
			offered := amountsOf(o.Allocatable)
			r.Offered = &offered
		}
		by[[2]string{"", n.Name}] = r
	}
	for i := range instances {
		in := &instances[i]
		if in.Status.Phase == v1alpha1.InstanceFailed || in.Status.Phase == v1alpha1.InstanceDone {
			continue
		}
		is := row{Namespace: in.Namespace, Name: in.Name, Node: in.Spec.Node}
		switch what {
		case ofWorkloads:
			is.Name, is.Node = in.Spec.Workload, ""
		case ofNodes:
			is = row{Name: in.Spec.Node}
		}
		key := [2]string{is.Namespace, is.Name}
		if by[key] == nil {
			by[key] = &is
		}
		by[key].add(in)
	}
	rows := make([]row, 0, len(by))
	for _, r := range by {
		rows = append(rows, *r)
	}
	sortRows(rows, "name")
	return rows
}

// sortRows puts rows in order: by name, or those first that use most cpu or memory.
func sortRows(rows []row, by string) {
	slices.SortFunc(rows, func(a, b row) int {
		most := 0
		switch by {
		case "cpu":
			most = cmp.Compare(b.Used.CPU, a.Used.CPU)
		case "memory":
			most = cmp.Compare(b.Used.Memory, a.Used.Memory)
		}
		return cmp.Or(most, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// read asks for what rows are made of, in a namespace; empty is all.
func read(ctx context.Context, server *remote.Server, what, namespace string) (instances []v1alpha1.Instance, nodes []v1alpha1.Node, err error) {
	if what == ofNodes {
		namespace = "" // what a node runs is of any
		if nodes, err = list[v1alpha1.Node](ctx, server, v1alpha1.ResourceNodes, ""); err != nil {
			return nil, nil, err
		}
	}
	instances, err = list[v1alpha1.Instance](ctx, server, v1alpha1.ResourceInstances, namespace)
	return instances, nodes, err
}

func list[T any](ctx context.Context, server *remote.Server, resource, namespace string) ([]T, error) {
	kind, err := server.Find(ctx, resource+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, failure.Of(err, "ask which kinds there are")
	}
	var all []T
	_, err = server.List(ctx, remote.Query{Kind: kind, Namespace: namespace}, func(o *unstructured.Unstructured) error {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &one); err != nil {
			return fmt.Errorf("read %s/%s of the server: %w", o.GetKind(), o.GetName(), err)
		}
		all = append(all, one)
		return nil
	})
	if err != nil {
		return nil, failure.Of(err, "list "+resource)
	}
	return all, nil
}

// write writes rows as a table. With all, their namespaces stand in front.
func write(out io.Writer, what string, rows []row, all bool, now time.Time, style present.Style) error {
	columns := columnsOf(what)
	if all && what != ofNodes {
		columns = append([]column{{"NAMESPACE", func(r *row) string { return r.Namespace }}}, columns...)
	}
	columns = append(columns, column{"SEEN", func(r *row) string { return seen(r, now) }})
	table := present.Table{}
	for _, c := range columns {
		table.Header = append(table.Header, c.header)
	}
	for i := range rows {
		cells := make([]string, len(columns))
		for k, c := range columns {
			cells[k] = c.cell(&rows[i])
		}
		table.Add(cells...)
	}
	return table.Write(out, style)
}

type column struct {
	header string
	cell   func(*row) string
}

func columnsOf(what string) []column {
	name := func(r *row) string { return r.Name }
	count := column{"MEASURED", func(r *row) string { return fmt.Sprintf("%d/%d", r.Measured, r.Instances) }}
	cpu := []column{{"CPU", ifMeasured(func(r *row) string { return milli(r.Used.CPU) })}, {"CPU%", ifMeasured(func(r *row) string { return percent(r.Used.CPU, r.Of.CPU) })},
		{"CPU-REQUESTS", func(r *row) string { return milli(r.Requested.CPU) }}}
	memory := []column{{"MEMORY", ifMeasured(func(r *row) string { return mebi(r.Used.Memory) })}, {"MEMORY%", ifMeasured(func(r *row) string { return percent(r.Used.Memory, r.Of.Memory) })},
		{"MEMORY-REQUESTS", func(r *row) string { return mebi(r.Requested.Memory) }}}
	switch what {
	case ofInstances:
		return slices.Concat([]column{{"INSTANCE", name}, {"NODE", func(r *row) string { return r.Node }}}, cpu, memory)
	case ofWorkloads:
		return slices.Concat([]column{{"WORKLOAD", name}, count}, cpu, memory)
	}
	offered := func(amount func(*amounts) string) func(*row) string {
		return func(r *row) string {
			if r.Offered == nil {
				return none
			}
			return amount(r.Offered)
		}
	}
	return slices.Concat([]column{{"NODE", name}, count}, cpu, []column{{"CPU-OFFERED", offered(func(a *amounts) string { return milli(a.CPU) })}},
		memory, []column{{"MEMORY-OFFERED", offered(func(a *amounts) string { return mebi(a.Memory) })}})
}

// none stands for what is not known.
const none = "-"

func ifMeasured(cell func(*row) string) func(*row) string {
	return func(r *row) string {
		if r.Measured == 0 {
			return none
		}
		return cell(r)
	}
}

func milli(n int64) string { return fmt.Sprintf("%dm", n) }

// mebi is memory as it is declared, rounded up, without the space that would make two columns of it.
func mebi(n int64) string { return fmt.Sprintf("%dMi", (n+1<<20-1)>>20) }

// percent is what is used of what is requested; of nothing it is none.
func percent(used, of int64) string {
	if of <= 0 {
		return none
	}
	return fmt.Sprintf("%.0f%%", float64(used)*100/float64(of))
}

func seen(r *row, now time.Time) string {
	if r.Seen == nil {
		return none
	}
	return present.Duration(max(now.Sub(r.Seen.Time), 0))
}
