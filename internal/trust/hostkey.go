package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"tako.dev/tako/internal/reason"
)

// HostKey is the private key of a host's certificates, ECDSA on P-256. It is made when the host joins, and leaves it never. It is
// immutable and safe for concurrent use.
type HostKey struct {
	private *ecdsa.PrivateKey
}

// NewHostKey makes a fresh random key.
func NewHostKey() *HostKey {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("trust: make an ECDSA key: %v", err)) // crypto/rand never fails
	}
	return &HostKey{private}
}

// Digest names the public key, as KeyDigest does: it is no secret, and what a person approves.
func (k *HostKey) Digest() string {
	spki, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		panic(fmt.Sprintf("trust: encode an ECDSA key: %v", err)) // x509 knows the type
	}
	return KeyDigest(spki)
}

// Format prints the key as its digest, whatever the verb: it never reaches a log.
func (k *HostKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "host key "+k.Digest()) }

// TLS returns the key with a certificate, DER, as crypto/tls takes both. Errors: CertificateRefused when the certificate is for
// another key, or cannot be read.
func (k *HostKey) TLS(certificate []byte) (tls.Certificate, error) {
	cert, err := x509.ParseCertificate(certificate)
	if err == nil && !k.private.PublicKey.Equal(cert.PublicKey) {
		err = errors.New("it is for another key")
	}
	if err != nil {
		return tls.Certificate{}, &reason.Error{Code: reason.CertificateRefused, Doing: "read the host's certificate", Cause: err}
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: k.private, Leaf: cert}, nil
}

// EncodePEM returns the private key as one PEM block (PKCS #8). It is a secret.
func (k *HostKey) EncodePEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		panic(fmt.Sprintf("trust: encode an ECDSA key: %v", err)) // x509 knows the type
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der})
}

// DecodeHostKey reads what EncodePEM wrote: one PEM block and nothing else. Errors: KeyFileDamaged, which does not quote it.
func DecodeHostKey(b []byte) (*HostKey, error) {
	der, err := onlyBlock(b, privateKeyBlock)
	if err != nil {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read host key", Cause: err}
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	private, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok || private.Curve != elliptic.P256() {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read host key", Cause: errors.New("the block holds no ECDSA key on P-256")}
	}
	return &HostKey{private}, nil
}

// LoadHostKey reads a host's key from a file. Errors: those of ReadPrivate and DecodeHostKey.
func LoadHostKey(path string) (*HostKey, error) { return loadKey(path, DecodeHostKey) }

// SaveHostKey writes a host's key to a new file. Errors: those of CreatePrivate.
func SaveHostKey(key *HostKey, path string) error { return CreatePrivate(path, key.EncodePEM()) }

// onlyBlock returns what is in the one PEM block of a text.
func onlyBlock(b []byte, name string) ([]byte, error) {
	if len(b) > keyFileMax {
		return nil, fmt.Errorf("it has more than %d bytes", keyFileMax)
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != name || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("it is not one PEM block " + name)
	}
	return block.Bytes, nil
}

// loadKey reads a key from a private file, and names the file in what is wrong with it.
func loadKey[K any](path string, decode func([]byte) (*K, error)) (*K, error) {
	b, err := ReadPrivate(path, keyFileMax)
	if err != nil {
		return nil, err
	}
	k, err := decode(b)
	if e := new(reason.Error); errors.As(err, &e) {
		e.Doing = "read key file " + path
	}
	return k, err
}
