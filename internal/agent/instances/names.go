package instances

import (
	"net/netip"
	"slices"
	"strings"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/names"
	"tako.dev/tako/internal/transfer/wire"
)

// name tells which instances are ready, with their names. Nothing is told before it is known what is wanted.
func (k *Keeper) name() {
	if k.opts.Ready == nil || k.wanted.Node == "" {
		return
	}
	ready := []*names.Instance{}
	told := k.Told()
	for i := range told {
		at := slices.IndexFunc(k.wanted.Instances, func(in catalog.Instance) bool { return in.UID == told[i].UID })
		if told[i].Ready && at >= 0 && !k.wanted.Instances[at].Stop {
			ready = append(ready, k.named(&k.wanted.Instances[at], &told[i]))
		}
	}
	k.opts.Ready(ready)
}

// named is a ready instance as others find it: as the servers say it too.
func (k *Keeper) named(in *catalog.Instance, told *wire.Instance) *names.Instance {
	n := &names.Instance{Namespace: in.Namespace, Workload: in.Workload, Name: in.Name, Node: k.wanted.Node, Index: int32(in.Slot), Revision: in.Revision}
	if a, err := netip.ParseAddr(k.wanted.Offers.Address); err == nil && a.Zone() == "" {
		n.Addresses = []netip.Addr{a.Unmap()}
	}
	t := k.secrets[catalog.TemplateLayer(in.Namespace, in.Revision)]
	if t == nil {
		return n
	}
	for i := range t.Spec.Tasks {
		for _, p := range t.Spec.Tasks[i].Ports {
			if at := slices.IndexFunc(told.Ports, func(has wire.InstancePort) bool { return has.Name == p.Name }); at >= 0 {
				n.Endpoints = append(n.Endpoints, names.Endpoint{Port: names.Port{Name: p.Name, Protocol: p.Protocol}, Number: told.Ports[at].Number, Text: p.Text})
			}
		}
	}
	return n
}

// services is what a task learns of others, but for what it has by other means.
func (b *builder) services(has func(name string) bool) (list []string) {
	if b.others == nil {
		return nil
	}
	in := &b.start.Record.Instance
	for _, variable := range b.others(in.Namespace, uint64(in.Slot)) {
		if name, _, _ := strings.Cut(variable, "="); !has(name) {
			list = append(list, variable)
		}
	}
	return list
}
