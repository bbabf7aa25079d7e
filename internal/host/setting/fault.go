package setting

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// refused is the error of what the kernel did not take.
func refused(doing string, err error) error {
	e := &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: err}
	switch {
	case errors.Is(err, unix.EROFS), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		e.Code = reason.SettingRefused
		e.Hint = "run the agent as root; in a container, settings of the kernel are those of its host, and what starts the container sets them"
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.EDOM):
		e.Code, e.Hint = reason.SettingRefused, "the kernel takes no such value: see its documentation, or what the value is now"
	}
	return e
}

// toolError is the error of a program that did not do what it was run for.
func toolError(doing string, output []byte, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return reason.Ended(doing, err)
	}
	e := &reason.Error{Code: reason.CommandFailed, Doing: doing, Cause: err, Evidence: reason.Clip(output)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		e.Code = reason.OperationTimeout
	case errors.As(err, &exit):
		if first, _, _ := strings.Cut(strings.TrimSpace(e.Evidence), "\n"); first != "" {
			e.Cause = errors.New(first)
		}
	default:
		e.Code = reason.CommandNotRun
	}
	return e
}

// shown is a text of a file or the kernel for a person.
func shown(s string) string { return disk.Shown(s) }

// unmarshal reads what an original has kept.
func unmarshal(doing string, original []byte, into any) error {
	if err := json.Unmarshal(original, into); err != nil {
		return &reason.Error{Code: reason.RestoreLost, Doing: "undo: " + doing, Cause: err}
	}
	return nil
}
