// Command killat runs a program and kills it with SIGKILL at one of its steps:
//
//	killat STEPS N COMMAND [ARGUMENT...]
//
// STEPS are the system calls that count, separated by commas, of those in the table below; over all threads of the program, not
// in what it starts. It is killed as it enters the N-th, which then has no effect. killat prints what the step was and exits
// with 0, or, when the program has ended before, with 3 if that was well and 4 if it was not.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	exitEnded  = 3
	exitFailed = 4
)

// steps are the system calls that can count.
var steps = map[uint64]string{
	unix.SYS_OPENAT: "open", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite", unix.SYS_FTRUNCATE: "truncate", unix.SYS_FALLOCATE: "allocate",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link",
	unix.SYS_UNLINKAT: "unlink", unix.SYS_SYMLINKAT: "symlink", unix.SYS_MKDIRAT: "mkdir", unix.SYS_FCHMOD: "chmod", unix.SYS_FCHMODAT: "chmod",
	unix.SYS_FCHOWN: "chown", unix.SYS_FCHOWNAT: "chown", unix.SYS_FSETXATTR: "setxattr", unix.SYS_SENDMSG: "sendmsg", unix.SYS_CLONE: "start",
	unix.SYS_PPOLL: "poll",
}

// call is what the kernel tells of a thread that has stopped at a system call: struct ptrace_syscall_info of ptrace(2).
type call struct {
	op   uint8
	_    [7]byte
	_, _ uint64
	nr   uint64
	args [6]uint64
	_    uint64
}

const enters = 1 // call.op: PTRACE_SYSCALL_INFO_ENTRY

func main() {
	// All requests must come from the thread that is the tracer.
	runtime.LockOSThread()
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "killat:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run() (int, error) {
	if len(os.Args) < 4 {
		return 0, errors.New("usage: killat STEPS N COMMAND [ARGUMENT...]")
	}
	left, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return 0, err
	}
	counted := map[string]bool{}
	for name := range strings.SplitSeq(os.Args[1], ",") {
		counted[name] = true
	}
	cmd := exec.Command(os.Args[3], os.Args[4:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	leader := cmd.Process.Pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(leader, &status, 0, nil); err != nil {
		return 0, err
	}
	if err := unix.PtraceSetOptions(leader, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, err
	}
	for thread, signal := leader, 0; ; {
		// A thread that is gone meanwhile cannot be told to go on, and need not.
		if err := unix.PtraceSyscall(thread, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, err
		}
		if thread, err = unix.Wait4(-1, &status, unix.WALL, nil); err != nil {
			return 0, err
		}
		signal = 0
		switch {
		case status.Exited() || status.Signaled():
			if thread == leader {
				return ended(status), nil
			}
		case status.StopSignal() == unix.SIGTRAP|0x80:
			name, what := step(leader, thread)
			if !counted[name] {
				continue
			}
			if left--; left == 0 {
				fmt.Println(name, what)
				return 0, kill(leader)
			}
		case status.StopSignal() != unix.SIGTRAP && status.StopSignal() != unix.SIGSTOP:
			signal = int(status.StopSignal())
		}
	}
}

func ended(status unix.WaitStatus) int {
	if status.Exited() && status.ExitStatus() == 0 {
		return exitEnded
	}
	return exitFailed
}

// kill kills the program and waits until it is gone.
func kill(leader int) error {
	if err := unix.Kill(leader, unix.SIGKILL); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		thread, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if err != nil {
			return err
		}
		if thread == leader && status.Signaled() {
			return nil
		}
	}
}

// step is the name of the step that a thread is about to take, and what it is about; "" for what is none.
func step(leader, thread int) (name, what string) {
	var c call
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), unsafe.Sizeof(c), uintptr(unsafe.Pointer(&c)), 0, 0)
	if errno != 0 || c.op != enters {
		return "", ""
	}
	file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", leader, c.args[0])) // "" where the argument is something else
	switch c.nr {
	case unix.SYS_OPENAT:
		if c.args[2]&(unix.O_CREAT|unix.O_WRONLY|unix.O_RDWR) == 0 {
			return "", ""
		}
	case unix.SYS_WRITE:
		if c.args[0] <= 2 || strings.HasPrefix(file, "anon_inode:") {
			return "", "" // what it prints, and what wakes its own threads
		}
	case unix.SYS_CLONE:
		if c.args[0]&unix.CLONE_THREAD != 0 {
			return "", ""
		}
		file = ""
	}
	return steps[c.nr], file
}
