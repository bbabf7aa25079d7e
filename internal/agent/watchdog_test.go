package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/systemd"
)

// notified is the socket that a service manager reads. It is read without waiting, because waiting for the kernel is none that a bubble sees.
type notified struct {
	t  *testing.T
	fd int
}

// newNotified has this process be one that a service manager watches over.
func newNotified(t *testing.T, interval time.Duration) notified {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was written
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(interval.Microseconds(), 10))
	return notified{t, fd}
}

// alive counts how often it was told since the last time that this process is alive.
func (n notified) alive() (times int) {
	n.t.Helper()
	for {
		text := make([]byte, 100)
		got, _, err := unix.Recvfrom(n.fd, text, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return times
		}
		must(n.t, err)
		if string(text[:got]) != systemd.Watchdog {
			n.t.Errorf("told %q", text[:got])
		}
		times++
	}
}

// TestWatchdogAsksTheLoop: it is the loop that says that it is alive, twice in the interval; while it hangs nothing says so.
func TestWatchdogAsksTheLoop(t *testing.T) {
	const interval = time.Minute
	n := newNotified(t, interval)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &loop{inbox: make(chan func(), inboxSize)}
		over := make(chan error, 2)
		go func() { over <- l.watchdog(ctx) }()
		later := func() int {
			time.Sleep(4*interval + time.Second) // no more than the socket has room for
			synctest.Wait()
			return n.alive()
		}
		if got := later(); got != 0 {
			t.Errorf("told %d times that a loop is alive that has not begun", got)
		}
		go func() {
			for {
				select {
				case f := <-l.inbox:
					f()
				case <-ctx.Done():
					over <- nil
					return
				}
			}
		}()
		synctest.Wait()
		n.alive() // what waited for the loop
		if got := later(); got < 8 || got > 9 {
			t.Errorf("told %d times in four intervals, want 8", got)
		}
		hangs := make(chan struct{})
		l.post(ctx, func() { <-hangs })
		if got := later(); got != 0 {
			t.Errorf("told %d times that a loop is alive that hangs", got)
		}
		close(hangs)
		synctest.Wait()
		n.alive()
		if got := later(); got < 8 || got > 9 {
			t.Errorf("told %d times in four intervals after it hung, want 8", got)
		}
		cancel()
		if err := errors.Join(<-over, <-over); err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestWatchdogOfSomebodyElse: where no service manager watches, or over another process, nothing is told and nothing wakes up.
func TestWatchdogOfSomebodyElse(t *testing.T) {
	n := newNotified(t, time.Minute)
	for variable, value := range map[string]string{"WATCHDOG_USEC": "", "WATCHDOG_PID": "1"} {
		t.Run(fmt.Sprint(variable, "=", value), func(t *testing.T) {
			t.Setenv(variable, value)
			if err := (&loop{}).watchdog(t.Context()); err != nil || n.alive() != 0 {
				t.Errorf("ended with %v", err)
			}
		})
	}
}
