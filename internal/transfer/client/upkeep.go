package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

const (
	// renewPause is the longest between two looks at the certificate: a clock that is set moves its end.
	renewPause = time.Hour
	// trustPause is the shortest between two questions for trust documents.
	trustPause = time.Second
)

// keepUp asks for trust documents when there may be later ones, and renews the certificate at two thirds of its life, also when it has
// expired.
func (c *Client) keepUp(ctx context.Context, random *rand.Rand) {
	var trusts, renewals core.Backoff
	var trustAt, renewAt time.Time // renewAt is zero as long as the certificate says when
	wanted := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for at := 0; ; at++ {
		now := time.Now()
		due := now.Add(renewPause)
		if next := c.renewalDue(renewAt); next.Before(due) {
			due = next
		}
		if wanted && trustAt.Before(due) {
			due = trustAt
		}
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-c.trust:
			wanted = true
			continue
		case <-timer.C:
		}
		if now = time.Now(); wanted && !now.Before(trustAt) {
			err := c.extend(ctx, c.lines.at(at))
			trustAt, wanted = time.Now().Add(trustPause), err != nil
			if err != nil {
				c.opts.Log.Warn("ask for trust documents", "err", err)
				trustAt = time.Now().Add(trusts.Next(random))
			} else {
				trusts.Reset()
			}
		}
		if now.Before(c.renewalDue(renewAt)) {
			continue
		}
		renewAt = time.Time{}
		if err := c.renew(ctx, c.lines.at(at)); err != nil {
			c.opts.Log.Warn("renew the host's certificate", "err", err, "hint", reason.Of(err).Hint)
			renewAt = time.Now().Add(max(renewals.Next(random), PauseOf(err)))
		} else {
			renewals.Reset()
		}
	}
}

// renewalDue is when to renew: when the certificate says, or after a failure then.
func (c *Client) renewalDue(after time.Time) time.Time {
	cert, err := c.opts.Identity.Certificate()
	if err != nil || cert.Leaf == nil {
		return latest(time.Now().Add(time.Minute), after) // it is said by every call that cannot be made
	}
	return latest(trust.RenewAt(cert.Leaf), after)
}

// extend asks a server for later trust documents, over a connection to whoever answers: documents speak for themselves, and the
// authority of the server may be one that only they name.
func (c *Client) extend(ctx context.Context, s *server) error {
	anybody := newServer(c.lines.Dial, s.address, strange())
	defer anybody.http.CloseIdleConnections()
	documents, err := fetchTrust(ctx, anybody, c.opts.Identity.Trust().Current().Number)
	if err != nil {
		return err
	}
	return c.believe(ctx, documents)
}

// believe extends the chain by documents that follow it, and tells the machine, also when there are none.
func (c *Client) believe(ctx context.Context, documents []trust.Signed) error {
	chain := c.opts.Identity.Trust()
	longer := chain
	if len(documents) > 0 {
		var err error
		if longer, err = chain.Extend(documents); err != nil {
			return err
		}
	}
	if longer.Current().Number == chain.Current().Number {
		c.send(ctx, core.Trusted{Chain: chain})
		return nil
	}
	if err := c.opts.Identity.Extend(longer); err != nil {
		return err
	}
	c.opts.Log.Info("trust documents have been extended", "number", longer.Current().Number)
	c.send(ctx, core.Trusted{Chain: longer})
	return nil
}

// renew asks for a new certificate, and has the next connections use it.
func (c *Client) renew(ctx context.Context, s *server) error {
	if err := c.extend(ctx, s); err != nil && !reason.Is(err, reason.ServerUnreachable) {
		return err
	}
	request, err := c.opts.Identity.Request()
	if err != nil {
		return err
	}
	var credentials wire.Credentials
	if err := s.exchange(ctx, wire.PathRenew, wire.RenewRequest{Protocol: wire.Protocol, Request: request}, credentialsMax, &credentials); err != nil {
		return err
	}
	if len(credentials.Certificate) == 0 {
		return &reason.Error{Code: reason.CertificateRefused, Doing: s.doing(wire.PathRenew), Cause: errors.New("the answer has none")}
	}
	if err := c.opts.Identity.Renewed(credentials.Certificate); err != nil {
		return err
	}
	c.lines.renew(c.opts.Identity)
	poke(c.renewed)
	return nil
}
