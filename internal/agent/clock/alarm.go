package clock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Alarm tells when clocks show a time, or were set. Set and Close belong to one goroutine, which is not that of Run.
type Alarm struct {
	timer *os.File
	rings chan struct{} // room for one
}

// NewAlarm makes an alarm that is not set.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, failed("make a timer", err)
	}
	return &Alarm{timer: os.NewFile(uintptr(fd), "timer"), rings: make(chan struct{}, 1)}, nil
}

func failed(doing string, err error) error {
	return &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: err}
}

// Rings has something when clocks show the time that was set, when they were set while there was one, and sometimes when neither is so.
func (a *Alarm) Rings() <-chan struct{} { return a.rings }

// Set has the alarm ring at a time, and not at the one before any more; at none for zero. One that is over rings at once.
func (a *Alarm) Set(at time.Time) error {
	var spec unix.ItimerSpec
	if !at.IsZero() {
		// Zero would be no time at all, timerfd_create(2).
		spec.Value = unix.NsecToTimespec(max(at.UnixNano(), 1))
	}
	conn, err := a.timer.SyscallConn()
	if err != nil {
		return failed("set a timer", err)
	}
	var set error
	err = conn.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &spec, nil)
	})
	switch err := errors.Join(err, set); {
	case errors.Is(err, unix.ECANCELED): // it is set, and clocks were since the last time
		a.ring()
	case err != nil:
		return failed("set a timer", err)
	}
	return nil
}

func (a *Alarm) ring() {
	select {
	case a.rings <- struct{}{}:
	default:
	}
}

// Run lets the alarm ring until the context ends.
func (a *Alarm) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.timer.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var times [8]byte // how often, which is once
	for {
		_, err := a.timer.Read(times[:])
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ECANCELED):
			return failed("wait for a timer", err)
		}
		a.ring()
	}
}

// Close gives the timer back, after Run.
func (a *Alarm) Close() error { return a.timer.Close() }
