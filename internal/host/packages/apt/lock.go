package apt

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tako.dev/tako/internal/disk"
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
		if holder, err := disk.LockHolder(filepath.Join(dir, name)); holder != "" || err != nil {
			return holder, err
		}
	}
	return "", nil
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
				return disk.ProcessName(pid), true
			}
		}
	}
	return "somebody else", true
}

func lockError(holder string) error {
	return &reason.Error{Code: reason.PackageLock, Cause: errors.New("held by " + holder), Holder: holder, After: lockWait}
}
