// Package facts is what a host observes of itself: operating system, kernel, processors, memory, disks, network and
// virtualization, and what its administrator has written down in files of /etc/tako/facts.d. Everything is read from files
// and the kernel, no program is run. Collect looks once, Own.Read reads the files, Watch tells when to look again.
//
// Parsing is pure, in functions from bytes to values; around them are thin readers. A fact that cannot be observed is
// absent, it never stops the others. What has a number of members that others decide, such as interfaces, is bounded.
// Watch owns goroutines that sleep in the kernel (addresses, routes and interfaces by netlink, disks by the kernel's device
// events, the hostname by poll, own facts by inotify once one is used or there are files) and its own loop; when it returns they are gone.
package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"tako.dev/tako/declare"
)

// Facts is what was observed at one moment. A zero field was not to be observed.
type Facts struct {
	Hostname       string // as the kernel has it
	FQDN           string // with its domain
	Arch           string // as Go names it, amd64
	OS             OS
	Kernel         Kernel
	BootID         string
	CPUCount       int64 // processors online
	CPUModel       string
	MemoryBytes    int64 // memory that the kernel manages
	Network        Network
	Disks          []Disk // sorted by name
	Timezone       string
	SystemdVersion int64
	PackageManager string
	SELinux        string
	Virtualization string         // container or virtual machine, in the words of systemd-detect-virt(1); none on bare metal
	Own            map[string]any // by their whole names; see ReadOwn
}

// OS is the operating system, from os-release(5).
type OS struct {
	ID       string // debian
	Family   string // debian, rhel, suse, arch, alpine; otherwise the ID
	Version  string // VERSION_ID, 12
	Codename string // bookworm
	Name     string // Debian GNU/Linux
}

// Kernel is the running kernel.
type Kernel struct {
	Name    string // Linux
	Release string // 6.1.0-18-amd64
}

// Network is what the host can be reached by.
type Network struct {
	PrimaryInterface string // the one with the best default route, IPv4 before IPv6; without any, the only one with an address
	PrimaryAddress   netip.Addr
	Addresses        []netip.Prefix // of all interfaces that are up, without loopback and link-local ones
	Interfaces       []Interface    // those that have such addresses, sorted by name
}

// Interface is a network interface that other hosts can reach.
type Interface struct {
	Name      string
	MAC       string // empty where it has none
	Addresses []netip.Prefix
}

// Get returns a fact by its name in expressions as a string, an int64, a bool or a []string, and whether this host knows it.
// The text of declare.AllFacts changes when any fact does.
func (f Facts) Get(name string) (any, bool) {
	if own, ok := f.Own[name]; ok {
		return own, true
	}
	if group, key, field, ok := declare.CutMember(name); ok {
		return f.member(group, key, field)
	}
	switch name {
	case declare.AllFacts:
		return f.sum(), true
	case "facts.cpu.count":
		return f.CPUCount, f.CPUCount > 0
	case "facts.memory.bytes":
		return f.MemoryBytes, f.MemoryBytes > 0
	case "facts.systemd.version":
		return f.SystemdVersion, f.SystemdVersion > 0
	case "facts.disks":
		names := make([]string, 0, len(f.Disks))
		for _, d := range f.Disks {
			names = append(names, d.Name)
		}
		return names, f.Disks != nil
	case "facts.network.interfaces":
		names := make([]string, 0, len(f.Network.Interfaces))
		for _, i := range f.Network.Interfaces {
			names = append(names, i.Name)
		}
		return names, f.Network.Interfaces != nil
	case "facts.network.addresses":
		return addressTexts(f.Network.Addresses), f.Network.Addresses != nil
	}
	return text(f.word(name))
}

func (f Facts) member(group, key, field string) (any, bool) {
	switch group {
	case declare.DiskFacts:
		if d, ok := f.disk(key); ok {
			return d.get(field)
		}
	case declare.InterfaceFacts:
		for _, i := range f.Network.Interfaces {
			if i.Name == key {
				return i.get(field)
			}
		}
	}
	return nil, false
}

// Names returns the names of all facts that this host knows, sorted.
func (f Facts) Names() []string {
	names := slices.Collect(maps.Keys(f.Own))
	add := func(name string) {
		if _, ok := f.Get(name); ok {
			names = append(names, name)
		}
	}
	for _, n := range declare.FactNames() {
		add(n.Name)
	}
	for _, field := range declare.MemberFields(declare.DiskFacts) {
		for _, d := range f.Disks {
			add(declare.MemberName(declare.DiskFacts, d.Name, field.Name))
		}
	}
	for _, field := range declare.MemberFields(declare.InterfaceFacts) {
		for _, i := range f.Network.Interfaces {
			add(declare.MemberName(declare.InterfaceFacts, i.Name, field.Name))
		}
	}
	slices.Sort(names)
	return names
}

// sum is a text that two observations share only if all facts are equal.
func (f Facts) sum() string {
	h := sha256.New()
	for _, name := range f.Names() {
		value, _ := f.Get(name)
		fmt.Fprintf(h, "%s %T %q\n", name, value, value)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func addressTexts(addresses []netip.Prefix) []string {
	texts := make([]string, 0, min(len(addresses), listMax))
	for _, p := range addresses[:min(len(addresses), listMax)] {
		texts = append(texts, p.Addr().String())
	}
	return texts
}

// word returns a fact that is a text, "" for one that is not known.
func (f Facts) word(name string) string {
	switch name {
	case "facts.hostname":
		return f.Hostname
	case "facts.arch":
		return f.Arch
	case "facts.os.id":
		return f.OS.ID
	case "facts.os.family":
		return f.OS.Family
	case "facts.os.version":
		return f.OS.Version
	case "facts.os.codename":
		return f.OS.Codename
	case "facts.os.name":
		return f.OS.Name
	case "facts.kernel.name":
		return f.Kernel.Name
	case "facts.kernel.release":
		return f.Kernel.Release
	case "facts.network.primary.interface":
		return f.Network.PrimaryInterface
	case "facts.network.primary.address":
		if !f.Network.PrimaryAddress.IsValid() {
			return ""
		}
		return f.Network.PrimaryAddress.String()
	case "facts.fqdn":
		return f.FQDN
	case "facts.boot.id":
		return f.BootID
	case "facts.cpu.model":
		return f.CPUModel
	case "facts.timezone":
		return f.Timezone
	case "facts.packages.manager":
		return f.PackageManager
	case "facts.selinux":
		return f.SELinux
	case "facts.virtualization":
		return f.Virtualization
	}
	return ""
}

func text(s string) (any, bool) { return s, s != "" }
