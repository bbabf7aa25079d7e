package verify

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// namespace is what git signs for. A signature for another one was made for something else.
const namespace = "git"

// sshKey is a line of the list.
type sshKey struct {
	key        ssh.PublicKey
	principals string
	after      time.Time // zero: always
	before     time.Time // zero: for ever
}

func readSSHKeys(list []byte) ([]sshKey, error) {
	var keys []sshKey
	n := 0
	for line := range strings.Lines(string(list)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, usable, err := readSSHLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if usable {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// readSSHLine reads "KEYTYPE BASE64 [COMMENT]", or "PRINCIPALS [OPTIONS] KEYTYPE BASE64 [COMMENT]". A line for other
// namespaces only is not usable.
func readSSHLine(line string) (key sshKey, usable bool, err error) {
	first, _, _ := strings.Cut(line, " ")
	if !isKeyType(first) {
		key.principals = first
		line = strings.TrimSpace(strings.TrimPrefix(line, first))
	}
	// What stands before the key type are options, with the syntax of those in authorized_keys.
	public, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(rest) > 0 {
		return sshKey{}, false, errors.New("it is no public key")
	}
	if key.principals == "" {
		key.principals = comment
	}
	key.key, usable = public, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			usable = slices.Contains(strings.Split(value, ","), namespace)
		case "valid-after":
			key.after, err = parseTime(value)
		case "valid-before":
			key.before, err = parseTime(value)
		default:
			err = fmt.Errorf("option %q is not supported", name)
		}
		if err != nil {
			return sshKey{}, false, err
		}
	}
	return key, usable, strongSSH(public)
}

func isKeyType(word string) bool {
	for _, prefix := range []string{"ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"} {
		if strings.HasPrefix(word, prefix) && !strings.Contains(word, "=") {
			return true
		}
	}
	return false
}

// parseTime reads YYYYMMDD[HHMM[SS]][Z]. Local time would be that of the server, which nobody who writes a list knows, so it is
// UTC with or without the Z.
func parseTime(s string) (time.Time, error) {
	digits := strings.TrimSuffix(s, "Z")
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.Parse(layout, digits); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time such as 20261231Z", s)
}

func strongSSH(key ssh.PublicKey) error {
	switch key.Type() {
	case ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoSKECDSA256:
		return nil
	case ssh.KeyAlgoRSA:
		crypto, ok := key.(ssh.CryptoPublicKey)
		if !ok {
			return errors.New("the RSA key is malformed")
		}
		if public, ok := crypto.CryptoPublicKey().(*rsa.PublicKey); !ok || public.N.BitLen() < rsaBitsMin {
			return fmt.Errorf("the key is RSA of less than %d bits", rsaBitsMin)
		}
		return nil
	}
	return fmt.Errorf("keys of type %q are not supported", key.Type())
}

// sshSignature is the content of an SSHSIG (PROTOCOL.sshsig, "Blob format"), after its magic.
type sshSignature struct {
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  []byte
	Hash      string
	Signature []byte
}

// signedText is what the key has signed, after the magic.
type signedText struct {
	Namespace string
	Reserved  []byte
	Hash      string
	Digest    []byte
}

const magic = "SSHSIG"

func decodeSSH(armoured []byte) (sshSignature, error) {
	malformed := errors.New("its SSH signature is malformed")
	body, ok := bytes.CutPrefix(armoured, []byte(beginSSH))
	body, end := bytes.CutSuffix(body, []byte("-----END SSH SIGNATURE-----"))
	if !ok || !end {
		return sshSignature{}, malformed
	}
	blob, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(body)), ""))
	if err != nil {
		return sshSignature{}, malformed
	}
	content, ok := bytes.CutPrefix(blob, []byte(magic))
	var s sshSignature
	if !ok || ssh.Unmarshal(content, &s) != nil || s.Version != 1 {
		return sshSignature{}, malformed
	}
	return s, nil
}

func checkSSH(keys []sshKey, payload, armoured []byte, now time.Time) (Signer, error) {
	s, err := decodeSSH(armoured)
	if err != nil {
		return Signer{}, err
	}
	public, err := ssh.ParsePublicKey(s.PublicKey)
	if err != nil {
		return Signer{}, errors.New("its SSH signature has a malformed key")
	}
	if s.Namespace != namespace {
		return Signer{}, fmt.Errorf("its SSH signature was made for %q, not for %q", s.Namespace, namespace)
	}
	key, err := listed(keys, public, now)
	if err != nil {
		return Signer{}, err
	}
	if err := verifySSH(s, key.key, payload); err != nil {
		return Signer{}, err
	}
	return Signer{Kind: SSH, Fingerprint: ssh.FingerprintSHA256(key.key), Identity: key.principals}, nil
}

// listed finds a key in the list. It may stand there several times, with other times of validity.
func listed(keys []sshKey, public ssh.PublicKey, now time.Time) (sshKey, error) {
	fingerprint := ssh.FingerprintSHA256(public)
	err := fmt.Errorf("it was signed with SSH key %s, which is not in the list", fingerprint)
	for _, k := range keys {
		if !bytes.Equal(k.key.Marshal(), public.Marshal()) {
			continue
		}
		switch {
		case !k.after.IsZero() && now.Before(k.after):
			err = fmt.Errorf("SSH key %s is valid from %s on", fingerprint, k.after.Format(time.RFC3339))
		case !k.before.IsZero() && !now.Before(k.before):
			err = fmt.Errorf("SSH key %s has expired at %s", fingerprint, k.before.Format(time.RFC3339))
		default:
			return k, nil
		}
	}
	return sshKey{}, err
}

func verifySSH(s sshSignature, key ssh.PublicKey, payload []byte) error {
	var digest []byte
	switch s.Hash {
	case "sha512":
		sum := sha512.Sum512(payload)
		digest = sum[:]
	case "sha256":
		sum := sha256.Sum256(payload)
		digest = sum[:]
	default:
		return fmt.Errorf("its SSH signature uses %q, which is too weak or not known", s.Hash)
	}
	var sig ssh.Signature
	if err := ssh.Unmarshal(s.Signature, &sig); err != nil {
		return errors.New("its SSH signature is malformed")
	}
	if key.Type() == ssh.KeyAlgoRSA && sig.Format != ssh.KeyAlgoRSASHA256 && sig.Format != ssh.KeyAlgoRSASHA512 {
		return fmt.Errorf("its SSH signature is %q, which uses SHA-1", sig.Format)
	}
	// The first flag of a security key says that somebody touched it (PROTOCOL.u2f).
	if strings.HasPrefix(key.Type(), "sk-") && (len(sig.Rest) == 0 || sig.Rest[0]&1 == 0) {
		return errors.New("the security key that signed it was not touched")
	}
	text := append([]byte(magic), ssh.Marshal(signedText{s.Namespace, s.Reserved, s.Hash, digest})...)
	if err := key.Verify(text, &sig); err != nil {
		return fmt.Errorf("its content is not what was signed: %w", err)
	}
	return nil
}
