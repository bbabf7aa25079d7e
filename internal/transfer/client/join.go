package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// trustMax is above the text of a whole chain of trust documents (4 MiB).
const trustMax = 5 << 20

// credentialsMax is above a chain of trust documents and a certificate, as one message.
const credentialsMax = trustMax + 64<<10

// Joining is what a host joins with.
type Joining struct {
	Line    trust.JoinLine
	Name    string // that the node is to have; of a relay it is that of its token
	Host    *trust.HostKey
	Sealing *trust.SealingKey // nil for a relay, which gets no secrets
	Built   time.Time         // when this program was built; see trust.Chain
	Dial    Dial              // as in Options
}

func (j *Joining) dial() Dial {
	if j.Dial == nil {
		return TCP
	}
	return j.Dial
}

// Join makes a host, or a relay, a member of the cluster of its join line. The token is told to nobody who has not shown, first, the trust documents
// that the line pins, and then a server's certificate of an authority in them. What comes back is checked: the certificate is for the
// key, of that cluster, and the documents are those. It may be repeated with the same keys, for a reply that was lost. The errors are
// WrongCluster, CertificateRefused, CertificateTime, TrustRefused, ServerUnreachable, and what the server says.
func Join(ctx context.Context, j Joining) (wire.Credentials, error) {
	chain, err := pinned(ctx, j)
	if err != nil {
		return wire.Credentials{}, err
	}
	r, err := j.request()
	if err != nil {
		return wire.Credentials{}, err
	}
	config := strange()
	config.VerifyConnection = func(s tls.ConnectionState) error {
		return verifyServer(s.PeerCertificates, chain.Pool(), chain.Time(time.Now()))
	}
	s := newServer(j.dial(), j.Line.Address, config)
	defer s.http.CloseIdleConnections()
	var c wire.Credentials
	err = s.exchange(ctx, wire.PathJoin, r, credentialsMax, &c)
	if err == nil {
		err = j.check(&c, chain)
	}
	if err != nil {
		return wire.Credentials{}, err
	}
	return c, nil
}

// request is what is shown to join: as a node, or without a sealing key as a relay.
func (j *Joining) request() (r wire.JoinRequest, err error) {
	r = wire.JoinRequest{Protocol: wire.Protocol, Token: j.Line.Token.Reveal(), Name: j.Name, Relay: j.Sealing == nil}
	if r.Relay {
		r.Request, err = trust.RelayRequest(j.Host)
		return r, err
	}
	r.SealingKey = j.Sealing.Public()
	r.Request, err = trust.NodeRequest(j.Host, r.SealingKey)
	return r, err
}

// whose is whose certificate came back.
func (j *Joining) whose(cert *x509.Certificate) (trust.NodeCertificate, error) {
	if j.Sealing == nil {
		who, err := trust.ParseRelay(cert)
		return trust.NodeCertificate(who.RelayCertificate), err
	}
	who, err := trust.ParseNode(cert)
	return who.NodeCertificate, err
}

// pinned fetches the trust documents from whoever answers, and believes them for their hash.
func pinned(ctx context.Context, j Joining) (*trust.Chain, error) {
	s := newServer(j.dial(), j.Line.Address, strange())
	defer s.http.CloseIdleConnections()
	documents, err := fetchTrust(ctx, s, 0)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Verify(documents, j.Line.Trust, j.Built)
	if err != nil {
		return nil, &reason.Error{
			Code: reason.WrongCluster, Doing: "join the cluster of https://" + j.Line.Address, Cause: err,
			Hint: "compare the hash in the join line with `tako trust show` where the server runs; the token was not sent",
		}
	}
	return chain, nil
}

// check checks what a server answers to a join.
func (j *Joining) check(c *wire.Credentials, chain *trust.Chain) error {
	refused := func(cause error) error {
		return &reason.Error{Code: reason.CertificateRefused, Doing: "read the certificate that https://" + j.Line.Address + " has issued", Cause: cause}
	}
	documents, err := trust.DecodeDocuments(c.Trust)
	if err != nil {
		return err
	}
	if chain, err = chain.Extend(documents); err != nil {
		return err
	}
	cert, err := j.Host.TLS(c.Certificate)
	if err != nil {
		return err
	}
	who, err := j.whose(cert.Leaf)
	if err != nil {
		return err
	}
	if who.Cluster != chain.Current().Cluster || who.Name != c.Name || who.UID != c.UID {
		return refused(fmt.Errorf("it is for node %s (%s), and the answer is about %s (%s)", who.Name, who.UID, c.Name, c.UID))
	}
	if j.Name != "" && c.Name != j.Name {
		return refused(fmt.Errorf("it is for node %s, and %s was asked for", c.Name, j.Name))
	}
	return nil
}

// fetchTrust asks for the trust documents after a number; there may be none.
func fetchTrust(ctx context.Context, s *server, after uint64) ([]trust.Signed, error) {
	text, err := s.get(ctx, wire.PathTrust, wire.ParamAfter+"="+strconv.FormatUint(after, 10), trustMax)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, nil
	}
	return trust.DecodeDocuments(text)
}
