package enroll

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// A relay is the Token that it has joined with: the Token has its name, its UID and the digest of its key, and deleting it ends the relay.
// Nothing is assigned to a relay and nothing is kept of one, so there is no other object that it could be.

// joinRelay makes a relay of who shows a token for one. The token admits one key: the same one again gets another certificate, for the
// answer before was lost.
func (m *Members) joinRelay(ctx context.Context, r wire.JoinRequest, a *Attempt) (wire.Credentials, error) {
	request, err := trust.ParseRelayRequest(r.Request)
	if err != nil {
		return wire.Credentials{}, err
	}
	a.Key = request.Key()
	token, err := m.opts.Tokens.OfHost(ctx, r.Token)
	if token != nil {
		a.Token = token.Name
	}
	if err != nil {
		return wire.Credentials{}, err
	}
	if !token.Spec.Join.Relay {
		return wire.Credentials{}, &reason.Error{
			Code: reason.TokenRefused, Doing: "join with token " + token.Name, Cause: errors.New("it is for hosts, and this is a relay"), Hint: "make one for a relay: `tako token create relay NAME`",
		}
	}
	a.Outcome = OutcomeJoined
	err = m.recount(ctx, token, func(now *v1alpha1.Token) error {
		known := now.Status.Relay
		switch {
		case known == nil:
			now.Status.Uses, now.Status.Relay = 1, &v1alpha1.RelayIdentity{Key: request.Key(), Joined: metav1.NewTime(m.opts.Now().Truncate(time.Second))}
		case known.Key == request.Key():
			a.Outcome = OutcomeAgain
		default:
			return refused(now, fmt.Sprintf("a relay with key %s has joined with it, and this one has key %s", known.Key, request.Key()))
		}
		return nil
	})
	if err != nil {
		a.Outcome = OutcomeRefused
		return wire.Credentials{}, err
	}
	a.Node, a.UID = token.Name, string(token.UID)
	return m.relayCredentials(request, token.Name, a.UID)
}

// relayCredentials are what a relay gets.
func (m *Members) relayCredentials(request *trust.HostRequest, name, uid string) (wire.Credentials, error) {
	certificate, err := m.opts.Keys.CA().IssueRelay(request, trust.RelayCertificate{Cluster: m.opts.Keys.Cluster(), Name: name, UID: uid}, m.opts.Now())
	if err != nil {
		return wire.Credentials{}, err
	}
	documents, err := m.opts.Chain().Encode()
	if err != nil {
		return wire.Credentials{}, err
	}
	return wire.Credentials{Protocol: wire.Protocol, Certificate: certificate, Name: name, UID: uid, Trust: documents}, nil
}

// renewRelay gives a relay a new certificate for the key that it has.
func (m *Members) renewRelay(ctx context.Context, who server.Identity, r wire.RenewRequest) (wire.Credentials, error) {
	request, err := trust.ParseRelayRequest(r.Request)
	if err != nil {
		return wire.Credentials{}, err
	}
	if err := m.isRelay(ctx, who); err != nil {
		return wire.Credentials{}, err
	}
	if request.Key() != who.Key {
		return wire.Credentials{}, &reason.Error{Code: reason.JoinRequestInvalid, Doing: "renew the certificate of relay " + who.Name, Cause: errors.New("it is asked for with another key than the relay has")}
	}
	m.opts.Log.Info("certificate renewed", "relay", who.Name, "uid", who.UID)
	return m.relayCredentials(request, who.Name, who.UID)
}

// identifyRelay says of which relay a certificate is.
func (m *Members) identifyRelay(cert *x509.Certificate) (server.Identity, error) {
	shown, err := trust.ParseRelay(cert)
	if err != nil {
		return server.Identity{}, err
	}
	if shown.Cluster != m.opts.Keys.Cluster() {
		return server.Identity{}, &reason.Error{Code: reason.CertificateRefused, Doing: "identify relay " + shown.Name, Cause: errors.New("the certificate is of cluster " + string(shown.Cluster))}
	}
	who := server.Identity{Name: shown.Name, UID: shown.UID, Key: shown.Key, Relay: true}
	return who, m.Remains(who)
}

func (m *Members) remainsRelay(who server.Identity) error {
	return m.relays.look(who, m.opts.Now(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), askMax)
		defer cancel()
		return m.isRelay(ctx, who)
	})
}

// isRelay asks the store whether a relay is one. Errors: IdentityGone and StoreUnreachable.
func (m *Members) isRelay(ctx context.Context, who server.Identity) error {
	token := &v1alpha1.Token{}
	err := m.opts.Objects.Get(ctx, named(who.Name), token)
	if err != nil && !apierrors.IsNotFound(err) {
		return storeFault("identify relay "+who.Name, err)
	}
	if err == nil && string(token.UID) == who.UID && token.DeletionTimestamp == nil && token.Status.Relay != nil && token.Status.Relay.Key == who.Key {
		return nil
	}
	return &reason.Error{
		Code: reason.IdentityGone, Doing: "identify relay " + who.Name, Cause: errors.New("the token that it has joined with was deleted"),
		Hint: "to have it as a relay again, move the folder identity of its state directory away, and join it with a line of `tako token create relay NAME`",
	}
}

const (
	// relayFresh is how long it is believed that a relay is one: less than the five seconds within which one that was deleted is refused.
	relayFresh = 3 * time.Second
	// relaysMax is how many are remembered: far more than there are.
	relaysMax = 1024
)

// relays remembers for a moment what the store has said of relays, so that each call of one is no read.
type relays struct {
	mu   sync.Mutex // guards what follows
	seen map[server.Identity]sighting
}

type sighting struct {
	at  time.Time
	err error
}

// look is what ask said of a relay lately, or says now.
func (r *relays) look(who server.Identity, now time.Time, ask func() error) error {
	r.mu.Lock()
	last, known := r.seen[who]
	r.mu.Unlock()
	if age := now.Sub(last.at); known && age >= 0 && age < relayFresh {
		return last.err
	}
	err := ask()
	if reason.Is(err, reason.StoreUnreachable) {
		return err // nothing was found out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) >= relaysMax {
		clear(r.seen)
	}
	r.seen[who] = sighting{now, err}
	return err
}
