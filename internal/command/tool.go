package command

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// toolGrace is how long a tool's output is waited for after its end, while a child of it holds that open.
const toolGrace = time.Second

// Tool is one run of a program whose ways are known. It runs in /, with no terminal.
type Tool struct {
	Args  []string      // a program without a slash is looked for in Path
	Env   []string      // besides PATH and LC_ALL=C.UTF-8
	Input []byte        // what it reads from its standard input
	Limit time.Duration // it is killed after that time, with its process group
	Keep  int           // bytes of its output that are kept, the last ones
	// As runs it with the rights of a user, and without any group but one. Nil is as the caller.
	As *syscall.Credential
	// Lasting says that it goes on when the context ends, and when the agent does: it would be worse to stop half-way. When its
	// time is over it is asked to end before it is killed.
	Lasting bool
}

// ErrStopped says that a tool did not end in its time and was killed.
var ErrStopped = errors.New("it took too long and was stopped")

// ExitError is an end of a tool other than with exit status 0.
type ExitError struct {
	Status syscall.WaitStatus
	text   string
}

func (e *ExitError) Error() string { return e.text }

// Run runs the tool and returns what is kept of what it printed, on both outputs. The error is nil for exit status 0, an *ExitError for
// another end, ErrStopped, the context's, or says that it could not be run.
func (t Tool) Run(ctx context.Context) ([]byte, error) {
	program, err := Find(t.Args[0])
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.Lasting {
		return t.runLasting(ctx, program)
	}
	limited, cancel := context.WithTimeoutCause(ctx, t.Limit, ErrStopped)
	defer cancel()
	out := &ending{most: t.Keep}
	cmd := exec.CommandContext(limited, program, t.Args[1:]...)
	cmd.Args[0] = t.Args[0]
	cmd.Dir = "/"
	cmd.Env = t.environment()
	if t.Input != nil {
		cmd.Stdin = bytes.NewReader(t.Input)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: t.As}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = toolGrace
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		// It ended well but left a child behind, which still has its group.
		_ = cmd.Cancel()
		return out.last(), nil
	case err != nil && limited.Err() != nil:
		return out.last(), context.Cause(limited)
	case errors.As(err, &exit):
		return out.last(), &ExitError{Status: exit.Sys().(syscall.WaitStatus), text: exit.Error()}
	}
	return out.last(), err
}

func (t Tool) environment() []string {
	return append([]string{"PATH=" + Path, "LC_ALL=C.UTF-8"}, t.Env...)
}

// ending keeps the end of what is written to it, and for a while up to as much again, so that not every write moves it.
type ending struct {
	b    []byte
	most int
}

func (e *ending) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	if len(e.b) > 2*e.most {
		e.b = append(e.b[:0], e.last()...)
	}
	return len(p), nil
}

func (e *ending) last() []byte { return e.b[max(0, len(e.b)-e.most):] }
