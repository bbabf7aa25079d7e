package trust

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"tako.dev/tako/internal/reason"
)

const (
	sealingBlock = "TAKO SEALING KEY"
	// SealingKeySize is the length of the public half of a SealingKey, in bytes: a point of X25519.
	SealingKeySize = 32
	// SealedKeySize is the length of a sealed DataKey, in bytes: the point of whoever sealed it, the key, and the tag.
	SealedKeySize = SealingKeySize + masterSize + tagSize
)

// Keys are sealed to hosts by HPKE (RFC 9180), in its base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM.
func sealingKEM() hpke.KEM   { return hpke.DHKEM(ecdh.X25519()) }
func sealingKDF() hpke.KDF   { return hpke.HKDFSHA256() }
func sealingAEAD() hpke.AEAD { return hpke.AES256GCM() }

// SealingKey is the key of a host that the keys to its secrets are sealed to. It is made when the host joins, leaves it never, and is
// changed by joining again only. It is immutable and safe for concurrent use.
type SealingKey struct {
	private hpke.PrivateKey
}

// NewSealingKey makes a fresh random key.
func NewSealingKey() *SealingKey {
	private, err := sealingKEM().GenerateKey()
	if err != nil {
		panic(fmt.Sprintf("trust: make a key of X25519: %v", err)) // crypto/rand never fails
	}
	return &SealingKey{private}
}

// Public returns the half that others seal to. The caller owns it.
func (k *SealingKey) Public() []byte { return k.private.PublicKey().Bytes() }

// Format prints no key, whatever the verb: it never reaches a log.
func (k *SealingKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "sealing key") }

// EncodePEM returns the private key as one PEM block. It is a secret.
func (k *SealingKey) EncodePEM() []byte {
	b, err := k.private.Bytes()
	if err != nil {
		panic(fmt.Sprintf("trust: encode a key of X25519: %v", err)) // it is in memory
	}
	return pem.EncodeToMemory(&pem.Block{Type: sealingBlock, Bytes: b})
}

// DecodeSealingKey reads what EncodePEM wrote: one PEM block and nothing else. Errors: KeyFileDamaged, which does not quote it.
func DecodeSealingKey(b []byte) (*SealingKey, error) {
	raw, err := onlyBlock(b, sealingBlock)
	if err != nil {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read sealing key", Cause: err}
	}
	private, err := sealingKEM().NewPrivateKey(raw)
	if err != nil {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read sealing key", Cause: errors.New("the block holds no key of X25519")}
	}
	return &SealingKey{private}, nil
}

// LoadSealingKey reads a sealing key from a file. Errors: those of ReadPrivate and DecodeSealingKey.
func LoadSealingKey(path string) (*SealingKey, error) { return loadKey(path, DecodeSealingKey) }

// SaveSealingKey writes a sealing key to a new file. Errors: those of CreatePrivate.
func SaveSealingKey(key *SealingKey, path string) error { return CreatePrivate(path, key.EncodePEM()) }

// Envelope says what a sealed key is for: it opens for the same three only.
type Envelope struct {
	Cluster ClusterID
	NodeUID string // of the Node whose host opens it
	KeyID   string // of the DataKey
}

// info is what HPKE binds the sealed text to. The first two have fixed lengths, so nothing can be moved from one to the next.
func (e Envelope) info() ([]byte, error) {
	if err := e.Cluster.validate(); err != nil {
		return nil, err
	}
	if !dataKeyID.MatchString(e.KeyID) {
		return nil, fmt.Errorf("%q is no id of a key", clipped(e.KeyID))
	}
	return []byte("tako/envelope/1\n" + string(e.Cluster) + "\n" + e.KeyID + "\n" + e.NodeUID), nil
}

// SealKey seals a key to the host with that sealing key: SealedKeySize bytes, others each time. Errors: InvalidValue when the
// sealing key is none, or the envelope is incomplete.
func SealKey(sealing []byte, e Envelope, key DataKey) ([]byte, error) {
	doing := "seal key " + clipped(e.KeyID) + " to a host"
	info, err := e.info()
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	public, err := sealingPublic(sealing)
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	sealed, err := hpke.Seal(public, sealingKDF(), sealingAEAD(), info, key[:])
	if err != nil {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: err}
	}
	return sealed, nil
}

// Open opens what SealKey made for the same envelope. Errors: SealBroken when it was sealed to another host, for another key, or was
// damaged.
func (k *SealingKey) Open(e Envelope, sealed []byte) (DataKey, error) {
	bad := func(why string) (DataKey, error) {
		return DataKey{}, &reason.Error{Code: reason.SealBroken, Doing: "open the sealed key " + clipped(e.KeyID), Cause: errors.New(why)}
	}
	info, err := e.info()
	if err != nil {
		return bad(err.Error())
	}
	if len(sealed) != SealedKeySize {
		return bad(fmt.Sprintf("it has %d bytes, want %d", len(sealed), SealedKeySize))
	}
	plain, err := hpke.Open(k.private, sealingKDF(), sealingAEAD(), info, sealed)
	if err != nil || len(plain) != masterSize {
		return bad("it was sealed to another host or for another key, or was damaged")
	}
	return DataKey(plain), nil
}

// sealingPublic reads the public half of a sealing key. It refuses the points that agree on the same secret with everybody, for
// which nothing can be sealed (RFC 7748, section 6.1).
func sealingPublic(b []byte) (hpke.PublicKey, error) {
	public, err := sealingKEM().NewPublicKey(b)
	if err != nil || len(b) != SealingKeySize {
		return nil, fmt.Errorf("a sealing key of %d bytes, want %d", len(b), SealingKeySize)
	}
	if _, _, err := hpke.NewSender(public, sealingKDF(), sealingAEAD(), nil); err != nil {
		return nil, errors.New("a sealing key that nothing can be sealed to")
	}
	return public, nil
}
