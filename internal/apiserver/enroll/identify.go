package enroll

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// askMax bounds what Identify asks of the store.
const askMax = 2 * time.Second

// Identify says whose certificate that is. Errors: CertificateRefused when it is not a node's or a relay's of this cluster, IdentityGone when the
// node is gone or has another key by now, StoreUnreachable when that cannot be found out; with these two it says whose it was.
func (m *Members) Identify(cert *x509.Certificate) (server.Identity, error) {
	if trust.IsRelay(cert) {
		return m.identifyRelay(cert)
	}
	if trust.IsServerID(cert) {
		return m.identifyServer(cert)
	}
	shown, err := trust.ParseNode(cert)
	if err != nil {
		return server.Identity{}, err
	}
	if shown.Cluster != m.opts.Keys.Cluster() {
		return server.Identity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "identify node " + shown.Name, Cause: errors.New("the certificate is of cluster " + string(shown.Cluster))}
	}
	who := server.Identity{Name: shown.Name, UID: shown.UID, Key: shown.Key}
	return who, m.Remains(who)
}

// Remains is nil as long as somebody who was identified is what he was then. Errors: IdentityGone, StoreUnreachable.
func (m *Members) Remains(who server.Identity) error {
	switch {
	case who.Server != "" && who.Relay:
		return nil // it has the authority of the cluster
	case who.Relay:
		return m.remainsRelay(who)
	}
	known, gone := m.index.get(types.UID(who.UID))
	switch {
	case known == member{name: who.Name, key: who.Key}:
		return nil
	case gone:
		return unknown(who)
	}
	return m.ask(who)
}

// Changes is another number whenever Remains may say something else of a host.
func (m *Members) Changes() uint64 { return m.index.changes.Load() }

// identifyServer says of which server a certificate is. Whoever has one has the authority of the cluster, which all servers have.
func (m *Members) identifyServer(cert *x509.Certificate) (server.Identity, error) {
	shown, err := trust.ParseServerID(cert)
	if err != nil {
		return server.Identity{}, err
	}
	if shown.Cluster != m.opts.Keys.Cluster() {
		return server.Identity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "identify server " + shown.Name, Cause: errors.New("the certificate is of cluster " + string(shown.Cluster))}
	}
	return server.Identity{Name: shown.Name, UID: shown.Name, Key: shown.Key, Relay: true, Server: shown.Name}, nil
}

// ask finds out in the store whether a host is a node, and remembers it when that can never be so again.
func (m *Members) ask(who server.Identity) error {
	ctx, cancel := context.WithTimeout(context.Background(), askMax)
	defer cancel()
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return storeFault("identify node "+who.Name, ctx.Err())
	}
	node, err := m.node(ctx, who.Name)
	if err != nil {
		return err
	}
	if node == nil || string(node.UID) != who.UID {
		m.index.forget(types.UID(who.UID))
	}
	if !is(node, who) {
		return unknown(who)
	}
	return nil
}

// is says whether a Node is that of a host.
func is(node *v1alpha1.Node, who server.Identity) bool {
	return node != nil && string(node.UID) == who.UID && node.DeletionTimestamp == nil && node.Status.Identity != nil && node.Status.Identity.Key == who.Key
}

func unknown(who server.Identity) error {
	return &reason.Error{
		Code: reason.IdentityGone, Doing: "identify node " + who.Name, Cause: errors.New("the node was deleted, or another host has joined as it"),
		Hint: "to have this host in the fleet, stop its agent, move the folder identity of its state directory away, and join it again with a line of `tako token create join`; see TK1031",
	}
}

// Renew gives a host a new certificate for the key that it has. Nothing else of it may have changed: another sealing key takes joining
// again. Errors: IdentityGone, JoinRequestInvalid, StoreUnreachable.
func (m *Members) Renew(ctx context.Context, who server.Identity, r wire.RenewRequest) (wire.Credentials, error) {
	if who.Relay {
		return m.renewRelay(ctx, who, r)
	}
	request, err := trust.ParseNodeRequest(r.Request)
	if err != nil {
		return wire.Credentials{}, err
	}
	node, err := m.node(ctx, who.Name)
	if err != nil {
		return wire.Credentials{}, err
	}
	if !is(node, who) {
		return wire.Credentials{}, unknown(who)
	}
	if request.Key() != who.Key || !request.Binds(node.Status.Identity.SealingKey) {
		return wire.Credentials{}, &reason.Error{
			Code: reason.JoinRequestInvalid, Doing: "renew the certificate of node " + who.Name, Cause: errors.New("it is asked for with another key, or another sealing key, than the node has"),
			Hint: "a host gets another key by joining again",
		}
	}
	m.opts.Log.Info("certificate renewed", "node", who.Name, "uid", who.UID)
	return m.credentials(request, node)
}
