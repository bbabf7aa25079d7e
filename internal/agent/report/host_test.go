package report

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/transfer/wire"
)

// lookup is what a host knows of itself.
func lookup(facts map[string]any) declare.Lookup {
	return declare.Scope{NodeName: "web-1", Fact: func(name string) (any, bool) { x, ok := facts[name]; return x, ok }}.Lookup
}

// TestHostOf: facts with a name of their own go to the servers as text, disks and interfaces as what they are, own facts not at all.
func TestHostOf(t *testing.T) {
	got := HostOf("v1", lookup(map[string]any{
		"facts.os.id": "debian", "facts.cpu.count": int64(4), "facts.memory.bytes": int64(8 << 30), "facts.custom.site.rack": int64(12),
		"facts.disks": []string{"nvme0n1", "sda"}, "facts.disks['nvme0n1'].bytes": int64(1 << 40), "facts.disks['nvme0n1'].rotational": false,
		"facts.disks['sda'].bytes": int64(2 << 40), "facts.disks['sda'].model": "Slow", "facts.disks['sda'].rotational": true,
		"facts.network.interfaces": []string{"eth0"}, "facts.network.interfaces['eth0'].addresses": []string{"192.0.2.7", "2001:db8::7"},
		"facts.network.interfaces['eth0'].mac": "52:54:00:12:34:56",
	}))
	want := &wire.Host{Version: "v1", CPUs: 4, Memory: 8 << 30,
		Facts:      map[string]string{"os.id": "debian", "cpu.count": "4", "memory.bytes": "8589934592", "disks": "nvme0n1 sda", "network.interfaces": "eth0"},
		Disks:      []wire.Disk{{Name: "nvme0n1", Bytes: 1 << 40}, {Name: "sda", Bytes: 2 << 40, Model: "Slow", Rotational: true}},
		Interfaces: []wire.Interface{{Name: "eth0", MAC: "52:54:00:12:34:56", Addresses: []string{"192.0.2.7", "2001:db8::7"}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if h := HostOf("v1", lookup(nil)); h.CPUs != uint32(runtime.NumCPU()) || len(h.Facts) != 0 || h.Disks != nil || h.Interfaces != nil {
		t.Errorf("of a host that knows nothing: %+v", h)
	}
}

// TestHostIsBounded: however much a host has, its report is taken.
func TestHostIsBounded(t *testing.T) {
	facts := map[string]any{}
	var names []string
	for i := range 2 * wire.DisksMax {
		name := fmt.Sprintf("x%03d", i)
		names = append(names, name)
		facts[declare.MemberName(declare.InterfaceFacts, name, "addresses")] = []string{"192.0.2.7", "192.0.2.8", "192.0.2.9"}
	}
	var addresses []string
	for i := range wire.AddressesMax {
		addresses = append(addresses, fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%04x", i))
	}
	for _, f := range declare.FactNames() {
		facts[f.Name] = map[declare.ValueType]any{declare.Text: strings.Repeat("x", 8<<10), declare.Integer: int64(math.MaxInt64)}[f.Type]
	}
	for _, name := range names {
		facts[declare.MemberName(declare.DiskFacts, name, "model")] = strings.Repeat("x", 256)
	}
	facts["facts.disks"], facts["facts.network.interfaces"], facts["facts.network.addresses"] = names, names, addresses
	h := HostOf("v1", lookup(facts))
	if err := (&wire.Report{Host: h}).Validate(); err != nil || len(h.Disks) != wire.DisksMax || len(h.Interfaces) != wire.InterfacesMax || len(h.Interfaces[21].Addresses) != 1 {
		t.Errorf("%d disks, %d interfaces, %v", len(h.Disks), len(h.Interfaces), err)
	}
	if got := h.Facts["network.addresses"]; got != strings.Join(addresses, " ") {
		t.Errorf("the addresses are %q", got)
	}
}
