package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// upkeepPause is the longest between two looks at the certificate: a clock that is set moves its end.
const upkeepPause = time.Hour

// keepUp asks for trust documents when there may be later ones, and renews the relay's certificate at two thirds of its life, also when it
// has expired.
func (r *Relay) keepUp(ctx context.Context, random *rand.Rand) {
	var backoff core.Backoff
	wanted, notBefore := true, time.Time{} // documents may have come while the relay was away
	for ctx.Err() == nil {
		due := time.Now().Add(upkeepPause)
		if at := r.renewalDue(); at.Before(due) {
			due = at
		}
		if wanted {
			due = time.Now()
		}
		if due.Before(notBefore) {
			due = notBefore
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.trusted:
			timer.Stop()
			wanted = true
			continue
		case <-timer.C:
		}
		err := r.extend(ctx)
		if wanted = err != nil; err == nil && !time.Now().Before(r.renewalDue()) {
			err = r.renew(ctx)
		}
		notBefore = time.Now().Add(time.Second)
		if err == nil {
			backoff.Reset()
			continue
		}
		if ctx.Err() == nil {
			r.opts.Log.Warn("renew what the relay believes, or its certificate", "err", err, "hint", reason.Of(err).Hint)
		}
		notBefore = time.Now().Add(max(backoff.Next(random), client.PauseOf(err)))
	}
}

func (r *Relay) renewalDue() time.Time {
	cert, err := r.opts.Identity.Certificate()
	if err != nil {
		return time.Now().Add(time.Minute) // every call says so
	}
	return trust.RenewAt(cert.Leaf)
}

// extend asks for later trust documents.
func (r *Relay) extend(ctx context.Context) error {
	chain := r.opts.Identity.Trust()
	documents, err := r.servers.current().Trust(ctx, chain.Current().Number)
	if err != nil || len(documents) == 0 {
		return err
	}
	longer, err := chain.Extend(documents)
	if err != nil {
		return err
	}
	if err := r.opts.Identity.Extend(longer); err != nil {
		return err
	}
	r.opts.Log.Info("trust documents have been extended", "number", longer.Current().Number)
	r.agents.changes() // hosts are told of it
	return nil
}

// renew asks for a new certificate, and has the next connections use it.
func (r *Relay) renew(ctx context.Context) error {
	request, err := r.opts.Identity.Request()
	if err != nil {
		return err
	}
	c, err := r.servers.current().Renew(ctx, wire.RenewRequest{Protocol: wire.Protocol, Request: request})
	if err != nil {
		return err
	}
	if len(c.Certificate) == 0 {
		return &reason.Error{Code: reason.CertificateRefused, Doing: "renew the relay's certificate", Cause: errors.New("the answer has none")}
	}
	if err := r.opts.Identity.Renewed(c.Certificate); err != nil {
		return err
	}
	r.opts.Log.Info("the relay's certificate was renewed")
	r.servers.renew()
	return nil
}
