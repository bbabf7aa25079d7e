package file

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
	// checkTime bounds a check command: one that parses a configuration takes a second, one that waits for the network
	// would hold up everything.
	checkTime = 10 * time.Second
	// checkHole is what stands for the path of the new content in a check command.
	checkHole = "{}"
	// outputMax is what is kept of a command's output, its end; more than an error carries, so that it says it was cut.
	outputMax = 8 << 10
)

// runCheck runs a check command on a file and returns nil if it accepts it. The error is CheckRejected if it does not,
// CheckNotRun, OperationTimeout or Interrupted.
func runCheck(ctx context.Context, r *resource, temp string) error {
	args := make([]string, len(r.check))
	for i, a := range r.check {
		args[i] = strings.ReplaceAll(a, checkHole, temp)
	}
	out, err := command.Tool{Args: args, Limit: checkTime, Keep: outputMax}.Run(ctx)
	if err == nil {
		return nil
	}
	failed := &reason.Error{Code: reason.CheckNotRun, Doing: "check the new content of " + disk.Shown(r.path), Cause: err, Evidence: reason.Clip(out)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		failed.Code, failed.Hint = reason.OperationTimeout, endedHint
	case ctx.Err() != nil:
		failed.Code, failed.Cause, failed.Hint = ended("check the new content of", r.path, ctx.Err()).Code, ctx.Err(), endedHint
	case errors.As(err, &exit) && exit.Status.Exited():
		failed.Code = reason.CheckRejected
	case errors.Is(err, command.ErrNotFound), errors.Is(err, fs.ErrNotExist): // of a name, and of a path
		failed.Hint = "install " + disk.Shown(args[0]) + ", or require the package that brings it"
	}
	return failed
}

const endedHint = "the check command was stopped with all that it started"

// commandText is a command for a person.
func commandText(args []string) string {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = disk.Shown(a)
	}
	return strings.Join(shown, " ")
}
