package facts

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"tako.dev/tako/internal/reason"
)

// sizeMax bounds what is read of one file. The largest, /proc/cpuinfo, is read up to its first processor only.
const sizeMax = 64 << 10

// places are the directories that are read; tests put others in.
type places struct {
	root string // of the managed operating system: where etc/os-release is
	proc string
	sys  string
	run  string
}

// Collect observes the host. root is the directory whose operating system is managed, "/" for the host's own; the kernel's
// facts are the running kernel's in any case. An error says that a file is there and cannot be read; Facts then holds the
// rest and is good to use.
func Collect(root string) (Facts, error) {
	at := places{root: root, proc: "/proc", sys: "/sys", run: "/run"}
	f, err := at.collect()
	interfaces, e := readInterfaces()
	f.Network = networkOf(at.routes(), interfaces)
	return f, errors.Join(err, e)
}

func (at places) collect() (Facts, error) {
	var errs []error
	read := func(dir, name string) []byte {
		b, err := readFile(filepath.Join(dir, name))
		if err != nil {
			errs = append(errs, err)
		}
		return b
	}
	release := read(at.root, "etc/os-release")
	if release == nil {
		release = read(at.root, "usr/lib/os-release")
	}
	hostname := firstLine(read(at.proc, "sys/kernel/hostname"))
	cpu, _ := readFile(filepath.Join(at.proc, "cpuinfo")) // some facts less are no reason to stop
	hosts, _ := readFile(filepath.Join(at.root, "etc/hosts"))
	f := Facts{
		Hostname:    hostname,
		FQDN:        fqdnOf(hostname, hosts),
		Arch:        runtime.GOARCH,
		OS:          parseOSRelease(release),
		Kernel:      Kernel{Name: firstLine(read(at.proc, "sys/kernel/ostype")), Release: firstLine(read(at.proc, "sys/kernel/osrelease"))},
		BootID:      firstLine(read(at.proc, "sys/kernel/random/boot_id")),
		CPUModel:    parseCPUModel(cpu),
		CPUCount:    parseCPUList(read(at.sys, "devices/system/cpu/online")),
		MemoryBytes: parseMemTotal(read(at.proc, "meminfo")),
	}
	f.Disks, f.Timezone, f.SystemdVersion = at.disks(), at.timezone(), at.systemdVersion()
	f.PackageManager, f.SELinux = at.packageManager(), at.selinux()
	f.Virtualization = virtualization(at.signs(cpu))
	return f, errors.Join(errs...)
}

// signs reads what tells of containers and virtual machines. What is not there, or not for us to read, is no sign.
func (at places) signs(cpu []byte) signs {
	read := func(dir, name string) []byte {
		b, _ := readFile(filepath.Join(dir, name))
		return b
	}
	s := signs{
		containerFile:  firstLine(read(at.run, "systemd/container")),
		initEnviron:    read(at.proc, "1/environ"),
		dockerFile:     exists(at.root, ".dockerenv"),
		podmanFile:     exists(at.run, ".containerenv"),
		openVZ:         exists(at.proc, "vz") && !exists(at.proc, "bc"),
		kernelRelease:  firstLine(read(at.proc, "sys/kernel/osrelease")),
		hypervisorType: firstLine(read(at.sys, "hypervisor/type")),
		deviceTree:     firstLine(read(at.proc, "device-tree/hypervisor/compatible")),
		clockSources:   firstLine(read(at.sys, "devices/system/clocksource/clocksource0/available_clocksource")),
		hypervisorFlag: hasHypervisorFlag(cpu),
	}
	for _, name := range []string{"product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version"} {
		s.firmware = append(s.firmware, firstLine(read(at.sys, "class/dmi/id/"+name)))
	}
	return s
}

func (at places) routes() []route {
	v4, _ := readFile(filepath.Join(at.proc, "net/route"))
	v6, _ := readFile(filepath.Join(at.proc, "net/ipv6_route"))
	return append(parseRoutes4(v4), parseRoutes6(v6)...)
}

// readFile returns nil and no error for a file that is not there, and at most sizeMax bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		defer f.Close() // nothing was written
		var b []byte
		if b, err = io.ReadAll(io.LimitReader(f, sizeMax)); err == nil {
			return b, nil
		}
	}
	code := reason.SystemCallFailed
	if errors.Is(err, os.ErrPermission) {
		code = reason.PermissionDenied
	}
	return nil, &reason.Error{Code: code, Doing: "observe the host", Cause: err}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// firstLine returns a file's first line; device tree strings end with a zero byte.
func firstLine(b []byte) string {
	if i := bytes.IndexAny(b, "\n\x00"); i >= 0 {
		b = b[:i]
	}
	return string(bytes.TrimSpace(b))
}

// readInterfaces asks the kernel for the interfaces that are up and their addresses.
func readInterfaces() ([]netInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "list network interfaces", Cause: err}
	}
	var up []netInterface
	for _, one := range all {
		if one.Flags&net.FlagUp == 0 || one.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := one.Addrs()
		if err != nil {
			continue // the interface went away meanwhile; Watch will tell
		}
		n := netInterface{name: one.Name, mac: one.HardwareAddr.String()}
		for _, a := range addresses {
			if p, ok := prefixOf(a); ok {
				n.addresses = append(n.addresses, p)
			}
		}
		up = append(up, n)
	}
	return up, nil
}

func prefixOf(a net.Addr) (netip.Prefix, bool) {
	n, ok := a.(*net.IPNet)
	if !ok {
		return netip.Prefix{}, false
	}
	address, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(address.Unmap(), ones), ok
}
