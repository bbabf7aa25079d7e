package facts

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// parseCPUModel returns the model of the first processor of /proc/cpuinfo, "" where the architecture has none there.
func parseCPUModel(b []byte) string {
	for line := range bytes.Lines(b) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return printable(strings.TrimSpace(value))
		}
	}
	return ""
}

// fqdnOf is the host name with its domain: the name itself if it has one, otherwise the first name with a domain in the line
// of hosts(5) that has the name; "" where there is none. No resolver is asked, so it does not hang and does not change with the network.
func fqdnOf(hostname string, hosts []byte) string {
	if hostname == "" || strings.Contains(hostname, ".") {
		return hostname
	}
	for line := range strings.Lines(string(hosts)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		full, found := "", false
		for i, name := range fields {
			if i == 0 {
				continue // the address
			}
			found = found || name == hostname
			if full == "" && strings.HasPrefix(name, hostname+".") {
				full = name
			}
		}
		if found && full != "" {
			return printable(full)
		}
	}
	return ""
}

// parseZone returns the time zone that the target of /etc/localtime stands for, "" where it is none.
func parseZone(target string) string {
	_, zone, ok := strings.Cut(target, "zoneinfo/")
	if !ok {
		return ""
	}
	return printable(zone)
}

// timezone is the system's zone: UTC without a file, as localtime(5) says.
func (at places) timezone() string {
	target, err := os.Readlink(filepath.Join(at.root, "etc/localtime"))
	if os.IsNotExist(err) {
		return "UTC"
	}
	return parseZone(target)
}

// systemdVersion is the one of the installed systemd, by the name of its library, as every build of systemd has one.
func (at places) systemdVersion() int64 {
	for _, dir := range []string{"usr/lib/systemd", "usr/lib64/systemd", "usr/lib/x86_64-linux-gnu/systemd", "usr/lib/aarch64-linux-gnu/systemd", "lib/systemd"} {
		names, _ := filepath.Glob(filepath.Join(at.root, dir, "libsystemd-shared-*.so"))
		for _, name := range names {
			if v := parseSystemdLibrary(filepath.Base(name)); v > 0 {
				return v
			}
		}
	}
	return 0
}

// parseSystemdLibrary reads the version in libsystemd-shared-252.so, or libsystemd-shared-252.22-1.el9.so; 0 if there is none.
func parseSystemdLibrary(name string) int64 {
	rest, _ := strings.CutPrefix(name, "libsystemd-shared-")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || rest == name {
		return 0
	}
	return n
}

// packageManagers are the programs by which a package manager is known; the first that is there counts.
var packageManagers = []struct{ program, name string }{
	{"apt-get", "apt"}, {"dnf", "dnf"}, {"zypper", "zypper"}, {"apk", "apk"}, {"pacman", "pacman"},
}

func (at places) packageManager() string {
	for _, m := range packageManagers {
		if exists(at.root, "usr/bin/"+m.program) || exists(at.root, "sbin/"+m.program) {
			return m.name
		}
	}
	return ""
}

// selinux reads what the kernel does with its policy.
func (at places) selinux() string {
	b, _ := readFile(filepath.Join(at.sys, "fs/selinux/enforce"))
	switch firstLine(b) {
	case "1":
		return "enforcing"
	case "0":
		return "permissive"
	}
	return "disabled"
}
