package systemd

import (
	"context"
	"io"
	"os/exec"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
)

// journalMax bounds what is read of the journal: ten lines may be long.
const journalMax = 64 << 10

// journalTail returns the last lines that a unit logged since begin, "" where the journal cannot be read: evidence helps,
// its absence is not an error. Ten lines are what `systemctl status` shows.
func journalTail(ctx context.Context, unit string, begin time.Time) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "journalctl", "--unit="+unit, "--since=@"+strconv.FormatInt(begin.Unix(), 10),
		"--lines=10", "--output=cat", "--no-pager", "--quiet")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return ""
	}
	if err := cmd.Start(); err != nil {
		return "" // no journalctl
	}
	out, _ := io.ReadAll(io.LimitReader(pipe, journalMax)) // what was read until an error is still evidence
	cancel()
	_ = cmd.Wait() // killed, or done; its output is what counts
	return reason.Clip(out)
}
