package host

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostNamespaces are what a host has of its own.
const hostNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP

// onOwnThread runs f on an operating system thread that nobody else uses and that ends with f, and waits for it. So f may
// take its thread to other namespaces, and processes that f starts can die with the thread.
//
// The runtime ends a thread whose goroutine ends without unlocking it. The first thread of a process cannot end; a
// goroutine that happens to be on it keeps it busy while another one gets a better thread.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// StartBound starts a command that dies with this process, whatever kills that, and calls wait, which waits for its end, in a goroutine of
// its own.
//
// The kernel binds a process to the thread that has started it. The goroutine keeps that thread meanwhile: any other could become
// the one of onOwnThread, and end.
func StartBound(cmd *exec.Cmd, wait func()) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}

// startInside starts the command in all namespaces of the process leader. It is a child of this process, not of a helper
// that enters on its behalf, so it gets signals and is reaped like any other.
func startInside(leader int, cmd *exec.Cmd) (err error) {
	onOwnThread(func() {
		if err = enter(leader); err == nil {
			err = cmd.Start()
		}
	})
	return err
}

// enter takes the calling thread to the namespaces of the process leader; only children that it starts then are in the PID
// namespace (setns(2)).
func enter(leader int) error {
	pidfd, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", leader, err)
	}
	defer unix.Close(pidfd)
	// A thread that shares its root and working directory with others may not enter a mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare file system attributes: %w", err)
	}
	if err := unix.Setns(pidfd, hostNamespaces); err != nil {
		return fmt.Errorf("enter namespaces of process %d: %w", leader, err)
	}
	return nil
}
