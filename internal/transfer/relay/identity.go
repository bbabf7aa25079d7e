package relay

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// The names in the state directory.
const (
	identityName    = "identity"
	keyName         = "relay.key"
	certificateName = "certificate.pem"
	trustName       = "trust.json"
	relayName       = "relay.json"
)

const (
	certificateBlock = "CERTIFICATE"
	// relayMax is above a name, a UID, a hash and some hundred addresses.
	relayMax = 64 << 10
	// certificateMax is several times a certificate of a P-256 key.
	certificateMax = 16 << 10
	// trustMax is above what a chain may have.
	trustMax = 8 << 20
)

// whose is the content of the file that says which relay this is. It is written last: without it there is no identity.
type whose struct {
	Cluster trust.ClusterID `json:"cluster"`
	Name    string          `json:"name"`
	UID     string          `json:"uid"`
	Pin     string          `json:"pin"` // hash of trust document 1
	Servers []string        `json:"servers"`
	Learned []string        `json:"learned,omitempty"` // of what servers have told
}

func (w *whose) encode() ([]byte, error) {
	text, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode the relay's name", Cause: err}
	}
	return append(text, '\n'), nil
}

// Identity is who a relay is, and whom it believes. Its methods may be called from several goroutines.
type Identity struct {
	dir  string
	key  *trust.HostKey
	whom whose // but for Learned it does not change

	mu          sync.Mutex // guards what follows, and whom.Learned
	certificate *tls.Certificate
	chain       *trust.Chain
}

var _ client.Credential = (*Identity)(nil)

// Prepare returns the key with which a relay may join: that of a join that was broken off, because the server may have taken it already, or a
// fresh one, durable. The errors are Joined, for a relay that has joined, and those of the disk.
func Prepare(stateDir string) (*trust.HostKey, error) {
	dir := filepath.Join(stateDir, identityName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: "make " + dir, Cause: err}
	}
	joined, err := exists(filepath.Join(dir, relayName))
	if err != nil {
		return nil, err
	}
	if joined {
		return nil, &reason.Error{Code: reason.HostJoined, Doing: "join as a relay", Hint: "to join again as another relay, stop this one and move " + dir + " away"}
	}
	path := filepath.Join(dir, keyName)
	if there, err := exists(path); err != nil || there {
		if err != nil {
			return nil, err
		}
		return trust.LoadHostKey(path)
	}
	key := trust.NewHostKey()
	return key, trust.SaveHostKey(key, path)
}

func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &reason.Error{Code: reason.KeyFileDamaged, Doing: "look for " + path, Cause: err}
	}
	return true, nil
}

// Join makes a relay of a state directory, with the key that Prepare returned and what a server has answered. What it writes before the last
// file counts for nothing. built is when this program was built; see trust.Chain.
func Join(stateDir string, key *trust.HostKey, c *wire.Credentials, pin trust.Hash, servers []string, built time.Time) (*Identity, error) {
	documents, err := trust.DecodeDocuments(c.Trust)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Verify(documents, pin, built)
	if err != nil {
		return nil, err
	}
	id := &Identity{dir: filepath.Join(stateDir, identityName), key: key, chain: chain}
	id.whom = whose{Cluster: chain.Current().Cluster, Name: c.Name, UID: c.UID, Pin: pin.String(), Servers: servers}
	if id.certificate, err = id.accept(c.Certificate, chain); err != nil {
		return nil, err
	}
	text, err := id.whom.encode()
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{trustName, c.Trust}, {certificateName, encodeCertificate(c.Certificate)}, {relayName, text}} {
		if err := trust.WritePrivate(filepath.Join(id.dir, f.name), f.content); err != nil {
			return nil, err
		}
	}
	return id, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

// LoadIdentity reads which relay this is. built is when this program was built; see trust.Chain. The errors are NotJoined where it has not
// joined, KeyFileDamaged, KeyFileUnsafe, TrustRefused and CertificateRefused.
func LoadIdentity(stateDir string, built time.Time) (*Identity, error) {
	id := &Identity{dir: filepath.Join(stateDir, identityName)}
	joined, err := exists(filepath.Join(id.dir, relayName))
	if err != nil {
		return nil, err
	}
	if !joined {
		return nil, &reason.Error{Code: reason.HostNotJoined, Doing: "find out which relay this is", Hint: "on a computer of an administrator: tako token create relay NAME; here: tako relay join -, and paste the line"}
	}
	return id, id.load(built)
}

func (id *Identity) load(built time.Time) error {
	damaged := func(err error) error {
		return &reason.Error{Code: reason.KeyFileDamaged, Doing: "read which relay this is", Cause: err, Hint: "let it join again: move " + id.dir + " away, revoke its token, and tako relay join"}
	}
	text, err := trust.ReadPrivate(filepath.Join(id.dir, relayName), relayMax)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &id.whom); err != nil {
		return damaged(err)
	}
	pin, err := trust.ParseHash(id.whom.Pin)
	if err != nil || len(id.whom.Servers) == 0 || id.whom.Name == "" || id.whom.UID == "" {
		return damaged(errors.Join(errors.New("its name, its UID, its servers or the hash of its trust document is missing"), err))
	}
	if id.key, err = trust.LoadHostKey(filepath.Join(id.dir, keyName)); err != nil {
		return err
	}
	if text, err = trust.ReadPrivate(filepath.Join(id.dir, trustName), trustMax); err != nil {
		return err
	}
	documents, err := trust.DecodeDocuments(text)
	if err != nil {
		return err
	}
	if id.chain, err = trust.Verify(documents, pin, built); err != nil {
		return err
	}
	if text, err = trust.ReadPrivate(filepath.Join(id.dir, certificateName), certificateMax); err != nil {
		return err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return damaged(errors.New("its certificate is no PEM block"))
	}
	// By whom it was issued is not asked again: the authority may have been replaced while the relay was away.
	certificate, err := id.key.TLS(block.Bytes)
	if err != nil {
		return err
	}
	id.certificate = &certificate
	return nil
}

// accept says whether a certificate is this relay's, by an authority of the chain. When it is valid is not asked: the clock may be wrong.
func (id *Identity) accept(der []byte, chain *trust.Chain) (*tls.Certificate, error) {
	certificate, err := id.key.TLS(der)
	if err != nil {
		return nil, err
	}
	who, err := trust.ParseRelay(certificate.Leaf)
	if err != nil {
		return nil, err
	}
	if who.Cluster != id.whom.Cluster || who.Name != id.whom.Name || who.UID != id.whom.UID {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: "take the relay's certificate",
			Cause: fmt.Errorf("it is for relay %s (%s) of cluster %s, and this is %s (%s) of %s", who.Name, who.UID, who.Cluster, id.whom.Name, id.whom.UID, id.whom.Cluster)}
	}
	_, err = certificate.Leaf.Verify(x509.VerifyOptions{Roots: chain.Pool(), CurrentTime: certificate.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: "take the relay's certificate", Cause: err}
	}
	return &certificate, nil
}

// Name is what the relay is called.
func (id *Identity) Name() string { return id.whom.Name }

// Cluster is that of its servers.
func (id *Identity) Cluster() trust.ClusterID { return id.whom.Cluster }

// Servers are the addresses that it has joined with.
func (id *Identity) Servers() []string { return id.whom.Servers }

// Learned are the addresses that servers have told of, beside those that the relay was given.
func (id *Identity) Learned(given []string) []string {
	id.mu.Lock()
	defer id.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(id.whom.Learned), func(address string) bool { return slices.Contains(given, address) })
}

// Learn makes durable what a server has told of servers, of which Learned returns those that the relay was not given. They need no signature: see
// client.Learner. It reports whether Learned returns something else now. The errors are those of the disk.
func (id *Identity) Learn(given, told []string) (changed bool, err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	w := id.whom
	w.Learned = client.Learned(given, w.Learned, told)
	if slices.Equal(w.Learned, id.whom.Learned) {
		return false, nil
	}
	text, err := w.encode()
	if err != nil {
		return false, err
	}
	if err := trust.WritePrivate(filepath.Join(id.dir, relayName), text); err != nil {
		return false, err
	}
	id.whom.Learned = w.Learned
	return true, nil
}

// Certificate is part of client.Credential. It is also what the relay shows to hosts.
func (id *Identity) Certificate() (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.certificate, nil
}

// Trust is part of client.Credential.
func (id *Identity) Trust() *trust.Chain {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.chain
}

// Extend makes a longer chain durable and believed from now on; it was verified by Trust().Extend.
func (id *Identity) Extend(longer *trust.Chain) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if longer.Current().Number <= id.chain.Current().Number {
		return nil
	}
	text, err := longer.Encode()
	if err != nil {
		return err
	}
	if err := trust.WritePrivate(filepath.Join(id.dir, trustName), text); err != nil {
		return err
	}
	id.chain = longer
	return nil
}

// Request is a certificate request for the relay's key, DER.
func (id *Identity) Request() ([]byte, error) { return trust.RelayRequest(id.key) }

// Renewed makes a new certificate durable and the one that Certificate returns. The errors are CertificateRefused and those of the disk.
func (id *Identity) Renewed(certificate []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	accepted, err := id.accept(certificate, id.chain)
	if err != nil {
		return err
	}
	if err := trust.WritePrivate(filepath.Join(id.dir, certificateName), encodeCertificate(certificate)); err != nil {
		return err
	}
	id.certificate = accepted
	return nil
}
