package cases_test

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writing are the system calls at which an agent is killed: those after which more of its work would outlive it. write(2) is
// left to the runtime, standard output and content that is synced afterwards; the directories of the state are made by mkdir(2) each time.
func writing() []uint64 {
	return []uint64{unix.SYS_PWRITE64, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_SYMLINKAT, unix.SYS_FSYNC,
		unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}
}

// killAt runs a command and kills it, all threads together, when it is about to make its nth system call of some. It
// reports whether there were as many. strace counts for each thread, and a Go program has several, so it is done by hand; the counts of two
// runs may differ by a few, as goroutines race.
func killAt(cmd *exec.Cmd, calls []uint64, nth int) (killed bool, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a tracer is a thread; it ends with the goroutine, which does not unlock it
		killed, err = traced(cmd, calls, nth)
	}()
	<-done
	return killed, err
}

func traced(cmd *exec.Cmd, calls []uint64, nth int) (bool, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	leader := cmd.Process.Pid
	var status unix.WaitStatus
	// Of its process group only: this thread may have other children, which belong to other tests.
	if _, err := unix.Wait4(leader, &status, unix.WALL|unix.WNOTHREAD, nil); err != nil {
		return false, err
	}
	if err := unix.PtraceSetOptions(leader, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEFORK|unix.PTRACE_O_TRACEVFORK|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return false, err
	}
	if err := unix.PtraceSyscall(leader, 0); err != nil {
		return false, err
	}
	for count := 0; ; {
		pid, err := unix.Wait4(-leader, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil {
			return false, err
		}
		signal := 0
		switch {
		case status.Exited() || status.Signaled():
			if pid == leader {
				return false, nil
			}
			continue
		case status.StopSignal() == unix.SIGTRAP|0x80: // a system call, see ptrace(2), PTRACE_O_TRACESYSGOOD
			if nr, entry := syscallOf(pid); entry && slices.Contains(calls, nr) {
				if count++; count == nth {
					return true, killAndReap(leader)
				}
			}
		case status.StopSignal() != unix.SIGTRAP && status.StopSignal() != unix.SIGSTOP:
			signal = int(status.StopSignal())
		}
		if err := unix.PtraceSyscall(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return false, err
		}
	}
}

// killAndReap kills a process and waits until its last thread is gone.
func killAndReap(leader int) error {
	if err := unix.Kill(leader, unix.SIGKILL); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-leader, &status, unix.WALL|unix.WNOTHREAD, nil)
		if err != nil || pid == leader && (status.Exited() || status.Signaled()) {
			return err
		}
	}
}

// syscallOf tells which system call a stopped thread makes, and whether it is about to, see ptrace(2), PTRACE_GET_SYSCALL_INFO.
func syscallOf(pid int) (nr uint64, entry bool) {
	const (
		opEntry  = 1  // PTRACE_SYSCALL_INFO_ENTRY
		numberAt = 24 // of the number in struct ptrace_syscall_info
	)
	var info [88]byte
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(pid), uintptr(len(info)), uintptr(unsafe.Pointer(&info)), 0, 0)
	return binary.NativeEndian.Uint64(info[numberAt:]), errno == 0 && info[0] == opEntry
}

// killEverywhere converges again and again, and kills the agent at its first, second, ... last system call that writes;
// after each kill, look looks. It returns how often it was killed; the last converge came to its end.
func (s *sandbox) killEverywhere(arrange func(), look func(nth int)) (kills int) {
	s.Helper()
	const callsMax = 1000
	for nth := 1; nth <= callsMax; nth++ {
		arrange()
		killed, err := killAt(s.command(s.Context(), "converge", "-f", s.conf), writing(), nth)
		if err != nil {
			if errors.Is(err, unix.EPERM) {
				s.Skipf("needs permission to trace: %v", err)
			}
			s.Fatalf("trace the agent: %v", err)
		}
		if !killed {
			return kills
		}
		kills++
		look(nth)
	}
	s.Fatalf("killed at more than %d calls", callsMax)
	return kills
}

func TestKillAt(t *testing.T) {
	s := newSandbox(t)
	s.declare(file("motd", "/motd", "declared\n"))
	if killed, err := killAt(s.command(t.Context(), "converge", "-f", s.conf), writing(), 1); err != nil || !killed || s.sight("/motd") != "absent" {
		t.Errorf("at the first call: killed %t, %v; the file is %s", killed, err, s.sight("/motd"))
	}
	if killed, err := killAt(s.command(t.Context(), "converge", "-f", s.conf), writing(), 100_000); err != nil || killed || s.read("/motd") != "declared\n" {
		t.Errorf("at no call: killed %t, %v; the file is %s", killed, err, s.sight("/motd"))
	}
}
