package oci

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/shim"
)

// The parts of config.json of the OCI runtime specification (github.com/opencontainers/runtime-spec, config.md and config-linux.md) that are used.
type (
	spec struct {
		Version  string  `json:"ociVersion"`
		Process  process `json:"process"`
		Root     root    `json:"root"`
		Hostname string  `json:"hostname"`
		Mounts   []mount `json:"mounts"`
		Linux    linux   `json:"linux"`
	}
	process struct {
		User            user         `json:"user"`
		Args            []string     `json:"args"`
		Env             []string     `json:"env"`
		Cwd             string       `json:"cwd"`
		Capabilities    capabilities `json:"capabilities"`
		Rlimits         []rlimit     `json:"rlimits"`
		NoNewPrivileges bool         `json:"noNewPrivileges"`
		OOMScoreAdj     int          `json:"oomScoreAdj"`
	}
	user struct {
		UID    uint32   `json:"uid"`
		GID    uint32   `json:"gid"`
		Umask  uint32   `json:"umask"`
		Groups []uint32 `json:"additionalGids,omitempty"`
	}
	capabilities struct {
		Bounding  []string `json:"bounding"`
		Effective []string `json:"effective"`
		Permitted []string `json:"permitted"`
	}
	rlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	root struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options"`
	}
	linux struct {
		CgroupsPath   string      `json:"cgroupsPath,omitempty"`
		Namespaces    []namespace `json:"namespaces"`
		Devices       []node      `json:"devices,omitempty"`
		Resources     resources   `json:"resources"`
		MaskedPaths   []string    `json:"maskedPaths"`
		ReadonlyPaths []string    `json:"readonlyPaths"`
		Seccomp       *profile    `json:"seccomp"`
	}
	namespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	node struct {
		Path  string `json:"path"`
		Type  string `json:"type"`
		Major uint32 `json:"major"`
		Minor uint32 `json:"minor"`
		Mode  uint32 `json:"fileMode"`
		UID   uint32 `json:"uid"`
		GID   uint32 `json:"gid"`
	}
	resources struct {
		Devices []access `json:"devices"`
	}
	access struct {
		Allow  bool    `json:"allow"`
		Type   string  `json:"type,omitempty"`
		Major  *uint32 `json:"major,omitempty"`
		Minor  *uint32 `json:"minor,omitempty"`
		Access string  `json:"access"`
	}
	profile struct {
		Default       string   `json:"defaultAction"`
		Architectures []string `json:"architectures,omitempty"`
		Rules         []rule   `json:"syscalls"`
	}
	rule struct {
		Names  []string    `json:"names"`
		Action string      `json:"action"`
		Errno  *uint       `json:"errnoRet,omitempty"`
		Args   []condition `json:"args,omitempty"`
	}
	condition struct {
		Index uint   `json:"index"`
		Mask  uint64 `json:"value"`
		Value uint64 `json:"valueTwo"`
		Op    string `json:"op"`
	}
)

const (
	// temporaryOption bounds /tmp and /run, which are memory that counts as the container's: what a program keeps while it runs. Who needs
	// more has a volume for it.
	temporaryOption = "size=64m"
	// filesSoft and filesHard are how many files a process may have open: what systemd gives to services, since programs that use select(2)
	// break beyond the first.
	filesSoft, filesHard = 1024, 524288
	// hostnameMax is that of the kernel.
	hostnameMax = 64
)

// rootCapabilities are what root has in a container: over its own files and processes, and for ports below 1024.
var rootCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID",
}

// maskedPaths show what is of the host or its hardware; readonlyPaths are settings of it.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// fromHost are files that programs need for the network.
var fromHost = []string{"/etc/hosts", resolvName}

// place is where the things of a container are on the host.
type place struct {
	root   string // of the container
	config string // the directory of config files, which are numbered
	resolv string // the file of name servers; empty: the host's
	holder int    // the first process of its process ID namespace
	files  uint64 // how many may be open at most
}

// specOf says what runc is to make.
func specOf(o *shim.Order, c *container, p place) *spec {
	s := &spec{
		Version: "1.0.2", Hostname: o.ID.Instance[:min(hostnameMax, len(o.ID.Instance))],
		Process: process{
			User: user{UID: o.As.UID, GID: o.As.GID, Umask: 0o022, Groups: o.As.Groups},
			Args: shim.Texts(o.Command), Env: shim.Texts(o.Env), Cwd: o.WorkDir, NoNewPrivileges: true,
			Rlimits: []rlimit{{"RLIMIT_NOFILE", p.files, min(filesSoft, p.files)}},
		},
		Root: root{Path: p.root, Readonly: !c.Writable},
		Linux: linux{
			CgroupsPath: cgroupsPath(o.Group),
			Namespaces: []namespace{
				{Type: "pid", Path: "/proc/" + strconv.Itoa(p.holder) + "/ns/pid"}, {Type: "mount"}, {Type: "ipc"}, {Type: "uts"}, {Type: "cgroup"},
			},
			Resources:   resources{Devices: []access{{Access: "rwm"}}},
			MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths, Seccomp: seccomp(),
		},
	}
	if c.Network != "" {
		s.Linux.Namespaces = append(s.Linux.Namespaces, namespace{Type: "network", Path: c.Network})
	}
	if o.As.UID == 0 {
		s.Process.Capabilities = capabilities{rootCapabilities, rootCapabilities, rootCapabilities}
	}
	for _, d := range c.Devices {
		kind := "c"
		if d.Block {
			kind = "b"
		}
		s.Linux.Devices = append(s.Linux.Devices, node{Path: d.Path, Type: kind, Major: d.Major, Minor: d.Minor, Mode: 0o600, UID: o.As.UID, GID: o.As.GID})
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices, access{Allow: true, Type: kind, Major: &d.Major, Minor: &d.Minor, Access: "rw"})
	}
	s.Mounts = append(ownMounts(o, c, p), shown(c, p)...)
	return s
}

// cgroupsPath tells runc the cgroup that is there already. Of v1 runc takes that of the container's name below its own in each hierarchy, which
// is right; of v2 it would take one beside it.
func cgroupsPath(g shim.Group) string {
	for _, dir := range g.Dirs {
		if rest, ok := strings.CutPrefix(dir, "/sys/fs/cgroup"); ok && g.V2 {
			return rest
		}
	}
	return ""
}

// ownMounts are what every container has. Where the task has something of its own, that is there.
func ownMounts(o *shim.Order, c *container, p place) []mount {
	owner := []string{"uid=" + strconv.Itoa(int(o.As.UID)), "gid=" + strconv.Itoa(int(o.As.GID))}
	all := []mount{
		{"/proc", "proc", "proc", []string{"nosuid", "noexec", "nodev"}},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k"}},
		{"/dev/pts", "devpts", "devpts", []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{"/dev/shm", "tmpfs", "shm", []string{"nosuid", "noexec", "nodev", "mode=1777", temporaryOption}},
		{"/dev/mqueue", "mqueue", "mqueue", []string{"nosuid", "noexec", "nodev"}},
		{"/sys", "sysfs", "sysfs", []string{"nosuid", "noexec", "nodev", "ro"}},
		{"/sys/fs/cgroup", "cgroup", "cgroup", []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		{"/tmp", "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=1777", temporaryOption}},
		{"/run", "tmpfs", "tmpfs", append([]string{"nosuid", "nodev", "mode=755", temporaryOption}, owner...)},
	}
	for _, name := range fromHost {
		source := name
		if name == resolvName && p.resolv != "" {
			source = p.resolv
		}
		if st, err := os.Stat(source); err == nil && st.Mode().IsRegular() {
			all = append(all, mount{name, "bind", source, []string{"bind", "ro", "nosuid", "noexec", "nodev"}})
		}
	}
	return slices.DeleteFunc(all, func(m mount) bool {
		return slices.ContainsFunc(c.Mounts, func(t run.Mount) bool { return below(m.Destination, t.Path) && !below(m.Destination, "/dev") }) ||
			slices.ContainsFunc(c.Files, func(f run.File) bool { return path.Clean(f.Path) == m.Destination })
	})
}

// shown are the mounts and files of the task.
func shown(c *container, p place) (list []mount) {
	for _, m := range c.Mounts {
		options := []string{"rbind", "rslave", "nosuid", "nodev"}
		if m.ReadOnly {
			options = append(options, "ro", "rro") // also what is mounted below it
		}
		list = append(list, mount{m.Path, "bind", m.Source, options})
	}
	for i, f := range c.Files {
		list = append(list, mount{path.Clean(f.Path), "bind", filepath.Join(p.config, strconv.Itoa(i)), []string{"bind", "ro", "nosuid", "noexec", "nodev"}})
	}
	return list
}
