package trust

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"

	"tako.dev/tako/internal/reason"
)

const (
	// publicPrefix leaves room for another kind of key one day.
	publicPrefix = "ed25519:"
	// keyFileMax is many times what the PEM block of a key takes.
	keyFileMax = 4 << 10
)

// PublicKey is an Ed25519 key that others verify with. Its text form is "ed25519:" and 43 characters of base64 (RFC 4648, URL
// alphabet, no padding). There is one text for each key.
type PublicKey [ed25519.PublicKeySize]byte

// KeyID names a public key: 32 hexadecimal digits of its SHA-256.
type KeyID string

// ParsePublicKey reads the text form. Errors: InvalidValue.
func ParsePublicKey(s string) (PublicKey, error) {
	digits, ok := strings.CutPrefix(s, publicPrefix)
	b, err := base64.RawURLEncoding.Strict().DecodeString(digits)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize || strings.ContainsAny(digits, "\r\n") {
		return PublicKey{}, &reason.Error{
			Code: reason.InvalidValue, Doing: fmt.Sprintf("read public key %q", clipped(s)),
			Hint: "a public key is ed25519: and 43 letters, digits, - and _",
		}
	}
	return PublicKey(b), nil
}

// String returns the text form.
func (p PublicKey) String() string { return publicPrefix + base64.RawURLEncoding.EncodeToString(p[:]) }

// MarshalText writes the text form.
func (p PublicKey) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the text form; see ParsePublicKey.
func (p *PublicKey) UnmarshalText(b []byte) error {
	v, err := ParsePublicKey(string(b))
	if err == nil {
		*p = v
	}
	return err
}

// ID returns the name of the key.
func (p PublicKey) ID() KeyID {
	sum := sha256.Sum256(append([]byte("tako/key/1\n"), p[:]...))
	return KeyID(hex.EncodeToString(sum[:16]))
}

// Verify says whether the key's owner signed the message.
func (p PublicKey) Verify(message, signature []byte) bool {
	return ed25519.Verify(p[:], message, signature)
}

// SigningKey is an Ed25519 key that signs. It is immutable and safe for concurrent use.
type SigningKey struct {
	private ed25519.PrivateKey
}

// NewSigningKey makes a fresh random key.
func NewSigningKey() *SigningKey {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(fmt.Sprintf("trust: make an Ed25519 key: %v", err)) // crypto/rand never fails
	}
	return &SigningKey{private}
}

func signingKeyOf(seed []byte) (*SigningKey, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("an Ed25519 seed of %d bytes, want %d", len(seed), ed25519.SeedSize)
	}
	return &SigningKey{ed25519.NewKeyFromSeed(seed)}, nil
}

// Public returns the key that verifies.
func (k *SigningKey) Public() PublicKey { return PublicKey(k.private[ed25519.SeedSize:]) }

// Sign signs a message. Equal messages have equal signatures.
func (k *SigningKey) Sign(message []byte) []byte { return ed25519.Sign(k.private, message) }

// Format prints the key as its id, whatever the verb: it never reaches a log.
func (k *SigningKey) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "signing key "+string(k.Public().ID()))
}

// EncodePEM returns the private key as one PEM block (PKCS #8), which OpenSSL reads too. It is a secret.
func (k *SigningKey) EncodePEM() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		panic(fmt.Sprintf("trust: encode an Ed25519 key: %v", err)) // x509 knows the type
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: der})
}

// DecodeSigningKey reads what EncodePEM wrote: one PEM block and nothing else. Errors: KeyFileDamaged, which does not quote it.
func DecodeSigningKey(b []byte) (*SigningKey, error) {
	bad := func(cause error) error {
		return &reason.Error{Code: reason.KeyFileDamaged, Doing: "read signing key", Cause: cause}
	}
	der, err := onlyBlock(b, privateKeyBlock)
	if err != nil {
		return nil, bad(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	private, ok := key.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, bad(errors.New("the block holds no Ed25519 key"))
	}
	return &SigningKey{private}, nil
}

// LoadSigningKey reads a private key from a file. Errors: those of ReadPrivate and DecodeSigningKey.
func LoadSigningKey(path string) (*SigningKey, error) { return loadKey(path, DecodeSigningKey) }
