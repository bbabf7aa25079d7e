package edit

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
	// These are as for files: a check parses a configuration in a second, and what waits for the network would hold up everything.
	checkTime = 10 * time.Second
	checkHole = "{}"
	outputMax = 8 << 10
)

// runCheck runs a check command on a new content and returns nil if it accepts it. The error is CheckRejected if it does not,
// CheckNotRun, OperationTimeout or Interrupted. What it says of a private content is not kept.
func runCheck(ctx context.Context, path string, check []string, temp string, private bool) error {
	args := make([]string, len(check))
	for i, a := range check {
		args[i] = strings.ReplaceAll(a, checkHole, temp)
	}
	out, err := command.Tool{Args: args, Limit: checkTime, Keep: outputMax}.Run(ctx)
	if err == nil {
		return nil
	}
	const stopped = "the check command was stopped with all that it started"
	doing := "check the new content of"
	failed := &reason.Error{Code: reason.CheckNotRun, Doing: doing + " " + disk.Shown(path), Cause: err, Evidence: reason.Clip(out)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		failed.Code, failed.Hint = reason.OperationTimeout, stopped
	case ctx.Err() != nil:
		failed.Code, failed.Cause, failed.Hint = ended(doing, path, ctx.Err()).Code, ctx.Err(), stopped
	case errors.As(err, &exit) && exit.Status.Exited():
		failed.Code = reason.CheckRejected
	case errors.Is(err, command.ErrNotFound), errors.Is(err, fs.ErrNotExist): // of a name, and of a path
		failed.Hint = "install " + disk.Shown(args[0]) + ", or require the package that brings it"
	}
	if private {
		if failed.Evidence = ""; failed.Hint == "" {
			failed.Hint = "what the check command says is not shown, because only the owner may read the file"
		}
	}
	return failed
}

// commandText is a command for a person.
func commandText(args []string) string {
	shown := make([]string, len(args))
	for i, a := range args {
		shown[i] = disk.Shown(a)
	}
	return strings.Join(shown, " ")
}
