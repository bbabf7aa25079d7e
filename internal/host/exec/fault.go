package exec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// secretBytesMin is how long the value of a variable must be to be taken out of what is shown: a shorter one is a word of many outputs.
const secretBytesMin = 6

// scrubber takes the values of variables out of what a command has printed, for they may be secrets.
func scrubber(e *declare.Exec) *strings.Replacer {
	var pairs []string
	for _, name := range namesByLength(e.Environment) {
		if value := e.Environment[name]; len(value) >= secretBytesMin {
			pairs = append(pairs, value, "$"+name)
		}
	}
	return strings.NewReplacer(pairs...)
}

// failure is the error of a command that has run and did not succeed.
func (r *resource) failure(e *declare.Exec, end command.Ending) error {
	f := &reason.Error{Code: reason.CommandFailed, Doing: r.doing(), Cause: errors.New(statusText(end.Status)), Evidence: end.Output.Text(scrubber(e))}
	if end.Stopped {
		f.Code, f.Cause = reason.OperationTimeout, fmt.Errorf("it was ended after %v, with all that it had started", e.TimeoutOrDefault())
		f.Hint = "a longer `timeout`, if it needs more; it has no input, so it may wait for an answer that nobody gives"
	}
	return f
}

// notRun is the error of a command that did not run to its end by itself.
func (r *resource) notRun(e *declare.Exec, end command.Ending, err error) error {
	var start *command.StartError
	switch {
	case errors.As(err, &start):
		return r.notStarted(e.Command[0], e, start)
	case errors.Is(err, command.ErrSurvived):
		return &reason.Error{Code: reason.OperationTimeout, Doing: r.doing(), Cause: err, Evidence: end.Output.Text(scrubber(e))}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		f := reason.Ended(r.doing(), err)
		f.Hint = "it was ended with all that it had started, and runs again"
		return f
	}
	return &reason.Error{Code: reason.CommandNotRun, Doing: r.doing(), Cause: err, Evidence: end.Output.Text(scrubber(e))}
}

func (r *resource) notStarted(program string, e *declare.Exec, err *command.StartError) error {
	f := &reason.Error{Code: reason.CommandNotRun, Doing: r.doing(), Cause: fmt.Errorf("%s %s: %w", err.Doing, disk.Shown(program), err.Err)}
	who := e.User
	if who == "" {
		who = "root"
	}
	switch {
	case err.Doing == "enter":
		f.Cause = fmt.Errorf("enter directory %s: %w", disk.Shown(e.DirectoryOrDefault()), err.Err)
		f.Hint = "declare the directory too"
	case err.Doing == "find":
		f.Cause = fmt.Errorf("%s is in none of %s", disk.Shown(program), command.Path)
		f.Hint = "require the package that brings it, or give its whole path"
	case errors.Is(err, unix.ENOENT) && isThere(program):
		f.Hint = "the interpreter that its first line names is not there"
	case errors.Is(err, unix.ENOENT):
		f.Hint = "require the package or the file that brings it"
	case errors.Is(err, unix.EACCES):
		f.Hint = disk.Shown(who) + " must be allowed to execute it and to enter " + disk.Shown(e.DirectoryOrDefault()) + "; its mode, or a noexec mount, may be in the way"
	case errors.Is(err, unix.ENOEXEC):
		f.Hint = "a script begins with a line such as #!/bin/sh"
	}
	return f
}

// statusText says how a process ended.
func statusText(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "it was ended by signal " + unix.SignalName(s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// commandTextMax bounds what is shown of a command, bytes: a line.
const commandTextMax = 160

// commandText is a command for a person.
func commandText(args []string) string {
	shown := make([]string, len(args))
	for i, a := range args {
		if shown[i] = disk.Shown(a); a == "" || strings.ContainsAny(a, " \t\"'$;&|<>*?()#") && shown[i] == a {
			shown[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	text := strings.Join(shown, " ")
	if len(text) > commandTextMax {
		text = strings.ToValidUTF8(text[:commandTextMax], "") + "…"
	}
	return text
}
