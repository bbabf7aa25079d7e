package verify

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	beginOpenPGP = "-----BEGIN PGP SIGNATURE-----"
	beginSSH     = "-----BEGIN SSH SIGNATURE-----"
)

// Kind is a kind of signature.
type Kind string

// The kinds.
const (
	OpenPGP Kind = "openpgp"
	SSH     Kind = "ssh"
)

// Signer is who signed: a key of the list.
type Signer struct {
	Kind        Kind
	Fingerprint string // OpenPGP: hexadecimal, of the primary key; SSH: "SHA256:…"
	Identity    string // the user id or the principals that the list has with the key; may be empty
}

// Authorities are the keys that are trusted.
type Authorities struct {
	openPGP keyring
	ssh     []sshKey
}

// ParseAuthorities reads lists of keys: OpenPGP public keys, armoured (several blocks may follow one another) or binary;
// and SSH public keys, one a line, as in authorized_keys or as in the allowed signers file of ssh-keygen(1). Errors are
// InvalidValue. A list without any key is an error: it would refuse everything.
func ParseAuthorities(openPGP, ssh []byte) (*Authorities, error) {
	a := &Authorities{}
	var err error
	if a.openPGP, err = readKeyring(openPGP); err != nil {
		return nil, badList("OpenPGP keys", err, "export them with gpg --armor --export")
	}
	if a.ssh, err = readSSHKeys(ssh); err != nil {
		return nil, badList("SSH keys", err, "write one public key a line, or an allowed signers file as in ssh-keygen(1)")
	}
	if len(a.openPGP) == 0 && len(a.ssh) == 0 {
		return nil, badList("keys of who may sign", errors.New("there is none"), "add an OpenPGP or SSH public key")
	}
	return a, nil
}

func badList(what string, err error, hint string) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: "read the list of " + what, Cause: err, Hint: hint}
}

// Commit checks the signature of a commit object as it is stored. Errors are SignatureRefused.
func (a *Authorities) Commit(raw []byte, now time.Time) (Signer, error) {
	payload, signature, err := splitCommit(raw)
	if err != nil {
		return Signer{}, refused("commit", err)
	}
	return a.check("commit", payload, signature, now)
}

// Tag checks the signature of an annotated tag as it is stored. Errors are SignatureRefused.
func (a *Authorities) Tag(raw []byte, now time.Time) (Signer, error) {
	payload, signature, err := splitTag(raw)
	if err != nil {
		return Signer{}, refused("tag", err)
	}
	return a.check("tag", payload, signature, now)
}

// Verify checks a detached signature, armoured, over a payload. Errors are SignatureRefused.
func (a *Authorities) Verify(payload, signature []byte, now time.Time) (Signer, error) {
	return a.check("object", payload, signature, now)
}

// signatureMax bounds a signature: RSA of 16384 bits with all that gpg adds has less than 8 kB.
const signatureMax = 64 << 10

func (a *Authorities) check(what string, payload, signature []byte, now time.Time) (Signer, error) {
	var s Signer
	var err error
	switch signature := bytes.TrimSpace(signature); {
	case len(signature) > signatureMax:
		err = fmt.Errorf("its signature has more than %d bytes", signatureMax)
	case bytes.HasPrefix(signature, []byte(beginOpenPGP)):
		s, err = a.openPGP.check(payload, signature, now)
	case bytes.HasPrefix(signature, []byte(beginSSH)):
		s, err = checkSSH(a.ssh, payload, signature, now)
	case len(signature) == 0:
		err = errNoSignature
	default:
		err = errors.New("its signature is neither OpenPGP nor SSH")
	}
	if err != nil {
		return Signer{}, refused(what, err)
	}
	return s, nil
}

func refused(what string, err error) error {
	hint := "sign it with a key of the list, or add the key of who signed it"
	if errors.Is(err, errNoSignature) {
		hint = "sign it: git commit -S, git tag -s; or merge it on a forge that signs"
	}
	return &reason.Error{Code: reason.SignatureRefused, Doing: "verify the " + what, Cause: err, Hint: hint}
}
