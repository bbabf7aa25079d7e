package oci

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Why calls are refused, and not those allowed that are known: what a program of tomorrow needs, and a list of ours does not have, would
// break it where nobody looks for that; and without capabilities the kernel refuses what is dangerous by itself. Refused is, beyond that,
// what is reached without any privilege and has no use in a container: the ways into other namespaces and other mounts, the kernel's keys,
// and its parts that have been broken most often.
var refusedCalls = []string{
	"acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "fanotify_init", "finit_module", "fsconfig",
	"fsmount", "fsopen", "fspick", "get_kernel_syms", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
	"ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr",
	"move_mount", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open", "pivot_root",
	"query_module", "quotactl", "quotactl_fd", "reboot", "request_key", "setns",
	"settimeofday", "stime", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86",
	"vm86old",
}

// newNamespaces are the flags of clone(2) that make some.
var newNamespaces = []uint64{
	unix.CLONE_NEWCGROUP, unix.CLONE_NEWIPC, unix.CLONE_NEWNET, unix.CLONE_NEWNS, unix.CLONE_NEWPID, unix.CLONE_NEWUSER, unix.CLONE_NEWUTS,
}

// architectures are those of a machine, with that for 32 bits. What is of none, such as x32, ends with the first call.
func architectures() []string {
	switch runtime.GOARCH {
	case "amd64":
		return []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"}
	case "arm64":
		return []string{"SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"}
	}
	return nil // that of the kernel alone
}

// seccomp is the profile of all containers.
func seccomp() *profile {
	perm, absent := uint(unix.EPERM), uint(unix.ENOSYS)
	p := &profile{
		Default: "SCMP_ACT_ALLOW", Architectures: architectures(),
		Rules: []rule{
			{Names: refusedCalls, Action: "SCMP_ACT_ERRNO", Errno: &perm},
			// Its flags are in memory, where no filter sees them; programs fall back to clone.
			{Names: []string{"clone3"}, Action: "SCMP_ACT_ERRNO", Errno: &absent},
		},
	}
	for _, flag := range newNamespaces {
		has := condition{Mask: flag, Value: flag, Op: "SCMP_CMP_MASKED_EQ"}
		p.Rules = append(p.Rules, rule{Names: []string{"clone"}, Action: "SCMP_ACT_ERRNO", Errno: &perm, Args: []condition{has}})
	}
	return p
}
