package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tmpOptions bound the private /tmp of a sealed command: half a second of writing.
const tmpOptions = "mode=1777,size=64m,nr_inodes=10k"

// sealedCapabilities are those with which root could undo the seal or change what is no file. Root keeps what it needs to look
// everywhere.
var sealedCapabilities = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_MKNOD,
	unix.CAP_LINUX_IMMUTABLE, unix.CAP_NET_ADMIN, unix.CAP_BPF, unix.CAP_PERFMON,
}

// seal shuts this process in, in the mount and network namespaces that it was started in, which are its own. What it starts from
// this thread is shut in too.
func seal() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make everything read-only: %w", err) // Linux before 5.12 cannot
	}
	if err := unix.Mount("tako", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, tmpOptions); err != nil {
		return fmt.Errorf("mount a /tmp: %w", err)
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	for _, c := range sealedCapabilities {
		// EINVAL: a kernel that does not know it cannot give it.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("give up capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("allow no new privileges: %w", err)
	}
	return nil
}

// loopback brings up the one interface of this network namespace. With it the kernel counts every attempt to send: what is for this
// host as sent, what is for another as without a route. Without it IPv6 finds no address of its own, and counts nothing.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// attempts says in numbers what was tried to be sent in this network namespace. What cannot be read is empty.
func attempts() string {
	v4, err4 := os.ReadFile("/proc/self/net/snmp")
	v6, err6 := os.ReadFile("/proc/self/net/snmp6")
	if err4 != nil || err6 != nil && !errors.Is(err6, os.ErrNotExist) { // a kernel without IPv6 has no such file
		return ""
	}
	return strings.Join([]string{counter4(v4, "OutRequests"), counter4(v4, "OutNoRoutes"), counter6(v6, "Ip6OutRequests"), counter6(v6, "Ip6OutNoRoutes")}, " ")
}

// counter4 finds a number of IP in /proc/net/snmp, which has a line of names and a line of numbers for each protocol.
func counter4(text []byte, name string) string {
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		if i := slices.Index(names, name); i >= 0 && i < len(fields) {
			return fields[i]
		}
	}
	return ""
}

// counter6 finds a number in /proc/net/snmp6, which has a line for each.
func counter6(text []byte, name string) string {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[0] == name {
			return fields[1]
		}
	}
	return ""
}
