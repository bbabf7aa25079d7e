package watch

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// readEvents gives each read of an event descriptor to take until ctx ends. It waits in the runtime's poller.
func readEvents(ctx context.Context, f *os.File, size int, take func([]byte)) error {
	if err := f.SetReadDeadline(time.Time{}); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + f.Name(), Cause: err}
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// It fails only on a closed file, whose read ends by itself.
		_ = f.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	buf := make([]byte, size)
	for {
		n, err := f.Read(buf)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + f.Name(), Cause: err}
		}
		take(buf[:max(n, 0)])
	}
}

// cString is the text before the first NUL.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
