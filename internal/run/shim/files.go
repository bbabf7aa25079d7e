package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

// What there is of an attempt in the directory of statuses.
const (
	begunFile   = ".begun"
	runningFile = ".running"
	endedFile   = ".ended"
)

// What there is in the directory of an attempt.
const (
	startFile = "start" // locked while somebody starts the attempt, or settles what became of it
	lockFile  = "lock"  // locked by the shim, as long as that lives
	stopFile  = "stop"  // holds the number of a signal
	killFile  = "kill"
	untilFile = "until" // holds a run.Moment, where that was said anew
	bellFile  = "bell"  // rings when one of these three was put there
	logFile   = "log"
)

const (
	dirMode  = 0o700 // what tasks print may be secret
	fileMode = 0o600
	// statusMax bounds a file of a status: a few numbers and some words.
	statusMax = 4 << 10
)

const (
	// startWait is how long a shim waits for another one that is just starting the same attempt. Who waits longer, as for a program on a
	// network file system that hangs, would be one more that hangs with each time that it is tried.
	startWait = 2 * time.Second
	// holdEvery is how often it looks then: two at once are rare, and a start takes some milliseconds.
	holdEvery = 2 * time.Millisecond
)

// begun is what a shim says before it starts anything.
type begun struct {
	Boot  string
	PID   int    // of the shim
	Since uint64 // when the shim was started, as the kernel counts that: with the number it is one process of this boot
	Group Group  // of the task
}

// running is what a shim says when the program was executed.
type running struct {
	PID     int
	Started run.Moment
}

// ended is how it ended.
type ended struct {
	Boot    string
	Started run.Moment
	Ending  run.Ending
}

// tree is where everything is.
type tree struct{ dir string }

func (t tree) statuses() string              { return filepath.Join(t.dir, "status") }
func (t tree) attempts() string              { return filepath.Join(t.dir, "attempts") }
func (t tree) attempt(id run.ID) string      { return filepath.Join(t.attempts(), id.String()) }
func (t tree) in(id run.ID, f string) string { return filepath.Join(t.attempt(id), f) }
func (t tree) status(id run.ID, kind string) string {
	return filepath.Join(t.statuses(), id.String()+kind)
}

// put puts a file in place as a whole. lasting makes it durable.
func (t tree) put(id run.ID, kind string, what any, lasting bool) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	// Two may write it: a shim, and an agent that finds the shim gone.
	temp := fmt.Sprintf("%s.%d", t.in(id, kind), os.Getpid())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if lasting && err == nil {
		err = disk.Fsync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, t.status(id, kind)); err != nil || !lasting {
		return err
	}
	return syncDir(t.statuses())
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Fsync(int(f.Fd()))
}

// get reads a file of a status; false: there is none.
func (t tree) get(id run.ID, kind string, what any) (bool, error) {
	f, err := os.Open(t.status(id, kind))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, disk.Fault("read", t.status(id, kind), err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, statusMax+1))
	if err == nil {
		err = decode(text, what)
	}
	if err != nil {
		return false, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + t.status(id, kind), Cause: err}
	}
	return true, nil
}

// decode reads the text of a status.
func decode(text []byte, what any) error {
	if len(text) > statusMax {
		return fmt.Errorf("it has more than %d bytes", statusMax)
	}
	if err := json.Unmarshal(text, what); err != nil {
		return err
	}
	switch s := what.(type) {
	case *begun:
		if s.PID <= 0 || s.Boot == "" {
			return errors.New("it names no process")
		}
	case *running:
		if s.PID <= 0 || s.Started < 0 {
			return errors.New("it names no process")
		}
	case *ended:
		if e := s.Ending; e.Cause < run.Exited || e.Cause > run.Lost || e.At < 0 || s.Started < 0 || s.Boot == "" {
			return errors.New("it says of no end")
		}
	}
	return nil
}

// nameOf takes apart the name of a file of a status.
func nameOf(file string) (run.ID, bool) {
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 {
		return run.ID{}, false
	}
	switch file[dot:] {
	case begunFile, runningFile, endedFile:
		id, err := run.ParseID(file[:dot])
		return id, err == nil
	}
	return run.ID{}, false
}

// hold takes the lock of a whole file, of this open file alone: no child has it, and it goes with the last descriptor. It waits for it for
// so long; where somebody else has it then, the error is EAGAIN.
func hold(name string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	for stop := time.Now().Add(wait); ; {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EACCES):
			err = unix.EAGAIN // fcntl(2): either of the two
		}
		if !errors.Is(err, unix.EAGAIN) || !time.Now().Before(stop) {
			return nil, errors.Join(err, f.Close())
		}
		_, _ = unix.Poll(nil, int(holdEvery.Milliseconds()))
	}
}

// held reports whether somebody holds the lock of a file.
func held(name string) (bool, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

// bootNow is the boot that is now.
func bootNow() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// now is the time of the boot clock.
func now() run.Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error()) // cannot fail with a valid clock and pointer
	}
	return run.Moment(ts.Nano())
}
