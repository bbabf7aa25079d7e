package observe

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
)

// Log says which part of a log is wanted.
type Log struct {
	Unit  string
	Lines int       // at most
	Since time.Time // zero: from the beginning
}

// Logs writes what a unit has logged, as Journal does; false where this host has no journal. clean takes out what is secret.
func Logs(ctx context.Context, w io.Writer, what Log, clean func(string) string) (there bool, err error) {
	journalctl, err := exec.LookPath("journalctl")
	if err != nil {
		return false, nil
	}
	// Without --since: with it, journalctl up to systemd 253 shows the first lines and not the last.
	args := []string{"--unit=" + what.Unit, "--lines=" + strconv.Itoa(what.Lines), "--output=json", "--no-pager", "--quiet"}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, journalctl, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return true, &reason.Error{Code: reason.SystemCallFailed, Doing: "run journalctl", Cause: err}
	}
	err = Journal(w, pipe, what.Since, clean)
	cancel()
	_ = cmd.Wait() // killed, or done; what it wrote is what counts
	return true, err
}
