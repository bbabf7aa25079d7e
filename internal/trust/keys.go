package trust

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/internal/reason"
)

const (
	// keysVersion is of the encoding. Another one was written by another version of tako.
	keysVersion = 1
	// keysMax is several times what they take: some 700 bytes, and 32 for every key that was rotated.
	keysMax = 16 << 10
	// keysLevelsMax is how deep the encoding nests: a list of keys in a map is 2, and the library wants at least 4.
	keysLevelsMax = 4
)

// Keys are what all servers of a cluster share. They are immutable and safe for concurrent use.
type Keys struct {
	cluster ClusterID
	ca      *CA
	heads   *SigningKey
	atRest  *Ring
	pepper  *Pepper
	// delivery is what the keys to the secrets of hosts follow from.
	delivery *Delivery
}

// keysWire is how Keys are encoded.
type keysWire struct {
	Version       uint      `cbor:"version"`
	Cluster       ClusterID `cbor:"cluster"`
	CACertificate []byte    `cbor:"caCertificate"` // DER
	CAKey         []byte    `cbor:"caKey"`         // PKCS #8
	Heads         []byte    `cbor:"heads"`         // the seed of an Ed25519 key
	AtRest        [][]byte  `cbor:"atRest"`        // the key that seals first
	Pepper        []byte    `cbor:"pepper"`
	// Delivery is missing in keys that were stored before there were hosts to deliver to.
	Delivery []byte `cbor:"delivery,omitempty"`
}

// NewKeys makes the keys of a new cluster, all fresh.
func NewKeys(cluster ClusterID, now time.Time) (*Keys, error) {
	ca, err := NewCA(cluster, now)
	if err != nil {
		return nil, err
	}
	var pepper [masterSize]byte
	rand.Read(pepper[:]) // never fails, says crypto/rand
	return &Keys{cluster: cluster, ca: ca, heads: NewSigningKey(), atRest: NewRing(), pepper: &Pepper{pepper}, delivery: newDelivery()}, nil
}

// Cluster returns whose keys they are.
func (k *Keys) Cluster() ClusterID { return k.cluster }

// CA returns the certificate authority.
func (k *Keys) CA() *CA { return k.ca }

// Heads returns the key that signs the heads of hosts.
func (k *Keys) Heads() *SigningKey { return k.heads }

// AtRest returns the keys for Secrets in the store: seal and open with PurposeObject and the storage key as name.
func (k *Keys) AtRest() *Ring { return k.atRest }

// Pepper returns what token hashes are made with.
func (k *Keys) Pepper() *Pepper { return k.pepper }

// Delivery returns what the keys to the secrets of hosts follow from.
func (k *Keys) Delivery() *Delivery { return k.delivery }

// Format prints the keys as whose they are, whatever the verb: none reaches a log.
func (k *Keys) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "keys of cluster "+string(k.cluster))
}

// Seal encrypts the keys under the machine secret, for the store.
func (k *Keys) Seal(secret *Ring) ([]byte, error) {
	const doing = "encode cluster keys"
	caKey, err := x509.MarshalPKCS8PrivateKey(k.ca.key)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	b, err := canonical.Marshal(keysWire{
		Version: keysVersion, Cluster: k.cluster, CACertificate: k.ca.certificate.Raw, CAKey: caKey,
		Heads: k.heads.private.Seed(), AtRest: k.atRest.masters(), Pepper: k.pepper.key[:],
		Delivery: k.delivery.key[:],
	})
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: err}
	}
	return secret.Seal(PurposeClusterKeys, "", b), nil
}

// SealPin encrypts the hash of trust document 1, for the store: who can write there and has no key cannot put trust documents of his
// own into the place of the cluster's.
func (k *Keys) SealPin(pin Hash) []byte {
	return k.atRest.Seal(PurposeTrustPin, string(k.cluster), pin[:])
}

// OpenPin decrypts what SealPin made. Errors: SealKeyUnknown and SealBroken.
func (k *Keys) OpenPin(sealed []byte) (Hash, error) {
	b, _, err := k.atRest.Open(PurposeTrustPin, string(k.cluster), sealed)
	if err != nil {
		return Hash{}, err
	}
	if len(b) != len(Hash{}) {
		return Hash{}, &reason.Error{Code: reason.SealBroken, Doing: "open the pin of the trust documents", Cause: fmt.Errorf("it has %d bytes", len(b))}
	}
	return Hash(b), nil
}

// OpenKeys decrypts what Keys.Seal made. stale says that the machine secret was rotated since, or that a key was missing and has been
// made now: the keys should be sealed and stored again, and not used unless nobody else has stored keys meanwhile. Errors:
// SealKeyUnknown when it was done with another machine secret, SealBroken when it was damaged, StateNewer when another version of tako
// wrote it.
func OpenKeys(secret *Ring, sealed []byte) (k *Keys, stale bool, err error) {
	if len(sealed) > keysMax {
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: "open cluster keys", Cause: fmt.Errorf("they have more than %d bytes", keysMax)}
	}
	b, stale, err := secret.Open(PurposeClusterKeys, "", sealed)
	if e := new(reason.Error); errors.As(err, &e) {
		e.Doing = "open cluster keys"
		if e.Code == reason.SealKeyUnknown {
			e.Hint = "copy the machine secret from a server of this cluster, or from the place where it is kept"
		}
		return nil, false, e
	}
	k, added, err := decodeKeys(b)
	return k, stale || added, err
}

// decodeKeys reads keys; added says that one was missing and has been made.
func decodeKeys(b []byte) (k *Keys, added bool, err error) {
	const doing = "decode cluster keys"
	var version struct {
		Version uint `cbor:"version"`
	}
	if err := lenient.Unmarshal(b, &version); err != nil {
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: doing, Cause: errors.New("they are no CBOR map")}
	}
	if version.Version != keysVersion {
		return nil, false, &reason.Error{Code: reason.StateNewer, Doing: doing, Cause: fmt.Errorf("they have version %d, want %d", version.Version, keysVersion)}
	}
	var w keysWire
	if err := strict.Unmarshal(b, &w); err != nil {
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: doing, Cause: errors.New("their fields are not those of this version")}
	}
	k, err = w.keys(doing)
	if err != nil {
		// What is wrong is said without its cause, which could quote a key.
		return nil, false, &reason.Error{Code: reason.SealBroken, Doing: doing, Cause: errors.New("a key in them is malformed")}
	}
	return k, w.Delivery == nil, nil
}

func (w *keysWire) keys(doing string) (*Keys, error) {
	if err := w.Cluster.validate(); err != nil {
		return nil, err
	}
	private, err := x509.ParsePKCS8PrivateKey(w.CAKey)
	if err != nil {
		return nil, err
	}
	key, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the authority's key is a %T", private)
	}
	ca, err := caOf(doing, w.CACertificate, key)
	if err != nil {
		return nil, err
	}
	heads, err := signingKeyOf(w.Heads)
	if err != nil {
		return nil, err
	}
	atRest, err := ringOf(w.AtRest)
	if err != nil {
		return nil, err
	}
	if len(w.Pepper) != masterSize {
		return nil, fmt.Errorf("a pepper of %d bytes", len(w.Pepper))
	}
	delivery := newDelivery()
	if w.Delivery != nil {
		if len(w.Delivery) != masterSize {
			return nil, fmt.Errorf("a delivery key of %d bytes", len(w.Delivery))
		}
		delivery.key = [masterSize]byte(w.Delivery)
	}
	return &Keys{cluster: w.Cluster, ca: ca, heads: heads, atRest: atRest, pepper: &Pepper{[masterSize]byte(w.Pepper)}, delivery: delivery}, nil
}

// canonical is core deterministic encoding (RFC 8949, section 4.2.1), with times as whole seconds. strict reads exactly what a
// struct declares, lenient leaves out what it does not know.
var canonical, strict, lenient = codecs()

func codecs() (cbor.EncMode, cbor.DecMode, cbor.DecMode) {
	options := cbor.CoreDetEncOptions()
	options.Time = cbor.TimeUnix
	enc, err := options.EncMode()
	if err != nil {
		panic(fmt.Sprintf("trust: encoding options of the CBOR library: %v", err))
	}
	bounds := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: keysLevelsMax, MaxArrayElements: 16, MaxMapPairs: 16, UTF8: cbor.UTF8RejectInvalid,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}
	lenient, err := bounds.DecMode()
	if err != nil {
		panic(fmt.Sprintf("trust: decoding options of the CBOR library: %v", err))
	}
	bounds.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	strict, err := bounds.DecMode()
	if err != nil {
		panic(fmt.Sprintf("trust: decoding options of the CBOR library: %v", err))
	}
	return enc, strict, lenient
}
