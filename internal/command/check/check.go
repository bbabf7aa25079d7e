// Package check asks the check command of a declared file whether it accepts a new content, before that gets the file's name.
//
// The package starts no goroutine.
package check

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// limit bounds a check command: one that parses a configuration takes a second, one that waits for the network would hold up everything.
	limit = 10 * time.Second
	// hole is what stands for the path of the new content in a check command.
	hole = "{}"
	// outputMax is what is kept of a command's output, its end; more than an error carries, so that it says it was cut.
	outputMax = 8 << 10
)

// Question is what a check command is asked.
type Question struct {
	Command []string // with {} where the path of the new content belongs
	Path    string   // of the file that is to have the content: for a person
	Content string   // path of the file that has it now
	Private bool     // what the command says may quote the content, and is not kept
}

// Run asks, and returns nil if the content is accepted. The error is CheckRejected if it is not, CheckNotRun, OperationTimeout or Interrupted.
func Run(ctx context.Context, q Question) error {
	args := make([]string, len(q.Command))
	for i, a := range q.Command {
		args[i] = strings.ReplaceAll(a, hole, q.Content)
	}
	out, err := command.Tool{Args: args, Limit: limit, Keep: outputMax}.Run(ctx)
	if err == nil {
		return nil
	}
	const stopped = "the check command was stopped with all that it started"
	failed := &reason.Error{Code: reason.CheckNotRun, Doing: "check the new content of " + disk.Shown(q.Path), Cause: err, Evidence: reason.Clip(out)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		failed.Code, failed.Hint = reason.OperationTimeout, stopped
	case ctx.Err() != nil:
		failed.Code, failed.Cause, failed.Hint = reason.Ended(failed.Doing, ctx.Err()).Code, ctx.Err(), stopped
	case errors.As(err, &exit) && exit.Status.Exited():
		failed.Code = reason.CheckRejected
	case errors.Is(err, command.ErrNotFound), errors.Is(err, fs.ErrNotExist): // of a name, and of a path
		failed.Hint = "install " + disk.Shown(args[0]) + ", or require the package that brings it"
	}
	if q.Private {
		if failed.Evidence = ""; failed.Hint == "" {
			failed.Hint = "what the check command says is not shown, because only the owner may read the file"
		}
	}
	return failed
}

// Shown is a check command for a person.
func Shown(args []string) string {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = disk.Shown(a)
	}
	return strings.Join(shown, " ")
}
