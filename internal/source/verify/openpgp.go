package verify

import (
	"bytes"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// keyring is OpenPGP keys that are trusted.
type keyring openpgp.EntityList

// rsaBitsMin is what NIST SP 800-131A asks for.
const rsaBitsMin = 2048

// clockSkew is how far the clock of who signs may be ahead: what Kerberos allows. A key that expires within that time counts
// as expired.
const clockSkew = 5 * time.Minute

func readKeyring(list []byte) (keyring, error) {
	const begin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	list = bytes.TrimSpace(list)
	if len(list) == 0 {
		return nil, nil
	}
	if bytes.Contains(list, []byte("-----BEGIN PGP PRIVATE KEY BLOCK-----")) {
		return nil, errPrivate
	}
	if !bytes.Contains(list, []byte(begin)) {
		keys, err := openpgp.ReadKeyRing(bytes.NewReader(list))
		return keyring(keys), publicOnly(keys, err)
	}
	var all keyring
	for _, block := range strings.Split(string(list), begin)[1:] {
		keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(begin + block))
		if err := publicOnly(keys, err); err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	return all, nil
}

var errPrivate = errors.New("it holds a private key")

// publicOnly refuses lists with private keys: those belong to who signs, and to nobody else.
func publicOnly(keys openpgp.EntityList, err error) error {
	for _, k := range keys {
		if k.PrivateKey != nil {
			return errPrivate
		}
	}
	return err
}

func (k keyring) check(payload, signature []byte, now time.Time) (Signer, error) {
	block, err := armor.Decode(bytes.NewReader(signature))
	if err != nil || block.Type != "PGP SIGNATURE" {
		return Signer{}, errors.New("its OpenPGP signature is malformed")
	}
	config := &packet.Config{Time: func() time.Time { return now.Add(clockSkew) }}
	sig, entity, err := openpgp.VerifyDetachedSignature(openpgp.EntityList(k), bytes.NewReader(payload), block.Body, config)
	if err == nil {
		err = strong(sig, entity)
	}
	if err != nil {
		return Signer{}, inWords(sig, err)
	}
	s := Signer{Kind: OpenPGP, Fingerprint: hex.EncodeToString(entity.PrimaryKey.Fingerprint)}
	if id := entity.PrimaryIdentity(); id != nil {
		s.Identity = id.Name
	}
	return s, nil
}

// strong refuses what the library verifies all the same.
func strong(sig *packet.Signature, entity *openpgp.Entity) error {
	switch {
	case sig.Hash != crypto.SHA256 && sig.Hash != crypto.SHA384 && sig.Hash != crypto.SHA512:
		return fmt.Errorf("its signature uses %s, which is too weak or not known", sig.Hash)
	case sig.SigType != packet.SigTypeBinary:
		return errors.New("its signature is not one of a document")
	}
	for _, key := range (openpgp.EntityList{entity}).KeysById(*sig.IssuerKeyId) {
		for _, public := range []*packet.PublicKey{key.PublicKey, entity.PrimaryKey} {
			if err := strongKey(public); err != nil {
				return err
			}
		}
		if sig.CreationTime.Before(key.PublicKey.CreationTime) {
			return errors.New("its signature is older than the key")
		}
	}
	return nil
}

func strongKey(key *packet.PublicKey) error {
	switch key.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly:
		bits, err := key.BitLength()
		if err != nil || bits < rsaBitsMin {
			return fmt.Errorf("the key is RSA of %d bits, less than %d", bits, rsaBitsMin)
		}
	case packet.PubKeyAlgoECDSA, packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448:
	default:
		return errors.New("the key is of a kind that is too weak or not known")
	}
	return nil
}

// inWords says what is wrong with a signature. sig may be nil.
func inWords(sig *packet.Signature, err error) error {
	var wrong pgperrors.SignatureError
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer) && sig != nil && sig.IssuerKeyId != nil:
		return fmt.Errorf("it was signed with OpenPGP key %016X, which is not in the list or may not sign", *sig.IssuerKeyId)
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return errors.New("it was signed with an OpenPGP key that is not in the list or may not sign")
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return errors.New("the OpenPGP key that signed it has expired, or is not valid yet")
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return errors.New("the OpenPGP key that signed it was revoked")
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return errors.New("its signature has expired, or is of the future")
	case errors.As(err, &wrong):
		return fmt.Errorf("its content is not what was signed: %w", err)
	}
	return err
}
