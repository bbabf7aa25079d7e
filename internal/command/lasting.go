package command

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lastingGrace is how long a lasting tool that is stopped may tidy up.
	lastingGrace = 10 * time.Second
	// wakeEvery is how often a wait looks whether its context has ended.
	wakeEvery = 250 * time.Millisecond
)

// runLasting runs a tool that outlives the agent: its input and output are files in memory, not pipes that break.
func (t Tool) runLasting(ctx context.Context, program string) ([]byte, error) {
	in, err := memoryFile(t.Input)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := memoryFile(nil)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	pidfd := -1
	p, err := os.StartProcess(program, t.Args, &os.ProcAttr{
		Dir: "/", Env: t.environment(), Files: []*os.File{in, out, out},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd, Credential: t.As},
	})
	if err != nil {
		return nil, err
	}
	if pidfd < 0 { // Linux before 5.3
		return nil, errors.Join(errors.ErrUnsupported, p.Kill(), reap(p, true))
	}
	defer unix.Close(pidfd)
	err = await(ctx, p, pidfd, t.Limit)
	text, readErr := tail(out, int64(t.Keep))
	return text, errors.Join(err, readErr)
}

// memoryFile makes a file that goes with its last user, holding text from its start.
func memoryFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("tool", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "tool")
	if _, err := f.WriteAt(text, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func tail(f *os.File, most int64) ([]byte, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, fi.Size()-most)
	return io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
}

// await waits until a process ends, the context ends, or its time is over.
func await(ctx context.Context, p *os.Process, pidfd int, limit time.Duration) error {
	stop, signal, stopped := time.Now().Add(limit), unix.SIGTERM, false
	for {
		ended, err := poll(pidfd)
		switch {
		case err != nil:
			return err
		case ended && stopped:
			return errors.Join(ErrStopped, reap(p, true))
		case ended:
			return reap(p, false)
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), p.Release())
		case time.Now().After(stop):
			_ = unix.Kill(-p.Pid, signal) // it may just have ended
			stopped, signal, stop = true, unix.SIGKILL, time.Now().Add(lastingGrace)
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
	return &ExitError{Status: state.Sys().(syscall.WaitStatus), text: state.String()}
}
