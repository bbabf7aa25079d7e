package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// checkTime bounds a check command: one that parses a configuration takes a second, one that waits for the network
	// would hold up everything.
	checkTime = 10 * time.Second
	// checkGrace is how long a command's output is waited for after its end, while a child of it holds that open.
	checkGrace = time.Second
	// checkPath is where Debian has programs, whatever the agent was started with.
	checkPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// checkHole is what stands for the path of the new content in a check command.
	checkHole = "{}"
	// outputMax is what is kept of a command's output, its end; more than an error carries, so that it says it was cut.
	outputMax = 8 << 10
)

// runCheck runs a check command on a file and returns nil if it accepts it. The error is CheckRejected if it does not,
// CheckNotRun, OperationTimeout or Interrupted.
func runCheck(ctx context.Context, r *resource, temp string) error {
	fault := func(code reason.Code, cause error, hint string) *reason.Error {
		return &reason.Error{Code: code, Doing: "check the new content of " + disk.Shown(r.path), Cause: cause, Hint: hint}
	}
	args := make([]string, len(r.check))
	for i, a := range r.check {
		args[i] = strings.ReplaceAll(a, checkHole, temp)
	}
	program, err := lookUp(args[0])
	if err != nil {
		return fault(reason.CheckNotRun, err, "install "+disk.Shown(args[0])+", or require the package that brings it")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	out := &ending{}
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Args[0] = args[0]
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + checkPath, "LC_ALL=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = checkGrace
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// It ended well but left a child behind, which still has its group.
		_ = cmd.Cancel()
		err = nil
	}
	if err == nil {
		return nil
	}
	failed := fault(reason.CheckNotRun, err, "")
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		failed = ended("check the new content of", r.path, ctx.Err())
		failed.Hint = "the check command was stopped with all that it started"
	case errors.As(err, &exit) && exit.Exited():
		failed.Code = reason.CheckRejected
	}
	failed.Evidence = reason.Clip(out.b)
	return failed
}

// lookUp finds a program by name in checkPath, or takes a path as it is.
func lookUp(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(checkPath) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", &fs.PathError{Op: "find", Path: name, Err: exec.ErrNotFound}
}

// ending keeps the end of what is written to it.
type ending struct{ b []byte }

func (e *ending) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	if over := len(e.b) - outputMax; over > 0 {
		e.b = append(e.b[:0], e.b[over:]...)
	}
	return len(p), nil
}

// commandText is a command for a person.
func commandText(args []string) string {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = disk.Shown(a)
	}
	return strings.Join(shown, " ")
}
