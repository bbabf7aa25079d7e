package report

import (
	"runtime"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/transfer/wire"
)

// HostOf is what the servers get to know of a host itself: every fact with a name of declare.FactNames as text, and what it has of disks and
// interfaces. Own facts stay on the host.
func HostOf(version string, lookup declare.Lookup) *wire.Host {
	h := &wire.Host{Version: version, Facts: map[string]string{}}
	for _, f := range declare.FactNames() {
		value, known := lookup(f.Name)
		if !known {
			continue
		}
		text := value.String()
		if value.Type() != declare.List { // lists are bounded by their length, and a part of a name would be another one
			text = wire.Text(text)
		}
		h.Facts[strings.TrimPrefix(f.Name, declare.AllFacts+".")] = text
	}
	of := func(name string) declare.Value {
		value, _ := lookup(name)
		return value
	}
	h.CPUs, h.Memory = uint32(of("facts.cpu.count").Number()), uint64(of("facts.memory.bytes").Number())
	if h.CPUs == 0 {
		h.CPUs = uint32(runtime.NumCPU())
	}
	for _, name := range most(of(declare.DiskFacts).Texts(), wire.DisksMax) {
		field := func(field string) declare.Value { return of(declare.MemberName(declare.DiskFacts, name, field)) }
		h.Disks = append(h.Disks, wire.Disk{Name: name, Bytes: uint64(field("bytes").Number()), Model: field("model").String(),
			Rotational: field("rotational") == declare.BooleanValue(true)})
	}
	room := wire.AddressesMax
	for _, name := range most(of(declare.InterfaceFacts).Texts(), wire.InterfacesMax) {
		field := func(field string) declare.Value { return of(declare.MemberName(declare.InterfaceFacts, name, field)) }
		addresses := most(field("addresses").Texts(), room)
		room -= len(addresses)
		h.Interfaces = append(h.Interfaces, wire.Interface{Name: name, MAC: field("mac").String(), Addresses: addresses})
	}
	return h
}

// most is the beginning of a list, at most so long.
func most(list []string, n int) []string { return list[:min(len(list), n)] }
