package disk

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// LockHolder asks the kernel who would keep us from locking a file of the host, without locking it: a process for a person,
// "pid 812 (unattended-upgr)"; "" for nobody, or where there is no such file.
func LockHolder(file string) (string, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", Fault("open", file, err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return "", Fault("ask for the lock on", file, err)
	}
	switch {
	case lock.Type == unix.F_UNLCK:
		return "", nil
	case lock.Pid <= 0:
		return "a process of another container", nil // in a PID namespace that is not below ours
	}
	return ProcessName(int(lock.Pid)), nil
}

// ProcessName is a process for a person: "pid 812 (unattended-upgr)".
func ProcessName(pid int) string {
	text := "pid " + strconv.Itoa(pid)
	if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil {
		text += " (" + reason.Clip(comm) + ")"
	}
	return text
}
