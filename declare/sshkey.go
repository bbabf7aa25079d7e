package declare

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"
)

// SSHKey is one line of a file of authorized keys, sshd(8).
type SSHKey struct {
	Options string // as written; empty for none
	Type    string // "ssh-ed25519"
	Blob    string // the key itself, in base64
	Comment string // the rest of the line
	raw     []byte
}

// SSHKeyBytesMax bounds one line: what every OpenSSH since 2018 reads (SSH_MAX_PUBKEY_BYTES was 8192 before it grew).
const SSHKeyBytesMax = 8192

// The errors of ParseSSHKey. None of them quotes what was read, because it may be a secret in the wrong place.
var (
	ErrPrivateKey = errors.New("it is a private key, not a public one")

	errKeyLines    = errors.New("it is more than one line")
	errKeyControl  = errors.New("it holds a control character")
	errKeyLong     = fmt.Errorf("it has more than %d bytes", SSHKeyBytesMax)
	errKeyQuote    = errors.New("a quotation mark in its options is not closed")
	errKeyType     = errors.New("it names no type of key that can be authorized")
	errKeyNoBlob   = errors.New("nothing follows the type of the key")
	errKeyBase64   = errors.New("what follows the type is not base64: it may have been cut or wrapped")
	errKeyMismatch = errors.New("the key is not of the type that stands before it")
	errKeyBroken   = errors.New("the key is damaged: it may have been cut")
)

// sshKeyTypes are the key types of sshd(8), each with the number of fields that follow the type's name in the key.
var sshKeyTypes = map[string]int{
	"ssh-ed25519": 1, "ssh-rsa": 2, "ssh-dss": 4,
	"ecdsa-sha2-nistp256": 2, "ecdsa-sha2-nistp384": 2, "ecdsa-sha2-nistp521": 2,
	"sk-ssh-ed25519@openssh.com": 2, "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}

// ParseSSHKey reads one line of a file of authorized keys: options, type, key, comment. A line without a key, such as a comment, is an
// error too. No error quotes the line.
func ParseSSHKey(line string) (SSHKey, error) {
	switch {
	case looksPrivate(line):
		return SSHKey{}, ErrPrivateKey
	case len(line) > SSHKeyBytesMax:
		return SSHKey{}, errKeyLong
	case strings.ContainsAny(line, "\n\r"):
		return SSHKey{}, errKeyLines
	case strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0:
		return SSHKey{}, errKeyControl
	}
	const blank = " \t"
	rest := strings.Trim(line, blank)
	var k SSHKey
	if first, _, _ := cutBlank(rest); sshKeyTypes[first] == 0 {
		end, err := optionsEnd(rest)
		if err != nil {
			return SSHKey{}, err
		}
		k.Options, rest = rest[:end], strings.TrimLeft(rest[end:], blank)
	}
	k.Type, rest, _ = cutBlank(rest)
	if sshKeyTypes[k.Type] == 0 {
		return SSHKey{}, errKeyType
	}
	k.Blob, k.Comment, _ = cutBlank(rest)
	if k.Blob == "" {
		return SSHKey{}, errKeyNoBlob
	}
	var err error
	if k.raw, err = base64.StdEncoding.DecodeString(k.Blob); err != nil {
		return SSHKey{}, errKeyBase64
	}
	return k, k.check()
}

// looksPrivate finds the marks of private keys: PEM, OpenSSH's own form without its first line, and PuTTY's.
func looksPrivate(s string) bool {
	for _, mark := range []string{"PRIVATE KEY", "b3BlbnNzaC1rZXktdjE", "PuTTY-User-Key-File"} {
		if strings.Contains(s, mark) {
			return true
		}
	}
	return false
}

// cutBlank cuts a line at its first blanks.
func cutBlank(s string) (first, rest string, found bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}

// optionsEnd finds the first blank outside of quotation marks, as sshd does.
func optionsEnd(s string) (int, error) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t'):
			return i, nil
		}
	}
	if quoted {
		return 0, errKeyQuote
	}
	return len(s), nil
}

// check looks into the key: RFC 4253, 6.6, says that it begins with its type, and how its fields are written.
func (k *SSHKey) check() error {
	fields, ok := sshFields(k.raw)
	switch {
	case len(fields) == 0:
		return errKeyBroken
	case string(fields[0]) != k.Type:
		return errKeyMismatch
	case !ok || len(fields) != 1+sshKeyTypes[k.Type]:
		return errKeyBroken
	}
	const ed25519Bytes = 32 // RFC 8709
	if strings.HasSuffix(strings.TrimSuffix(k.Type, "@openssh.com"), "ssh-ed25519") && len(fields[1]) != ed25519Bytes {
		return errKeyBroken
	}
	return nil
}

// sshFields cuts a key into its fields, each behind its length in four bytes. ok is false where something is left over.
func sshFields(b []byte) (fields [][]byte, ok bool) {
	const lengthBytes = 4
	for len(b) >= lengthBytes {
		n := binary.BigEndian.Uint32(b)
		if uint64(n) > uint64(len(b)-lengthBytes) {
			return fields, false
		}
		fields = append(fields, b[lengthBytes:lengthBytes+n])
		b = b[lengthBytes+n:]
	}
	return fields, len(b) == 0
}

// Fingerprint is what ssh-keygen -l prints of the key: SHA256:...
func (k *SSHKey) Fingerprint() string {
	sum := sha256.Sum256(k.raw)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Weakness says why a key should not be trusted for long, or "": it is worth a word, and no reason to refuse it.
func (k *SSHKey) Weakness() string {
	const rsaBitsMin = 2048 // NIST SP 800-131A; sshd(8) has RequiredRSASize for it
	switch k.Type {
	case "ssh-dss":
		return "DSA, which sshd does not accept any more"
	case "ssh-rsa":
		if fields, _ := sshFields(k.raw); len(fields) == 3 {
			if bits := new(big.Int).SetBytes(fields[2]).BitLen(); bits < rsaBitsMin {
				return fmt.Sprintf("RSA of %d bits, where %d are the least today", bits, rsaBitsMin)
			}
		}
	}
	return ""
}
