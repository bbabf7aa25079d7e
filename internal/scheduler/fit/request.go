package fit

import (
	"cmp"
	"fmt"
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/reason"
)

// Request is all that an instance needs of the node it is on.
type Request struct {
	Amounts       Amounts
	Devices       []DeviceCount // by name
	Ports         []Port        // the static ones, in order
	Directories   []string      // those of the node that it mounts, in order
	Selector      declare.Selector
	Architectures []string // none: all
	Runtime       workload.Runtime
	Tolerations   []workload.Toleration
}

// DeviceCount is a number of pieces of one kind of hardware.
type DeviceCount struct {
	Name  string
	Count int64
}

// Port is one of the node's.
type Port struct {
	Protocol workload.Protocol
	Number   int32
}

// String is the port as people write it: 8080/TCP.
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

func comparePorts(a, b Port) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol))
}

// WithNetwork is how a node offers a runtime that can give instances networks of their own: OCI/Own.
func WithNetwork(r workload.Runtime) workload.Runtime {
	return r + "/" + workload.Runtime(workload.OwnNetwork)
}

// Compile sums up what the instances of a workload need. Its error says which task declares what cannot be.
func Compile(spec *workload.Spec) (Request, error) {
	r := Request{Selector: spec.Selector, Architectures: spec.Placement.Architectures, Runtime: spec.Template.RuntimeOrDefault(), Tolerations: spec.Placement.Tolerations}
	if spec.Template.NetworkOrDefault() == workload.OwnNetwork {
		r.Runtime = WithNetwork(r.Runtime)
	}
	devices := map[string]int64{}
	r.Amounts.Instances = 1
	for i := range spec.Template.Tasks {
		t := &spec.Template.Tasks[i]
		wrong := func(cause error) (Request, error) {
			return Request{}, &reason.Error{Code: reason.InvalidValue, Doing: fmt.Sprintf("sum up the requests of task %s", t.Name), Cause: cause,
				Hint: `write amounts as "500m", "512Mi" or "10Gi"`}
		}
		a, err := compileAmounts(t.Resources.Requests)
		if err != nil {
			return wrong(err)
		}
		if r.Amounts = r.Amounts.Plus(a); !r.Amounts.Within(Amounts{amountMax, amountMax, amountMax, 1}) {
			return wrong(fmt.Errorf("with those of the tasks before it more is requested than any node has"))
		}
		for _, d := range t.Resources.Devices {
			count := int64(1)
			if d.Count != nil {
				count = int64(*d.Count)
			}
			if count < 1 {
				return wrong(fmt.Errorf("device %s: %d pieces are none", d.Name, count))
			}
			devices[d.Name] += count
		}
		// In a network of its own an instance has all ports, and its host leads others to them that are found there.
		for _, p := range t.Ports {
			if p.Port != 0 && spec.Template.NetworkOrDefault() != workload.OwnNetwork {
				r.Ports = append(r.Ports, Port{cmp.Or(p.Protocol, workload.TCP), p.Port})
			}
		}
	}
	for name, count := range devices {
		r.Devices = append(r.Devices, DeviceCount{name, count})
	}
	for _, v := range spec.Template.Volumes {
		switch {
		case v.Host != nil:
			r.Directories = append(r.Directories, v.Host.Path)
		case v.Data != nil:
			size, err := bounded("size", v.Data.Size.Value)
			if err != nil || size > amountMax-r.Amounts.Disk {
				return Request{}, &reason.Error{Code: reason.InvalidValue, Doing: fmt.Sprintf("sum up volume %s", v.Name), Cause: err, Hint: `write its size as "10Gi"`}
			}
			r.Amounts.Disk += size
		}
	}
	slices.SortFunc(r.Devices, func(a, b DeviceCount) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Ports, comparePorts)
	r.Ports = slices.Compact(r.Ports)
	slices.Sort(r.Directories)
	r.Directories = slices.Compact(r.Directories)
	return r, nil
}
