package packages

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// lockWait is when to try again after the database was locked. Nothing tells when a lock is given back, and trying costs
// three system calls.
const lockWait = 5 * time.Second

// lockNames are the locks of dpkg and of what runs it, in its directory.
var lockNames = []string{"lock-frontend", "lock"}

// lockHolder says who holds a lock of the database, "" for nobody.
func lockHolder(dir string) (string, error) {
	for _, name := range lockNames {
		pid, err := lockedBy(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if pid != 0 {
			return holderName(pid), nil
		}
	}
	return "", nil
}

// lockedBy asks the kernel who would keep us from locking a file, without locking it. 0 is nobody.
func lockedBy(file string) (pid int, err error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	if lock.Pid == 0 {
		return -1, nil // in a PID namespace that is not below ours
	}
	return int(lock.Pid), nil
}

// holderName is a process for a person: "pid 812 (unattended-upgr)".
func holderName(pid int) string {
	if pid <= 0 {
		return "a process of another container"
	}
	text := "pid " + strconv.Itoa(pid)
	if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil {
		text += " (" + reason.Clip(comm) + ")"
	}
	return text
}

// lockRefusal finds out of what apt or dpkg said that somebody else holds a lock, and who. The words are those of apt's
// fileutl.cc and of dpkg's dbmodify.c.
func lockRefusal(output []byte) (holder string, refused bool) {
	text := string(output)
	if !strings.Contains(text, "Could not get lock ") && !strings.Contains(text, "is locked by another process") &&
		!strings.Contains(text, "was locked by another process") {
		return "", false
	}
	for _, before := range []string{"It is held by process ", "by another process with pid "} {
		if _, rest, ok := strings.Cut(text, before); ok {
			digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
			if pid, err := strconv.Atoi(digits); err == nil {
				return holderName(pid), true
			}
		}
	}
	return "somebody else", true
}

func lockError(doing, holder string) error {
	return &reason.Error{Code: reason.PackageLock, Doing: doing, Cause: errors.New("held by " + holder), Holder: holder, After: lockWait}
}
