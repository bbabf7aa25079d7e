package account

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// toolMax bounds a program: usermod and userdel may go through a large home directory, and all of them wait up to 15 s for a lock.
	toolMax = 10 * time.Minute
	// wakeEvery is how often a wait looks whether its context has ended.
	wakeEvery = 250 * time.Millisecond
	// outputMax bounds what is read of a program's output, its end.
	outputMax = 64 << 10
)

// environment is what the programs run with: English words.
var environment = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C.UTF-8"}

// command is one run of a program.
type command struct {
	args []string // args[0] is a path
	// secret is written to the standard input, and is taken out of the output should it be there.
	secret []byte
	// as runs it with the rights of a user, and without any group but one. Nil is as the agent.
	as *syscall.Credential
}

// tool is the program's name.
func (c *command) tool() string { return path.Base(c.args[0]) }

// errStopped says that a program did not end in its time and was killed.
var errStopped = errors.New("it took too long and was stopped")

// exitError is an exit status other than 0.
type exitError struct{ state *os.ProcessState }

func (e *exitError) Error() string { return e.state.String() }

// run runs a program and returns what it printed, on both outputs. The error is nil for exit status 0, an *exitError for another,
// errStopped, the context's, or says that it could not be run. When the context ends, the program goes on: it is in the middle of
// changing files that it has locked, and input and output are files in memory, which do not break.
func run(ctx context.Context, c *command) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in, err := memoryFile(c.secret)
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
	p, err := os.StartProcess(c.args[0], c.args, &os.ProcAttr{
		Dir: "/", Env: environment, Files: []*os.File{in, out, out},
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd, Credential: c.as},
	})
	if err != nil {
		return nil, err
	}
	if pidfd < 0 { // Linux before 5.3
		return nil, errors.Join(errors.ErrUnsupported, p.Kill(), reap(p, true))
	}
	defer unix.Close(pidfd)
	err = wait(ctx, p, pidfd)
	text, readErr := tail(out)
	if _, hash, _ := bytes.Cut(bytes.TrimSpace(c.secret), []byte(":")); len(hash) > 0 {
		text = bytes.ReplaceAll(text, hash, []byte("(not shown)"))
	}
	return text, errors.Join(err, readErr)
}

// memoryFile makes a file that goes with its last user, holding text from its start.
func memoryFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("account", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "account")
	if _, err := f.WriteAt(text, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func tail(f *os.File) ([]byte, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, fi.Size()-outputMax)
	return io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
}

// wait waits until a process ends, the context ends, or its time is over.
func wait(ctx context.Context, p *os.Process, pidfd int) error {
	stop := time.Now().Add(toolMax)
	for {
		ended, err := poll(pidfd)
		switch {
		case err != nil:
			return err
		case ended:
			return reap(p, false)
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), p.Release())
		case time.Now().After(stop):
			return errors.Join(errStopped, unix.Kill(-p.Pid, unix.SIGKILL), reap(p, true))
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
