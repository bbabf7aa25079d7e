package trust

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"tako.dev/tako/internal/reason"
)

// Purpose says what a sealed text is for. It goes into the derivation of the key, so what was sealed for one purpose cannot be
// opened for another.
type Purpose string

// The purposes. Their texts are part of what is on disk: a changed one makes everything sealed for it unreadable.
const (
	PurposeClusterKeys Purpose = "cluster-keys" // Keys, under the machine secret
	PurposeTrustPin    Purpose = "trust-pin"    // the pin of the trust documents, under the key for Secrets at rest; its name is the cluster
	PurposeObject      Purpose = "object"       // an object in the store, under the key for Secrets at rest; its name is the storage key
)

const (
	// masterSize is a key of a Ring: as strong as the AES-256 that it ends in.
	masterSize = 32
	// sealVersion is the first byte of everything sealed.
	sealVersion = 1
	// sealIDSize is enough to tell a handful of keys apart; a wrong guess fails at the tag.
	sealIDSize = 8
	// saltSize makes two equal salts under one key as unlikely as guessing the key: see Seal.
	saltSize   = 32
	headerSize = 1 + sealIDSize + saltSize
	tagSize    = 16
	nonceSize  = 12
	// SealOverhead is by how many bytes sealed text is longer than plain text.
	SealOverhead = headerSize + tagSize
	// ringKeysMax is far more than a rotation needs, which is two: the new key, and the old one until nothing is left under it.
	ringKeysMax = 8
)

// Ring is a list of keys for one use: the first seals, all open. It is immutable and safe for concurrent use.
type Ring struct {
	keys []master
}

type master struct {
	id  [sealIDSize]byte
	key [masterSize]byte
}

// newMaster gives a key its id, which tells nothing about the key.
func newMaster(key [masterSize]byte) master {
	m := master{key: key}
	copy(m.id[:], derive(key[:], nil, "tako/seal/1/id", sealIDSize))
	return m
}

// NewRing makes a Ring of one fresh random key.
func NewRing() *Ring {
	var key [masterSize]byte
	rand.Read(key[:]) // never fails, says crypto/rand
	return &Ring{keys: []master{newMaster(key)}}
}

// ringOf makes a Ring of keys from outside.
func ringOf(keys [][]byte) (*Ring, error) {
	if len(keys) == 0 || len(keys) > ringKeysMax {
		return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read keys", Cause: fmt.Errorf("%d keys, want 1 to %d", len(keys), ringKeysMax)}
	}
	r := &Ring{}
	for _, k := range keys {
		if len(k) != masterSize {
			return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read keys", Cause: fmt.Errorf("a key of %d bytes, want %d", len(k), masterSize)}
		}
		m := newMaster([masterSize]byte(k))
		if slices.ContainsFunc(r.keys, func(o master) bool { return o.id == m.id }) {
			return nil, &reason.Error{Code: reason.KeyFileDamaged, Doing: "read keys", Cause: errors.New("a key stands there twice")}
		}
		r.keys = append(r.keys, m)
	}
	return r, nil
}

// masters returns copies of the keys, in order.
func (r *Ring) masters() [][]byte {
	list := make([][]byte, 0, len(r.keys))
	for _, m := range r.keys {
		list = append(list, slices.Clone(m.key[:]))
	}
	return list
}

// ID names the key that seals: 16 hexadecimal digits. It is no secret and may be logged and put into a backup.
func (r *Ring) ID() string { return hex.EncodeToString(r.keys[0].id[:]) }

// Format prints the ring as its id, whatever the verb: its keys never reach a log.
func (r *Ring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keys "+r.ID()) }

// Seal encrypts plain for a purpose and binds it to a name: it opens for the same two only. The result is plain and SealOverhead
// bytes, and shows which key of which ring opens it.
//
// Every call derives its own AES-256-GCM key and nonce, from the ring's key and 32 random bytes. So there is no number of writes
// after which a random nonce of 12 bytes becomes likely to repeat (2^32, which a busy store reaches in years), and nothing to
// count across servers; the price is one HKDF, some microseconds.
func (r *Ring) Seal(purpose Purpose, name string, plain []byte) []byte {
	m := r.keys[0]
	out := make([]byte, headerSize, headerSize+len(plain)+tagSize)
	out[0] = sealVersion
	copy(out[1:], m.id[:])
	rand.Read(out[1+sealIDSize:]) // never fails, says crypto/rand
	aead, nonce := m.once(purpose, out[1+sealIDSize:])
	return aead.Seal(out, nonce, plain, associated(out, name))
}

// Open decrypts what Seal made for the same purpose and name. stale says that a key other than the first sealed it, so it
// should be written again. Errors: SealKeyUnknown when no key of the ring made it, SealBroken when it was damaged, or was moved
// from another name or purpose; both are final.
func (r *Ring) Open(purpose Purpose, name string, sealed []byte) (plain []byte, stale bool, err error) {
	doing := fmt.Sprintf("open sealed %s %q", purpose, clipped(name))
	if len(sealed) < SealOverhead || sealed[0] != sealVersion {
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: doing, Cause: errors.New("it does not begin like something sealed")}
	}
	id := [sealIDSize]byte(sealed[1:])
	i := slices.IndexFunc(r.keys, func(m master) bool { return m.id == id })
	if i < 0 {
		return nil, false, &reason.Error{
			Code: reason.SealKeyUnknown, Doing: doing,
			Cause: fmt.Errorf("it was sealed with key %x, and the key here is %s", id, r.ID()),
		}
	}
	header := sealed[:headerSize]
	aead, nonce := r.keys[i].once(purpose, header[1+sealIDSize:])
	plain, err = aead.Open(nil, nonce, sealed[headerSize:], associated(header, name))
	if err != nil {
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: doing, Cause: errors.New("its tag is wrong")}
	}
	return plain, i > 0, nil
}

// once derives the cipher and nonce of one sealed text.
func (m *master) once(purpose Purpose, salt []byte) (cipher.AEAD, []byte) {
	material := derive(m.key[:], salt, "tako/seal/1/"+string(purpose), masterSize+nonceSize)
	block, err := aes.NewCipher(material[:masterSize])
	if err != nil {
		panic(fmt.Sprintf("trust: AES with a key of %d bytes: %v", masterSize, err))
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("trust: GCM: %v", err))
	}
	return aead, material[masterSize:]
}

// associated is what the tag covers besides the text. The header has a fixed length, so the name needs none in front of it.
func associated(header []byte, name string) []byte {
	return append(slices.Clone(header[:headerSize]), name...)
}

// derive is HKDF with SHA-256 (RFC 5869).
func derive(key, salt []byte, info string, size int) []byte {
	out, err := hkdf.Key(sha256.New, key, salt, info, size)
	if err != nil {
		panic(fmt.Sprintf("trust: HKDF of %d bytes: %v", size, err)) // only for more than 8,160 bytes
	}
	return out
}

// clipped bounds a name from outside for a message.
func clipped(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
