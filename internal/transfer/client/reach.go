package client

import (
	"context"

	"tako.dev/tako/internal/reason"
)

// Reach finds out whether a server of the cluster of a host answers at an address, HOST:PORT. Trust documents that have come since the host
// was there last are taken over, as they are from any server. dial is nil for TCP. The errors are WrongCluster, for whoever else answers,
// CertificateTime and ServerUnreachable.
func Reach(ctx context.Context, identity Identity, address string, dial Dial) error {
	if dial == nil {
		dial = TCP
	}
	stranger := func(err error) error {
		if err == nil {
			return nil
		}
		if e := reason.Of(err); e.Code == reason.CertificateRefused || e.Code == reason.TrustRefused || e.Code == reason.SignaturesMissing {
			return &reason.Error{
				Code: reason.WrongCluster, Doing: "find a server of cluster " + string(identity.Node().Cluster) + " at " + address, Cause: e,
				Hint: "compare the cluster in `tako-agent status` with `tako trust show` where the server runs",
			}
		}
		return err
	}
	anybody := newServer(dial, address, strange())
	defer anybody.http.CloseIdleConnections()
	chain := identity.Trust()
	documents, err := fetchTrust(ctx, anybody, chain.Current().Number)
	if err != nil {
		return stranger(err)
	}
	if len(documents) > 0 {
		longer, err := chain.Extend(documents)
		if err != nil {
			return stranger(err)
		}
		if err := identity.Extend(longer); err != nil {
			return err
		}
	}
	s := newServer(dial, address, known(identity))
	defer s.http.CloseIdleConnections()
	_, err = fetchTrust(ctx, s, identity.Trust().Current().Number)
	return stranger(err)
}
