package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tako.dev/tako/internal/reason"
)

// pidName is the file that says who runs a directory.
const pidName = "up.pid"

// claim makes the directory this process's until release. The lock ends with the process, so nobody has to clear up after one that
// was killed.
func claim(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	f, err := os.OpenFile(filepath.Join(dir, pidName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid := owner(dir)
		return nil, errors.Join(&reason.Error{Code: reason.AnotherAgent, Doing: doing, Cause: fmt.Errorf("process %d runs them in %s", pid, dir), Hint: "tako down --dir " + dir + " stops it"}, f.Close())
	}
	text := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: errors.Join(err, f.Close())}
	}
	return func() {
		_ = f.Truncate(0) // nobody runs it any more; the lock says the same
		_ = f.Close()
	}, nil
}

func writeAt(f *os.File, text []byte) error {
	_, err := f.WriteAt(text, 0)
	return err
}

// owner is the process that runs a directory; 0 where none does.
func owner(dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, pidName))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// downMax is how long the other process may take: the agent's and the server's own time to stop, and some.
const downMax = 30 * time.Second

// downPause is how often it is looked whether it has gone. There is no other way to wait for somebody else's process and its lock.
const downPause = 20 * time.Millisecond

// Down stops what runs in a directory; with purge it also removes the directory. A directory in which nothing runs is stopped.
func Down(dir string, purge bool) error {
	f, err := os.Open(filepath.Join(dir, pidName))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(dir); err == nil && purge {
			return &reason.Error{Code: reason.InvalidValue, Doing: "remove " + dir, Cause: errors.New("nothing in it says that tako up made it"), Hint: "remove it yourself, if you are sure"}
		}
		return nil
	}
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "stop what runs in " + dir, Cause: err}
	}
	defer f.Close()
	if err := stop(f, dir); err != nil || !purge {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "remove " + dir, Cause: err}
	}
	return nil
}

// stop asks the process that holds the lock of a directory to end, and waits until it has.
func stop(f *os.File, dir string) error {
	end := time.NewTimer(downMax)
	defer end.Stop()
	asked := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		// Only who holds the lock has written the number, so it is nobody else's.
		if pid := owner(dir); pid > 1 && !asked {
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return &reason.Error{Code: reason.PermissionDenied, Doing: fmt.Sprintf("stop process %d", pid), Cause: err}
			}
			asked = true
		}
		select {
		case <-time.After(downPause):
		case <-end.C:
			return &reason.Error{Code: reason.DeadlineOver, Doing: "stop what runs in " + dir, Cause: fmt.Errorf("process %d has not ended after %s", owner(dir), downMax), Hint: fmt.Sprintf("kill -9 %d ends it at once", owner(dir))}
		}
	}
}
