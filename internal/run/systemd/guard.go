package systemd

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/run"
	"tako.dev/tako/internal/run/bell"
)

const (
	// untilMax bounds the text of a moment.
	untilMax = 32
	// endEvery is how often a task is killed that may run no longer, until its end was written down: it may just be starting.
	endEvery = 100 * time.Millisecond
)

// limit notes until when an attempt may run.
func (t tree) limit(id run.ID, until run.Moment) error {
	const fresh = ".new"
	if err := write(t.in(id, untilFile+fresh), []byte(strconv.FormatInt(int64(until), 10)), fileMode); err != nil {
		return err
	}
	if err := os.Rename(t.in(id, untilFile+fresh), t.in(id, untilFile)); err != nil {
		return err
	}
	return bell.Ring(t.in(id, bellFile))
}

// until is until when an attempt may run; 0: for ever.
func (t tree) until(id run.ID) (until run.Moment, err error) {
	_, err = read(t.in(id, untilFile), untilMax, func(text []byte) error {
		n, err := strconv.ParseInt(string(text), 10, 64)
		until = run.Moment(max(n, 0))
		return err
	})
	return until, err
}

// guard waits until an attempt has ended, and ends it when it may run no longer. It needs nobody: neither the agent nor systemd. systemd ends the
// rest of the unit when the first process has ended.
func guard(t tree, id run.ID) error {
	asks, err := bell.Listen(t.in(id, bellFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed
	}
	if err != nil {
		return err
	}
	// The boot clock goes on while the machine sleeps.
	alarm, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	for {
		if over, err := t.over(id); over || err != nil {
			return err
		}
		until, err := t.until(id)
		if err != nil {
			return err
		}
		wait := -1
		if until != 0 && now() >= until {
			wait = int(endEvery.Milliseconds())
			t.end(id)
		}
		if err := unix.TimerfdSettime(alarm, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(until))}, nil); err != nil {
			return os.NewSyscallError("timerfd_settime", err)
		}
		if wait > 0 {
			_, _ = unix.Poll(nil, wait) // a signal only ends it sooner
			continue
		}
		awake(asks, alarm)
	}
}

// awake waits until a bell rings or a timer is over, and takes that.
func awake(asks, alarm int) {
	fds := []unix.PollFd{{Fd: int32(asks), Events: unix.POLLIN}, {Fd: int32(alarm), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil {
		return // a signal: look round
	}
	bell.Quiet(asks)
	var times [8]byte
	_, _ = unix.Read(alarm, times[:]) // it does not block
}

// over reports whether an attempt has ended, or is forgotten.
func (t tree) over(id run.ID) (bool, error) {
	if !t.has(id, "") {
		return true, nil
	}
	_, err := os.Lstat(t.status(id, endedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// end kills the first process of an attempt. One that has none yet does not begin any more.
func (t tree) end(id run.ID) {
	var b begun
	if there, err := t.get(id, begunFile, &b); err != nil || !there {
		return
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(b.PID) + "/cgroup")
	if err != nil || path.Base(nameOfGroup(text)) != unitOf(id) {
		return // its number is another's by now
	}
	_ = t.mark(id, killFile) // it only says more of the end
	_ = unix.Kill(b.PID, unix.SIGKILL)
}
