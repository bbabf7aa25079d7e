package apt

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/host/packages"
	"tako.dev/tako/internal/reason"
)

const (
	// transactionMax bounds what changes packages: half an hour is enough for a distribution upgrade over a slow link.
	transactionMax = 30 * time.Minute
	// questionMax bounds what only asks; a simulation of a thousand packages takes seconds.
	questionMax = 2 * time.Minute
	// updateMax bounds fetching package lists; apt gives up on a silent server after two minutes of its own, per server.
	updateMax = 10 * time.Minute
	// outputMax bounds what is read of a command's output, its end: a simulation prints about 200 bytes per package.
	outputMax = 4 << 20
)

//go:embed guard.sh
var guard string

// environment is what the tools get besides what every tool has: no questions, and the same answer to changed configuration files
// from those who do not ask dpkg (ucf).
func environment(replace bool) []string {
	env := []string{"HOME=/root", "DEBIAN_FRONTEND=noninteractive", "APT_LISTCHANGES_FRONTEND=none"}
	if replace {
		return append(env, "UCF_FORCE_CONFFNEW=1", "UCF_FORCE_CONFFMISS=1")
	}
	return append(env, "UCF_FORCE_CONFFOLD=1")
}

// run runs a tool that only asks, or does something small.
func run(ctx context.Context, limit time.Duration, args ...string) ([]byte, error) {
	return command.Tool{Args: args, Env: environment(false), Limit: limit, Keep: outputMax}.Run(ctx)
}

// feed runs a tool that reads its standard input.
func feed(ctx context.Context, input string, args ...string) ([]byte, error) {
	return command.Tool{Args: args, Env: environment(false), Limit: questionMax, Keep: outputMax, Input: []byte(input)}.Run(ctx)
}

// change runs a tool that changes packages: it is guarded, and goes on when the context ends.
func change(ctx context.Context, replace bool, args ...string) ([]byte, error) {
	args = append([]string{"/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", guard, "guard"}, args...)
	return command.Tool{Args: args, Env: environment(replace), Limit: transactionMax, Keep: outputMax, Lasting: true}.Run(ctx)
}

// toolError is the error of a command that did not do what it was run for; nil where err is.
func toolError(output []byte, err error) error {
	if err == nil {
		return nil
	}
	if holder, refused := lockRefusal(output); refused {
		return lockError(holder)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return packages.Ended(err)
	}
	e := &reason.Error{Code: reason.PackageToolFailed, Cause: err, Evidence: reason.Clip(output)}
	if errors.Is(err, command.ErrStopped) {
		e.Code = reason.OperationTimeout
		return e
	}
	if said := firstError(output); said != "" {
		e.Cause = errors.New(said)
	}
	if isStale(output) {
		e.Code = reason.PackageListsOld
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

// isStale reports whether apt-get could not fetch what its lists name.
func isStale(output []byte) bool {
	return strings.Contains(string(output), "Unable to fetch some archives")
}
