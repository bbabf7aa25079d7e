package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/systemd"
)

// The pace of an audit: 256 resources every 50 ms take half a minute for 100,000, beside everything else.
const (
	auditChunk = 256
	auditPause = 50 * time.Millisecond
)

// audit looks at everything once in an interval, give or take a tenth so that hosts that started together spread. It reads the facts anew, too: of some,
// such as the zone, nothing tells that they have changed, and what tells of others may have failed.
func (l *loop) audit(ctx context.Context) error {
	if l.opts.Audit == 0 {
		return nil
	}
	for {
		jitter := time.Duration(rand.Int64N(int64(l.opts.Audit)/5 + 1))
		if !clock.Pause(ctx, l.opts.Audit*9/10+jitter) {
			return nil
		}
		l.post(ctx, func() { l.observe(ctx) })
		if err := l.auditOnce(ctx); err != nil {
			return err
		}
	}
}

func (l *loop) auditOnce(ctx context.Context) error {
	for from := 0; ; from += auditChunk {
		more, err := ask(ctx, l, func() (bool, error) {
			upto := min(from+auditChunk, len(l.parts))
			if from >= upto {
				return false, nil
			}
			ids := make([]converge.ID, 0, upto-from)
			for id := from; id < upto; id++ {
				ids = append(ids, converge.ID(id))
			}
			l.step(ctx, converge.Examine{IDs: ids, Depth: converge.Deep})
			return true, nil
		})
		if err != nil || !more || !clock.Pause(ctx, auditPause) {
			return err
		}
	}
}

// watchdog tells systemd that the loop is alive, from inside the loop, twice in the interval that systemd asks for.
func (l *loop) watchdog(ctx context.Context) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return err
	}
	for clock.Pause(ctx, interval/2) {
		l.post(ctx, func() {
			if err := systemd.Notify(systemd.Watchdog); err != nil {
				l.book.Trouble("tell the watchdog", err)
			}
		})
	}
	return nil
}
