package trust

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Bounds of a document. They keep one below documentMax, and verifying it below some milliseconds.
const (
	// RootKeysMax is more people than ever meet to sign.
	RootKeysMax = 16
	// casMax is the authority in use, its successor, and those that hosts which were away may still have.
	casMax = 8
	// caSizeMax is several times a P-256 certificate, and enough for somebody else's RSA one.
	caSizeMax = 4 << 10
	// roleKeysMax is a few keys for each of some dozens of environments.
	roleKeysMax = 128
	// revokedMax is for ever: what is revoked stays so. At a key a month it lasts 20 years.
	revokedMax = 256
	// fallbackMax is as many places as a host would try before it gives up for the day.
	fallbackMax    = 16
	fallbackURLMax = 1 << 10
)

// clusterIDSize in random bytes makes 24 characters without left-over bits; no two clusters ever get the same.
const clusterIDSize = 15

// ClusterID names a cluster: 24 small letters and digits. It is a label of DNS too.
type ClusterID string

// NewClusterID makes a random one.
func NewClusterID() ClusterID {
	var b [clusterIDSize]byte
	rand.Read(b[:]) // never fails, says crypto/rand
	return ClusterID(base32Lower.EncodeToString(b[:]))
}

func (c ClusterID) validate() error {
	var b [clusterIDSize]byte
	if !decodeExactly(b[:], string(c)) {
		return fmt.Errorf("%q is no cluster id: 24 small letters and digits", clipped(string(c)))
	}
	return nil
}

// Hash is the SHA-256 of a document. The zero value stands for none.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// ParseHash reads the text form, "sha256:" and 64 small hexadecimal digits. There is one text for each hash. Errors: InvalidValue.
func ParseHash(s string) (Hash, error) {
	var h Hash
	digits, ok := strings.CutPrefix(s, hashPrefix)
	if ok && len(digits) == hex.EncodedLen(len(h)) && strings.ToLower(digits) == digits {
		if _, err := hex.Decode(h[:], []byte(digits)); err == nil {
			return h, nil
		}
	}
	return Hash{}, &reason.Error{
		Code: reason.InvalidValue, Doing: fmt.Sprintf("read hash %q", clipped(s)),
		Hint: "a hash is sha256: and 64 hexadecimal digits in small letters",
	}
}

// String returns the text form.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// MarshalText writes the text form.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the text form; see ParseHash.
func (h *Hash) UnmarshalText(b []byte) error {
	v, err := ParseHash(string(b))
	if err == nil {
		*h = v
	}
	return err
}

// Role says what a key may sign.
type Role string

// The roles, besides ReleaseRole.
const (
	RoleHeads    Role = "heads"    // what one host must have
	RoleOperator Role = "operator" // layers, from hand to hand
	RoleBuild    Role = "build"    // images
)

const releasePrefix = "release/"

// ReleaseRole is the role of those who release into an environment.
func ReleaseRole(environment string) Role { return Role(releasePrefix + environment) }

// labelPattern is a label of DNS (RFC 1123), as the names of environments are.
var labelPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (r Role) validate() error {
	environment, isRelease := strings.CutPrefix(string(r), releasePrefix)
	if isRelease && labelPattern.MatchString(environment) || r == RoleHeads || r == RoleOperator || r == RoleBuild {
		return nil
	}
	return fmt.Errorf("%q is no role: heads, operator, build or release/ENVIRONMENT", clipped(string(r)))
}

// Document is one number of trust.json: everything that the cluster's root keys have agreed on. Times are in UTC and whole
// seconds, and lists are sorted, so that one agreement has one encoding.
type Document struct {
	Cluster  ClusterID    `json:"cluster" cbor:"cluster"`
	Number   uint64       `json:"number" cbor:"number"`     // from 1
	Previous Hash         `json:"previous" cbor:"previous"` // of the number before; zero in number 1
	Issued   time.Time    `json:"issued" cbor:"issued"`
	Epoch    uint64       `json:"epoch" cbor:"epoch"` // from 1; what was signed for a lower one is void
	Root     Root         `json:"root" cbor:"root"`
	CAs      []string     `json:"cas" cbor:"cas"`           // PEM, one certificate each, the one that issues first
	Keys     []RoleKey    `json:"keys" cbor:"keys"`         // sorted by role and key
	Revoked  []Revocation `json:"revoked" cbor:"revoked"`   // sorted by key; only ever grows
	Fallback []string     `json:"fallback" cbor:"fallback"` // URLs to ask when no server answers, in the order to try
}

// Root says who may sign the next document, and how many of them must.
type Root struct {
	Threshold int         `json:"threshold" cbor:"threshold"`
	Keys      []PublicKey `json:"keys" cbor:"keys"` // sorted
}

// RoleKey is a key that may sign for a role, from NotBefore until NotAfter.
type RoleKey struct {
	Role      Role      `json:"role" cbor:"role"`
	Key       PublicKey `json:"key" cbor:"key"`
	NotBefore time.Time `json:"notBefore" cbor:"notBefore"`
	NotAfter  time.Time `json:"notAfter" cbor:"notAfter"`
}

// Revocation says that nothing signed with a key counts any more, whenever it was signed.
type Revocation struct {
	Key PublicKey `json:"key" cbor:"key"`
	At  time.Time `json:"at" cbor:"at"`
}

// signedBytes is what root keys sign: the canonical encoding, behind words that no other kind of statement begins with.
func (d *Document) signedBytes() ([]byte, error) {
	b, err := canonical.Marshal(d)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("encode trust document %d", d.Number), Cause: err}
	}
	return append([]byte("tako/trust/1\n"), b...), nil
}

// Hash returns what names the document: hosts pin that of number 1, and each number holds that of the one before.
func (d *Document) Hash() (Hash, error) {
	b, err := d.signedBytes()
	return sha256.Sum256(b), err
}

// clone returns a copy that shares nothing.
func (d *Document) clone() Document {
	c := *d
	c.Root.Keys = slices.Clone(d.Root.Keys)
	c.CAs, c.Keys, c.Revoked, c.Fallback = slices.Clone(d.CAs), slices.Clone(d.Keys), slices.Clone(d.Revoked), slices.Clone(d.Fallback)
	return c
}

// sort brings the document into its one form: lists in order, times in whole seconds, empty lists instead of none.
func (d *Document) sort() {
	whole := func(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
	d.Issued = whole(d.Issued)
	for i := range d.Keys {
		d.Keys[i].NotBefore, d.Keys[i].NotAfter = whole(d.Keys[i].NotBefore), whole(d.Keys[i].NotAfter)
	}
	for i := range d.Revoked {
		d.Revoked[i].At = whole(d.Revoked[i].At)
	}
	slices.SortFunc(d.Root.Keys, comparePublic)
	slices.SortFunc(d.Keys, compareRoleKeys)
	slices.SortFunc(d.Revoked, compareRevocations)
	d.Root.Keys, d.CAs, d.Keys = notNil(d.Root.Keys), notNil(d.CAs), notNil(d.Keys)
	d.Revoked, d.Fallback = notNil(d.Revoked), notNil(d.Fallback)
}

func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func comparePublic(a, b PublicKey) int { return slices.Compare(a[:], b[:]) }

func compareRoleKeys(a, b RoleKey) int {
	return cmp.Or(cmp.Compare(a.Role, b.Role), comparePublic(a.Key, b.Key))
}

func compareRevocations(a, b Revocation) int { return comparePublic(a.Key, b.Key) }

// validate says what is wrong with a document by itself, whoever signed it.
func (d *Document) validate() error {
	if err := d.Cluster.validate(); err != nil {
		return err
	}
	if (d.Number == 1) != (d.Previous == Hash{}) || d.Number == 0 || d.Epoch == 0 {
		return fmt.Errorf("number %d, epoch %d and hash of the number before do not go together", d.Number, d.Epoch)
	}
	if d.Root.Keys == nil || d.CAs == nil || d.Keys == nil || d.Revoked == nil || d.Fallback == nil {
		return errors.New("a list is missing; an empty one is written as []")
	}
	if err := wholeSecond(d.Issued); err != nil {
		return fmt.Errorf("issued: %w", err)
	}
	if err := d.Root.validate(); err != nil {
		return err
	}
	if err := validateCAs(d.CAs); err != nil {
		return err
	}
	if err := validateFallback(d.Fallback); err != nil {
		return err
	}
	return d.validateKeys()
}

func (r *Root) validate() error {
	if n := len(r.Keys); n > RootKeysMax {
		return fmt.Errorf("%d root keys, at most %d", n, RootKeysMax)
	}
	if !ascending(r.Keys, comparePublic) {
		return errors.New("root keys are not sorted, or one stands there twice")
	}
	// This is what keeps a cluster from losing its threshold: nobody could ever sign the next number.
	if r.Threshold < 1 || r.Threshold > len(r.Keys) {
		return fmt.Errorf("a threshold of %d with %d root keys", r.Threshold, len(r.Keys))
	}
	return nil
}

// validateKeys checks the keys of roles and the revocations, against each other and the root keys.
func (d *Document) validateKeys() error {
	if len(d.Keys) > roleKeysMax || len(d.Revoked) > revokedMax {
		return fmt.Errorf("%d keys and %d revocations, at most %d and %d", len(d.Keys), len(d.Revoked), roleKeysMax, revokedMax)
	}
	if !ascending(d.Keys, compareRoleKeys) || !ascending(d.Revoked, compareRevocations) {
		return errors.New("keys or revocations are not sorted, or one stands there twice")
	}
	for _, k := range d.Keys {
		if err := errors.Join(k.Role.validate(), wholeSecond(k.NotBefore), wholeSecond(k.NotAfter)); err != nil {
			return fmt.Errorf("key %s: %w", k.Key.ID(), err)
		}
		if !k.NotBefore.Before(k.NotAfter) {
			return fmt.Errorf("key %s is valid from %s until %s, which is never", k.Key.ID(), k.NotBefore.Format(clockLayout), k.NotAfter.Format(clockLayout))
		}
		// A root key in use elsewhere would be where it can be stolen.
		if slices.Contains(d.Root.Keys, k.Key) {
			return fmt.Errorf("key %s is a root key and a key of role %s", k.Key.ID(), k.Role)
		}
		if d.revoked(k.Key) {
			return fmt.Errorf("key %s is revoked and still has role %s", k.Key.ID(), k.Role)
		}
	}
	for _, r := range d.Revoked {
		if err := wholeSecond(r.At); err != nil {
			return fmt.Errorf("revocation of %s: %w", r.Key.ID(), err)
		}
		if slices.Contains(d.Root.Keys, r.Key) {
			return fmt.Errorf("key %s is revoked and still a root key", r.Key.ID())
		}
	}
	return nil
}

func (d *Document) revoked(k PublicKey) bool {
	_, found := slices.BinarySearchFunc(d.Revoked, Revocation{Key: k}, compareRevocations)
	return found
}

func validateCAs(list []string) error {
	if n := len(list); n == 0 || n > casMax {
		return fmt.Errorf("%d certificate authorities, want 1 to %d", n, casMax)
	}
	for i, s := range list {
		if _, err := parseCA(s); err != nil {
			return fmt.Errorf("certificate authority %d: %w", i+1, err)
		}
		if slices.Contains(list[:i], s) {
			return fmt.Errorf("certificate authority %d stands there twice", i+1)
		}
	}
	return nil
}

// parseCA reads a certificate that is written as pem.Encode would.
func parseCA(s string) (*x509.Certificate, error) {
	if len(s) > caSizeMax {
		return nil, fmt.Errorf("%d bytes, at most %d", len(s), caSizeMax)
	}
	block, _ := pem.Decode([]byte(s))
	if block == nil || block.Type != certificateBlock || string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: block.Bytes})) != s {
		return nil, errors.New("it is not exactly one PEM block " + certificateBlock)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || !cert.BasicConstraintsValid {
		return nil, errors.New("it is the certificate of no authority")
	}
	return cert, nil
}

// fallbackSchemes are those of the transfer by HTTP and by Git. What is fetched is verified, so the transport need not be.
var fallbackSchemes = []string{"http", "https", "git+http", "git+https", "git+ssh"}

func validateFallback(list []string) error {
	if n := len(list); n > fallbackMax {
		return fmt.Errorf("%d fallback locations, at most %d", n, fallbackMax)
	}
	for i, s := range list {
		u, err := url.Parse(s)
		switch {
		case err != nil || len(s) > fallbackURLMax || u.Host == "" || !slices.Contains(fallbackSchemes, u.Scheme):
			return fmt.Errorf("fallback location %d is no URL of %s, of at most %d bytes", i+1, strings.Join(fallbackSchemes, ", "), fallbackURLMax)
		case u.User != nil && (u.Scheme != "git+ssh" || hasPassword(u.User)):
			return fmt.Errorf("fallback location %d holds a user or password: everybody reads this document", i+1)
		case slices.Contains(list[:i], s):
			return fmt.Errorf("fallback location %d stands there twice", i+1)
		}
	}
	return nil
}

func hasPassword(u *url.Userinfo) bool {
	_, has := u.Password()
	return has
}

// wholeSecond wants a time as it is encoded: in UTC, without fraction, in the years that people and RFC 3339 know.
func wholeSecond(t time.Time) error {
	if t.Location() != time.UTC || t.Nanosecond() != 0 || t.Year() < 2000 || t.Year() > 9999 {
		return fmt.Errorf("time %s is not in UTC and whole seconds, of the years 2000 to 9999", t.Format(time.RFC3339Nano))
	}
	return nil
}

// ascending says whether a list is sorted and holds nothing twice.
func ascending[T any](list []T, compare func(a, b T) int) bool {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return false
		}
	}
	return true
}
