package mount

import (
	"context"
	"errors"
	"strings"

	"tako.dev/tako/internal/command"
	"tako.dev/tako/internal/reason"
)

// hints are what helps, by the words of mount(8) and swapon(8).
var hints = []struct {
	words string
	code  reason.Code
	hint  string
}{
	{"helper program", reason.MountRefused, "an option that the file system does not take, or the program that mounts it is not installed: nfs-common or nfs-utils, cifs-utils"},
	{"unknown filesystem type", reason.MountRefused, "the kernel does not know it: the program that mounts it (nfs-common or nfs-utils, cifs-utils), or a module of the kernel, is in a package of its own"},
	{"Connection refused", reason.MountRefused, "the server does not serve it"},
	{"Connection timed out", reason.MountRefused, "the server does not answer: `onFailure` or `nofail` are for hosts that go on without it"},
	{"Name or service not known", reason.MountRefused, "no address is known for the server"},
	{"does not exist", reason.MountSourceMissing, ""},
	{"can't find", reason.MountSourceMissing, ""},
	{"write-protected", reason.MountRefused, "the device cannot be written to: options: [ro]"},
	{"Operation not permitted", reason.MountRefused, "run the agent as root; in a container, file systems and swap are its host's"},
	{"permission denied", reason.MountRefused, "run the agent as root; in a container, file systems and swap are its host's"},
	{"Invalid argument", reason.MountRefused, "`dmesg` says what the kernel did not take"},
	{"bad superblock", reason.MountRefused, "it holds no such file system, or a damaged one: `lsblk --fs`, `dmesg`; nothing is ever formatted here"},
}

// toolError is the error of a program that did not do what it was run for.
func toolError(doing string, output []byte, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return reason.Ended(doing, err)
	}
	e := &reason.Error{Code: reason.MountRefused, Doing: doing, Cause: err, Evidence: reason.Clip(output)}
	var exit *command.ExitError
	switch {
	case errors.Is(err, command.ErrStopped):
		e.Code = reason.OperationTimeout
		return e
	case !errors.As(err, &exit):
		e.Code, e.Hint = reason.CommandNotRun, "it is of the package mount on Debian, and util-linux elsewhere"
		return e
	}
	if first, _, _ := strings.Cut(strings.TrimSpace(e.Evidence), "\n"); first != "" {
		e.Cause = errors.New(first)
	}
	for _, h := range hints {
		if strings.Contains(strings.ToLower(e.Evidence), strings.ToLower(h.words)) {
			e.Code, e.Hint = h.code, h.hint
			break
		}
	}
	return e
}
