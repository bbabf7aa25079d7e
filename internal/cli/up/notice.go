package up

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

const (
	// quiet is how long nothing may happen before it is looked: an editor writes a file in several steps.
	quiet = 100 * time.Millisecond
	// quietMax is when it is looked all the same.
	quietMax = time.Second
	// lookEvery is when it is looked although nothing was noticed: a directory may be taken away and come back as another one, and the
	// kernel drops what is noticed too late.
	lookEvery = 10 * time.Second
)

// noticeMask is what changes the content of a directory, or of the files in it.
const noticeMask = unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_ONLYDIR

// notice calls changed after each change in directories, and now and then, until ctx is done. Which directories there are is asked anew before each call, so
// that what comes into a new one is noticed or seen by changed. What changed cannot do is told to warn. Two goroutines run meanwhile.
func notice(ctx context.Context, directories func() []string, changed func(context.Context) error, warn func(error)) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "watch a directory", Cause: err}
	}
	events := os.NewFile(uintptr(fd), "inotify")
	happened, ended := make(chan struct{}, 1), make(chan struct{})
	go func() { // ends when events is closed
		defer close(ended)
		buffer := make([]byte, 64<<10)
		for {
			if _, err := events.Read(buffer); err != nil {
				return
			}
			select {
			case happened <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		_ = events.Close()
		<-ended
	}()
	unwatched := false // it is told once: the next ones are for the same reason
	watch := func() {
		for _, dir := range directories() {
			if _, err := unix.InotifyAddWatch(fd, dir, noticeMask); err != nil && !errors.Is(err, unix.ENOENT) {
				if !unwatched {
					warn(&reason.Error{Code: reason.SystemCallFailed, Doing: "watch " + dir, Cause: err, Hint: "changes in it are seen after " + lookEvery.String()})
				}
				unwatched = true
				return
			}
		}
	}
	watch()
	for first := true; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return nil
			case <-happened:
				settle(ctx, happened)
			case <-time.After(lookEvery):
			}
			watch()
		}
		if err := changed(ctx); err != nil && ctx.Err() == nil {
			warn(err)
		}
	}
}

// settle waits until nothing happens.
func settle(ctx context.Context, happened <-chan struct{}) {
	end := time.NewTimer(quietMax)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-time.After(quiet):
			return
		case <-happened:
		}
	}
}
