package facts

import (
	"bytes"
	"strings"
)

// signs are what tells of a container or a virtual machine.
type signs struct {
	containerFile string // content of /run/systemd/container
	initEnviron   []byte // environment of pid 1, readable by root only
	dockerFile    bool   // /.dockerenv exists
	podmanFile    bool   // /run/.containerenv exists
	openVZ        bool
	kernelRelease string

	firmware       []string // product and vendor names of DMI
	hypervisorType string   // /sys/hypervisor/type
	deviceTree     string   // compatible hypervisor of the device tree
	clockSources   string   // names of the clocks that the kernel offers; a guest has its hypervisor's
	hypervisorFlag bool     // the processor says that it is not alone
}

// virtualization names the innermost layer around this system, in the words of systemd-detect-virt(1): a container if
// there is one, otherwise the virtual machine, otherwise none.
func virtualization(s signs) string {
	if c := container(s); c != "" {
		return c
	}
	return machine(s)
}

func container(s signs) string {
	if wordOf(s.containerFile) != "" {
		return s.containerFile
	}
	for variable := range bytes.SplitSeq(s.initEnviron, []byte{0}) {
		if value, ok := bytes.CutPrefix(variable, []byte("container=")); ok && wordOf(string(value)) != "" {
			return string(value)
		}
	}
	switch release := strings.ToLower(s.kernelRelease); {
	case s.podmanFile:
		return "podman"
	case s.dockerFile:
		return "docker"
	case s.openVZ:
		return "openvz"
	case strings.Contains(release, "microsoft") || strings.HasSuffix(release, "wsl"):
		return "wsl"
	}
	return ""
}

// firmwareNames are how the products and vendors in the firmware of virtual machines begin. Order matters: the first hit
// counts.
var firmwareNames = []struct{ prefix, name string }{
	{"KVM", "kvm"},
	{"OpenStack", "kvm"},
	{"KubeVirt", "kvm"},
	{"Amazon EC2", "amazon"},
	{"Google Compute Engine", "google"},
	{"QEMU", "qemu"},
	{"VMware", "vmware"},
	{"VMW", "vmware"},
	{"innotek GmbH", "oracle"},
	{"VirtualBox", "oracle"},
	{"Oracle Corporation", "oracle"},
	{"Xen", "xen"},
	{"Bochs", "bochs"},
	{"Parallels", "parallels"},
	{"BHYVE", "bhyve"},
	{"Hyper-V", "microsoft"},
	{"Virtual Machine", "microsoft"}, // product name of Hyper-V; its vendor also makes computers of metal
	{"Apple Virtualization", "apple"},
}

func machine(s signs) string {
	name := byFirmware(s.firmware)
	if name == "" || name == "qemu" { // QEMU in the firmware may be emulated or run by KVM: a clock of KVM decides
		if better := byKernel(s); better != "" {
			name = better
		}
	}
	switch {
	case name == "amazon" && !s.hypervisorFlag && strings.HasSuffix(strings.Join(s.firmware, " "), "metal"):
		return "none"
	case name != "":
		return name
	case s.hypervisorFlag:
		return "vm-other"
	}
	return "none"
}

func byFirmware(names []string) string {
	for _, known := range firmwareNames {
		for _, n := range names {
			if strings.HasPrefix(n, known.prefix) {
				return known.name
			}
		}
	}
	return ""
}

func byKernel(s signs) string {
	switch {
	case s.hypervisorType == "xen" || strings.HasPrefix(s.deviceTree, "xen"):
		return "xen"
	case strings.Contains(s.clockSources, "kvm-clock") || s.deviceTree == "linux,kvm":
		return "kvm"
	case strings.Contains(s.clockSources, "hyperv_clocksource"):
		return "microsoft"
	}
	return ""
}

// hasHypervisorFlag reports whether the processor flags of /proc/cpuinfo hold hypervisor. All processors have the same, so
// the first one counts.
func hasHypervisorFlag(b []byte) bool {
	for line := range strings.Lines(string(b)) {
		key, flags, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(key) != "flags" {
			continue
		}
		for flag := range strings.FieldsSeq(flags) {
			if flag == "hypervisor" {
				return true
			}
		}
		return false
	}
	return false
}

// wordOf returns s if it can be the name of a kind of container, "" otherwise: others write what we read here.
func wordOf(s string) string {
	for _, c := range []byte(s) {
		if c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return ""
		}
	}
	return s
}
