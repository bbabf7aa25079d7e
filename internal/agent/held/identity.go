package held

import (
	"context"
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

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// The names in the state directory.
const (
	identityName    = "identity"
	hostKeyName     = "host.key"
	sealingKeyName  = "sealing.key"
	certificateName = "certificate.pem"
	trustName       = "trust.json"
	nodeName        = "node.json"
)

const (
	certificateBlock = "CERTIFICATE"
	// nodeMax is above a name, a UID, a hash and some hundred addresses.
	nodeMax = 64 << 10
	// certificateMax is several times a certificate of a P-256 key.
	certificateMax = 16 << 10
	// trustMax is above what a chain may have.
	trustMax = 8 << 20
)

// node is the content of the file that says whose node this host is. It is written last: without it there is no identity.
type node struct {
	Cluster trust.ClusterID `json:"cluster"`
	Name    string          `json:"name"`
	UID     string          `json:"uid"`
	Pin     string          `json:"pin"` // hash of trust document 1
	Servers []string        `json:"servers"`
	// Learned are further ones that servers have told of, the last that was told last.
	Learned []string `json:"learned,omitempty"`
}

// Keys are those of a host: they never leave it.
type Keys struct {
	Host    *trust.HostKey
	Sealing *trust.SealingKey
}

// Prepare returns the keys with which a host may join: those of a join that was broken off, because the server may have taken them
// already, or fresh ones, durable. The errors are Joined, for a host that has joined, and those of the disk.
func Prepare(stateDir string) (Keys, error) {
	if joined, err := HasJoined(stateDir); err != nil || joined {
		if joined {
			err = &reason.Error{Code: reason.HostJoined, Doing: "join",
				Hint: "to join another cluster, or this one again as another node, stop the agent and move " + disk.Shown(filepath.Join(stateDir, identityName)) + " away; what the old one has declared is then not kept any more"}
		}
		return Keys{}, err
	}
	dir := filepath.Join(stateDir, identityName)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return Keys{}, unwritable("make", dir, err)
	}
	var k Keys
	var err error
	if k.Host, err = keep(filepath.Join(dir, hostKeyName), trust.LoadHostKey, trust.SaveHostKey, trust.NewHostKey); err != nil {
		return Keys{}, err
	}
	k.Sealing, err = keep(filepath.Join(dir, sealingKeyName), trust.LoadSealingKey, trust.SaveSealingKey, trust.NewSealingKey)
	return k, err
}

// keep loads a key, or makes and saves one where there is none.
func keep[K any](path string, load func(string) (K, error), save func(K, string) error, fresh func() K) (K, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return load(path)
	}
	k := fresh()
	return k, save(k, path)
}

// Membership is what a join has come to.
type Membership struct {
	Credentials wire.Credentials
	Pin         trust.Hash // of trust document 1, as the join line has it
	Servers     []string   // HOST:PORT
}

// Join makes a host a member of a cluster, with the keys that Prepare returned. What it writes before the last file counts for nothing.
// built is when this program was built; see trust.Chain. The errors are TrustRefused, CertificateRefused and those of the disk.
func Join(stateDir string, m Membership, built time.Time) (*Identity, error) {
	dir := filepath.Join(stateDir, identityName)
	c := &m.Credentials
	documents, err := trust.DecodeDocuments(c.Trust)
	if err != nil {
		return nil, err
	}
	chain, err := trust.Verify(documents, m.Pin, built)
	if err != nil {
		return nil, err
	}
	keys, err := loadKeys(dir)
	if err != nil {
		return nil, err
	}
	n := node{Cluster: chain.Current().Cluster, Name: c.Name, UID: c.UID, Pin: m.Pin.String(), Servers: m.Servers}
	id := &Identity{dir: dir, keys: keys, node: n, chain: chain}
	if id.certificate, err = id.accept(c.Certificate, chain); err != nil {
		return nil, err
	}
	text, err := n.encode()
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{trustName, c.Trust}, {certificateName, encodeCertificate(c.Certificate)}, {nodeName, text}} {
		if err := trust.WritePrivate(filepath.Join(dir, f.name), f.content); err != nil {
			return nil, err
		}
	}
	return id, nil
}

func (n *node) encode() ([]byte, error) {
	text, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode the node of this host", Cause: err}
	}
	return append(text, '\n'), nil
}

func loadKeys(dir string) (k Keys, err error) {
	if k.Host, err = trust.LoadHostKey(filepath.Join(dir, hostKeyName)); err != nil {
		return k, err
	}
	k.Sealing, err = trust.LoadSealingKey(filepath.Join(dir, sealingKeyName))
	return k, err
}

// Identity is who a host is. It is a client.Identity.
type Identity struct {
	dir  string
	keys Keys
	node node // Learned is guarded by mu

	mu          sync.Mutex // guards what follows
	certificate *tls.Certificate
	chain       *trust.Chain
}

var (
	_ client.Identity = (*Identity)(nil)
	_ client.Learner  = (*Identity)(nil)
)

// LoadIdentity reads who the host is. built is when this program was built; see trust.Chain. The errors are NotJoined where it has not
// joined, KeyFileDamaged, KeyFileUnsafe, TrustRefused and CertificateRefused.
func LoadIdentity(stateDir string, built time.Time) (*Identity, error) {
	joined, err := HasJoined(stateDir)
	if err != nil {
		return nil, err
	}
	if !joined {
		return nil, &reason.Error{Code: reason.HostNotJoined, Doing: "find out whose node this host is",
			Hint: "on a computer of an administrator: tako token create join; here: tako-agent join -, and paste the line"}
	}
	id := &Identity{dir: filepath.Join(stateDir, identityName)}
	return id, id.load(built)
}

func (id *Identity) load(built time.Time) error {
	text, err := trust.ReadPrivate(filepath.Join(id.dir, nodeName), nodeMax)
	if err != nil {
		return err
	}
	damaged := func(err error) error {
		return &reason.Error{Code: reason.KeyFileDamaged, Doing: "read who this host is", Cause: err, Hint: "let it join again: move " + disk.Shown(id.dir) + " away, and tako-agent join"}
	}
	if err := json.Unmarshal(text, &id.node); err != nil {
		return damaged(err)
	}
	if len(id.node.Servers) == 0 || id.node.Name == "" || id.node.UID == "" {
		return damaged(errors.New("its name, its UID or its servers are missing"))
	}
	pin, err := trust.ParseHash(id.node.Pin)
	if err != nil {
		return damaged(err)
	}
	if id.keys, err = loadKeys(id.dir); err != nil {
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
	// By whom it was issued is not asked again: the authority may have been replaced while this host was away, and the server says then
	// that the certificate is to be renewed.
	certificate, err := id.keys.Host.TLS(block.Bytes)
	id.certificate = &certificate
	return err
}

// addressesMax is how many addresses a host may have: each is tried when the others fail.
const addressesMax = 16

// reachAny finds out whether servers or relays of the cluster of a host answer: at one address at least. One that somebody else answers at is
// refused.
func reachAny(ctx context.Context, id *Identity, addresses []string) error {
	var silent error
	reached := false
	for _, address := range addresses {
		switch err := client.Reach(ctx, id, address, nil); {
		case err == nil:
			reached = true
		case reason.Is(err, reason.ServerUnreachable):
			silent = err
		default:
			return err
		}
	}
	if !reached {
		return silent
	}
	return nil
}

// accept says whether a certificate is this host's, by an authority of the chain. When it is valid is not asked: the clock may be
// wrong.
func (id *Identity) accept(der []byte, chain *trust.Chain) (*tls.Certificate, error) {
	certificate, err := id.keys.Host.TLS(der)
	if err != nil {
		return nil, err
	}
	whose, err := trust.ParseNode(certificate.Leaf)
	if err != nil {
		return nil, err
	}
	if whose.Cluster != id.node.Cluster || whose.Name != id.node.Name || whose.UID != id.node.UID {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: "take the host's certificate",
			Cause: fmt.Errorf("it is for node %s (%s) of cluster %s, and this is %s (%s) of %s", whose.Name, whose.UID, whose.Cluster, id.node.Name, id.node.UID, id.node.Cluster)}
	}
	_, err = certificate.Leaf.Verify(x509.VerifyOptions{Roots: chain.Pool(), CurrentTime: certificate.Leaf.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, &reason.Error{Code: reason.CertificateRefused, Doing: "take the host's certificate", Cause: err}
	}
	return &certificate, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

// Node is part of client.Identity.
func (id *Identity) Node() catalog.Node {
	return catalog.Node{Cluster: id.node.Cluster, Name: id.node.Name, UID: id.node.UID}
}

// Servers is part of client.Identity.
func (id *Identity) Servers() []string {
	id.mu.Lock()
	defer id.mu.Unlock()
	return slices.Concat(id.node.Servers, id.node.Learned)
}

// Learn is part of client.Learner. What is no address is left out.
func (id *Identity) Learn(addresses []string) (changed bool, err error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	n := id.node
	n.Learned = client.Learned(n.Servers, n.Learned, addresses)
	if slices.Equal(n.Learned, id.node.Learned) {
		return false, nil
	}
	text, err := n.encode()
	if err != nil {
		return false, err
	}
	if err := trust.WritePrivate(filepath.Join(id.dir, nodeName), text); err != nil {
		return false, err
	}
	id.node.Learned = n.Learned
	return true, nil
}

// Sealing is the key that the keys to this host's secrets are sealed to.
func (id *Identity) Sealing() *trust.SealingKey { return id.keys.Sealing }

// Certificate is part of client.Identity.
func (id *Identity) Certificate() (*tls.Certificate, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.certificate, nil
}

// Trust is part of client.Identity.
func (id *Identity) Trust() *trust.Chain {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.chain
}

// Extend is part of client.Identity.
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

// Request is part of client.Identity.
func (id *Identity) Request() ([]byte, error) {
	return trust.NodeRequest(id.keys.Host, id.keys.Sealing.Public())
}

// Renewed is part of client.Identity.
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

// Readdress stores other addresses of the servers or relays of a host that has joined, after one of its cluster has answered at one of them,
// and nobody else at any. Keys, certificate and what is believed stay. Nothing may use the identity meanwhile. The errors are HostNotJoined,
// InvalidValue for what is no HOST:PORT, and those of client.Reach and of the disk: then the addresses are the old ones.
func Readdress(ctx context.Context, stateDir string, addresses []string, built time.Time) (catalog.Node, error) {
	id, err := LoadIdentity(stateDir, built)
	if err != nil {
		return catalog.Node{}, err
	}
	if n := len(addresses); n == 0 || n > addressesMax {
		return catalog.Node{}, &reason.Error{Code: reason.InvalidValue, Doing: "read the addresses of servers", Cause: fmt.Errorf("there are %d, want 1 to %d", n, addressesMax)}
	}
	for _, address := range addresses {
		if err := trust.CheckAddress(address); err != nil {
			return catalog.Node{}, &reason.Error{Code: reason.InvalidValue, Doing: "read the address " + reason.Clip([]byte(address)), Cause: err, Hint: "write HOST:PORT"}
		}
	}
	if err := reachAny(ctx, id, addresses); err != nil {
		return catalog.Node{}, err
	}
	n := id.node
	n.Servers, n.Learned = addresses, nil // whoever says where they are knows better
	text, err := n.encode()
	if err != nil {
		return catalog.Node{}, err
	}
	return id.Node(), trust.WritePrivate(filepath.Join(id.dir, nodeName), text)
}
