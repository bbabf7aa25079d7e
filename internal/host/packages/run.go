package packages

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

const (
	// transactionMax bounds what changes packages: half an hour is enough for a distribution upgrade over a slow link.
	transactionMax = 30 * time.Minute
	// questionMax bounds what only asks; a simulation of a thousand packages takes seconds.
	questionMax = 2 * time.Minute
	// updateMax bounds fetching package lists; apt gives up on a silent server after two minutes of its own, per server.
	updateMax = 10 * time.Minute
	// killGrace is how long a transaction that is stopped may tidy up.
	killGrace = 10 * time.Second
	// wakeEvery is how often a wait looks whether its context has ended.
	wakeEvery = 250 * time.Millisecond
	// outputMax bounds what is read of a command's output, its end: a simulation prints about 200 bytes per package.
	outputMax = 4 << 20
)

//go:embed guard.sh
var guard string

// environment is what the tools run with: English words, no questions, the same answer to changed configuration files from
// those who do not ask dpkg (ucf).
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
	"DEBIAN_FRONTEND=noninteractive", "APT_LISTCHANGES_FRONTEND=none", "UCF_FORCE_CONFFOLD=1",
}

// command is one run of a tool.
type command struct {
	args []string // args[0] is a path
	max  time.Duration
	// lasting says that it changes packages: it is guarded, and goes on when the context ends.
	lasting bool
}

// errStopped says that a command did not end in its time and was killed.
var errStopped = errors.New("it took too long and was stopped")

// run runs a command and returns what it printed, on both outputs. The error is nil for exit status 0, an *exitError for
// another, errStopped, the context's, or says that it could not be run.
func run(ctx context.Context, c command) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.lasting {
		c.args = append([]string{"/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", guard, "guard"}, c.args...)
	}
	out, err := memoryFile()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pidfd := -1
	p, err := os.StartProcess(c.args[0], c.args, &os.ProcAttr{
		Dir: "/", Env: environment, Files: []*os.File{null, out, out},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd},
	})
	if err != nil {
		return nil, err
	}
	if pidfd < 0 { // Linux before 5.3
		return nil, errors.Join(errors.ErrUnsupported, p.Kill(), reap(p, true))
	}
	defer unix.Close(pidfd)
	err = wait(ctx, p, pidfd, c)
	text, readErr := tail(out)
	return text, errors.Join(err, readErr)
}

// memoryFile makes a file that goes with its last user.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "output"), nil
}

func tail(f *os.File) ([]byte, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, fi.Size()-outputMax)
	return io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
}

// exitError is an exit status other than 0.
type exitError struct{ state *os.ProcessState }

func (e *exitError) Error() string { return e.state.String() }

// wait waits until a process ends, the context ends, or its time is over.
func wait(ctx context.Context, p *os.Process, pidfd int, c command) error {
	stop := time.Now().Add(c.max)
	signal := unix.SIGKILL
	if c.lasting {
		signal = unix.SIGTERM
	}
	stopped := false
	for {
		ended, err := poll(pidfd)
		switch {
		case err != nil:
			return err
		case ended && stopped:
			return errors.Join(errStopped, reap(p, true))
		case ended:
			return reap(p, false)
		case ctx.Err() != nil && c.lasting:
			return errors.Join(ctx.Err(), p.Release())
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), unix.Kill(-p.Pid, signal), reap(p, true))
		case time.Now().After(stop):
			_ = unix.Kill(-p.Pid, signal) // it may just have ended
			stopped, signal, stop = true, unix.SIGKILL, time.Now().Add(killGrace)
		}
	}
}

// poll waits a moment for a process to end.
func poll(pidfd int) (ended bool, err error) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(wakeEvery.Milliseconds()))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// reap collects a process that has ended or was killed.
func reap(p *os.Process, killed bool) error {
	state, err := p.Wait()
	switch {
	case err != nil:
		return err
	case killed || state.Success():
		return nil
	}
	return &exitError{state}
}

// ended is the error of what its context has ended.
func ended(doing string, err error) *reason.Error {
	code := reason.Interrupted
	if errors.Is(err, context.DeadlineExceeded) {
		code = reason.OperationTimeout
	}
	return &reason.Error{Code: code, Doing: doing, Cause: err}
}

// toolError is the error of a command that did not do what it was run for.
func toolError(doing string, output []byte, err error) error {
	if holder, refused := lockRefusal(output); refused {
		return lockError(doing, holder)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ended(doing, err)
	}
	e := &reason.Error{Code: reason.PackageToolFailed, Doing: doing, Cause: err, Evidence: reason.Clip(output)}
	if errors.Is(err, errStopped) {
		e.Code = reason.OperationTimeout
	} else if said := firstError(output); said != "" {
		e.Cause = errors.New(said)
	}
	return e
}

// firstError is the first line that apt or dpkg marks as an error, "" for none.
func firstError(output []byte) string {
	for line := range bytes.Lines(output) {
		for _, mark := range []string{"E: ", "dpkg: error: ", "dpkg: error processing "} {
			if bytes.HasPrefix(line, []byte(mark)) {
				return reason.Clip(bytes.TrimPrefix(line, []byte("E: ")))
			}
		}
	}
	return ""
}
