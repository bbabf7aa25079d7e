package relay

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/netip"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// members are the hosts of the cluster, as far as a relay can say who is one: by certificates, which the server identifies anew. Who joins
// or renews is for the server to decide.
type members struct{ relay *Relay }

var _ server.Members = members{}

// Join is part of server.Members.
func (m members) Join(ctx context.Context, _ netip.Addr, r wire.JoinRequest) (wire.Credentials, error) {
	return m.relay.servers.current().Join(ctx, r)
}

// Renew is part of server.Members.
func (m members) Renew(ctx context.Context, who server.Identity, r wire.RenewRequest) (wire.Credentials, error) {
	r.Certificate = m.relay.agents.certificate(who)
	return m.relay.servers.current().Renew(ctx, r)
}

// Identify is part of server.Members. Whether the node is still there the server says, who is told of each watch.
func (m members) Identify(cert *x509.Certificate) (server.Identity, error) {
	shown, err := trust.ParseNode(cert)
	if err != nil {
		return server.Identity{}, err
	}
	if shown.Cluster != m.relay.opts.Identity.Cluster() {
		return server.Identity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "identify node " + shown.Name, Cause: errors.New("the certificate is of cluster " + string(shown.Cluster))}
	}
	who := server.Identity{Name: shown.Name, UID: shown.UID, Key: shown.Key}
	m.relay.agents.shown(who, cert)
	return who, nil
}

// Remains is part of server.Members. Where a node is gone the server ends its watch.
func (m members) Remains(server.Identity) error { return nil }

// Changes is part of server.Members.
func (m members) Changes() uint64 { return 0 }

// Trust is part of server.Members.
func (m members) Trust(after uint64) (documents []byte, highest uint64, err error) {
	chain := m.relay.opts.Identity.Trust()
	highest = chain.Current().Number
	later := chain.After(after)
	if len(later) == 0 {
		return nil, highest, nil
	}
	documents, err = trust.EncodeDocuments(later)
	return documents, highest, err
}

// refusals are told in the relay's log: it has no audit log, and what the server refuses is in the server's.
type refusals struct{ log *slog.Logger }

// Refused is part of server.Audit.
func (a refusals) Refused(r server.Refusal) {
	a.log.Warn("refuse a host", "call", r.Call, "from", r.From, "node", r.Who.Name, "code", r.Code.String(), "why", r.Reason)
}
