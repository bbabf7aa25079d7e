// Package facts is what a host observes of itself: operating system, kernel, processors, memory, network and
// virtualization. Everything is read from files and the kernel, no program is run. Collect looks once, Watch tells when to
// look again.
//
// Parsing is pure, in functions from bytes to values; around them are thin readers. A fact that cannot be observed is
// absent, it never stops the others. Watch owns two goroutines that sleep in the kernel (addresses and routes by netlink,
// the hostname by poll) and its own loop; when it returns they are gone.
package facts

import (
	"net/netip"
)

// Facts is what was observed at one moment. A zero field was not to be observed.
type Facts struct {
	Hostname       string // as the kernel has it
	Arch           string // as Go names it, amd64
	OS             OS
	Kernel         Kernel
	CPUCount       int64 // processors online
	MemoryBytes    int64 // memory that the kernel manages
	Network        Network
	Virtualization string // container or virtual machine, in the words of systemd-detect-virt(1); none on bare metal
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
	PrimaryInterface string // the one with the best default route, IPv4 before IPv6
	PrimaryAddress   netip.Addr
	Addresses        []netip.Prefix // of all interfaces that are up, without loopback and link-local ones
}

// Get returns the fact with a name of declare.FactNames as a string or an int64, and whether this host knows it.
func (f Facts) Get(name string) (any, bool) {
	switch name {
	case "facts.hostname":
		return text(f.Hostname)
	case "facts.arch":
		return text(f.Arch)
	case "facts.os.id":
		return text(f.OS.ID)
	case "facts.os.family":
		return text(f.OS.Family)
	case "facts.os.version":
		return text(f.OS.Version)
	case "facts.os.codename":
		return text(f.OS.Codename)
	case "facts.os.name":
		return text(f.OS.Name)
	case "facts.kernel.name":
		return text(f.Kernel.Name)
	case "facts.kernel.release":
		return text(f.Kernel.Release)
	case "facts.cpu.count":
		return f.CPUCount, f.CPUCount > 0
	case "facts.memory.bytes":
		return f.MemoryBytes, f.MemoryBytes > 0
	case "facts.network.primary.interface":
		return text(f.Network.PrimaryInterface)
	case "facts.network.primary.address":
		if !f.Network.PrimaryAddress.IsValid() {
			return nil, false
		}
		return f.Network.PrimaryAddress.String(), true
	case "facts.virtualization":
		return text(f.Virtualization)
	}
	return nil, false
}

func text(s string) (any, bool) { return s, s != "" }
