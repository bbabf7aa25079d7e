package trust

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"

	"tako.dev/tako/internal/reason"
)

// Delivery is the key of a cluster from which the keys to the secrets of its hosts follow. It is immutable and safe for concurrent
// use.
type Delivery struct {
	key [masterSize]byte
}

func newDelivery() *Delivery {
	d := &Delivery{}
	rand.Read(d.key[:]) // never fails, says crypto/rand
	return d
}

// Format prints no key, whatever the verb: it never reaches a log.
func (d *Delivery) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "delivery key") }

// DataKey is the key to one value of one Secret. It is a secret.
type DataKey [masterSize]byte

// dataKeyIDSize makes two equal ids of two values as unlikely as two equal UUIDs.
const dataKeyIDSize = 16

// dataKeyID is the form of a key's id.
var dataKeyID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// TextOverhead is by how many bytes sealed text is longer than plain text.
const TextOverhead = tagSize

// Format prints no key, whatever the verb: it never reaches a log.
func (DataKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "data key") }

// DataKey derives the key to one value: of the Secret with that UID, under that key of its data. The id, 32 hexadecimal digits, is no
// secret. The same value of the same Secret has the same key and id on every server and at any time; another value has another key.
// So each key seals one text only, which is why SealText needs no nonce, and what is sealed changes with the value alone.
func (d *Delivery) DataKey(secretUID, key string, value []byte) (id string, k DataKey) {
	sum := sha256.Sum256(value)
	info := make([]byte, 0, 2*binary.MaxVarintLen64+len(secretUID)+len(key)+len(sum))
	for _, s := range []string{secretUID, key, string(sum[:])} { // with their lengths, so nothing can be moved from one to the next
		info = append(binary.AppendUvarint(info, uint64(len(s))), s...)
	}
	material := derive(d.key[:], nil, "tako/data/1\n"+string(info), masterSize+dataKeyIDSize)
	return hex.EncodeToString(material[masterSize:]), DataKey(material[:masterSize])
}

// SealText encrypts the value that the key was derived for, and no other: AES-256-GCM with a nonce of zeros. It is bound to the id of
// the key. The same text has the same result. It is TextOverhead bytes longer.
func (k DataKey) SealText(id string, plain []byte) []byte {
	return k.aead().Seal(nil, make([]byte, nonceSize), plain, []byte(id))
}

// OpenText decrypts what SealText made. Errors: SealBroken when it was damaged, or was sealed with another key.
func (k DataKey) OpenText(id string, sealed []byte) ([]byte, error) {
	plain, err := k.aead().Open(nil, make([]byte, nonceSize), sealed, []byte(id))
	if err != nil {
		return nil, &reason.Error{Code: reason.SealBroken, Doing: "open what is sealed with key " + clipped(id), Cause: errors.New("it was sealed with another key, or damaged")}
	}
	return plain, nil
}

func (k DataKey) aead() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(fmt.Sprintf("trust: AES with a key of %d bytes: %v", len(k), err))
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("trust: GCM: %v", err))
	}
	return aead
}
