package local

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/hold"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/reason"
)

// SetHold keeps something of this host as it is, from when it returns until the hold ends, in the place of the hold of the same config and
// claim. It is the host's own: no server knows of it before it is reported. An agent need not run. The error is HoldInvalid, or that of the
// state directory.
func SetHold(ctx context.Context, stateDir string, h report.Hold) error {
	_, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "hold", Hold: &h})
	if !reason.Is(err, reason.AgentNotRunning) {
		return err
	}
	st, err := store.Open(stateDir, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(hold.Set(st, h), st.Close())
}

// EndHolds ends the host's own hold of a config and a claim before its time, or, where both are empty, all of them. It returns those that
// have not ended by themselves.
func EndHolds(ctx context.Context, stateDir, config, claim string) ([]report.Hold, error) {
	r, err := socket.Ask[Reply](ctx, stateDir, Request{Do: "resume", Hold: &report.Hold{Config: config, Claim: claim}})
	if !reason.Is(err, reason.AgentNotRunning) {
		return r.Holds, err
	}
	st, err := store.Open(stateDir, time.Now())
	if err != nil {
		return nil, err
	}
	ended, err := hold.End(st, report.Hold{Config: config, Claim: claim})
	return ended, errors.Join(err, st.Close())
}
