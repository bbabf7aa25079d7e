package presence

import (
	"math"
	"reflect"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/api/resource"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/transfer/wire"
)

// stirs reports whether something else is said of instances, or of what there is for them, than in the report before. How much they use is no news.
func stirs(old, report *wire.Report) bool {
	return !slices.EqualFunc(old.Instances, report.Instances, sameInstance) || !reflect.DeepEqual(old.Offers, report.Offers)
}

func sameInstance(a, b wire.Instance) bool {
	return a.UID == b.UID && a.Attempt == b.Attempt && a.Phase == b.Phase && a.Ready == b.Ready && a.Code == b.Code && a.Message == b.Message && a.Since == b.Since &&
		a.OfNode == b.OfNode && a.Restarts == b.Restarts && a.Revision == b.Revision && slices.Equal(a.Ports, b.Ports)
}

// share has what many hosts say in the same words in memory once: there may be some hundred thousand instances.
func share(r *wire.Report) {
	one := func(s *string) { *s = unique.Make(*s).Value() }
	for i := range r.Configs {
		one(&r.Configs[i].ID)
	}
	for i := range r.Instances {
		in := &r.Instances[i]
		one(&in.Message)
		one(&in.Revision)
		for j := range in.Ports {
			one(&in.Ports[j].Name)
		}
	}
	if h := r.Host; h != nil {
		for i := range h.Images {
			one(&h.Images[i])
		}
	}
	if o := r.Offers; o != nil {
		one(&o.Arch)
		for _, list := range [][]string{o.Runtimes, o.Directories} {
			for i := range list {
				one(&list[i])
			}
		}
	}
}

// offersOf is what a host has for instances, as the API has it; nil where it does not tell.
func offersOf(o *wire.Offers, h *wire.Host) *v1alpha1.NodeOffers {
	if o == nil {
		return nil
	}
	is := &v1alpha1.NodeOffers{Address: o.Address, Architecture: o.Arch, Runtimes: o.Runtimes, Directories: o.Directories, Allocatable: map[v1alpha1.CapacityName]resource.Quantity{
		v1alpha1.CapacityCPU:    *resource.NewMilliQuantity(o.CPU, resource.DecimalSI),
		v1alpha1.CapacityMemory: *resource.NewQuantity(o.Memory, resource.BinarySI),
		v1alpha1.CapacityDisk:   *resource.NewQuantity(o.Disk, resource.BinarySI),
	}}
	if h != nil {
		is.Images = h.Images
	}
	for kind, pieces := range o.Devices {
		if is.Devices == nil {
			is.Devices = map[string]int32{}
		}
		is.Devices[kind] = int32(min(len(pieces), math.MaxInt32))
	}
	return is
}
