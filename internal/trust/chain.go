package trust

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Chain is a verified sequence of documents, from number 1. It is immutable and safe for concurrent use.
type Chain struct {
	documents []Signed
	pin       Hash      // of number 1
	last      Hash      // of the highest number
	built     time.Time // of the program that verified it
}

// Genesis says what document 1 holds. A host pins its hash, so everything in it is believed without a signature from before.
type Genesis struct {
	Cluster ClusterID
	CA      *CA
	Root    *SigningKey // the only one at first: a threshold of 1 of 1
	Heads   PublicKey   // valid as long as the authority, with which it is kept and replaced
}

// NewChain makes and signs document 1. built is when this program was built; see Chain.Time.
func NewChain(g Genesis, now, built time.Time) (*Chain, error) {
	cert := g.CA.Certificate()
	d := Document{
		Cluster: g.Cluster, Number: 1, Issued: now, Epoch: 1,
		Root: Root{Threshold: 1, Keys: []PublicKey{g.Root.Public()}},
		CAs:  []string{string(g.CA.CertificatePEM())},
		Keys: []RoleKey{{Role: RoleHeads, Key: g.Heads, NotBefore: cert.NotBefore, NotAfter: cert.NotAfter}},
	}
	d.sort()
	signed, err := Signed{Document: d}.Sign(g.Root)
	if err != nil {
		return nil, err
	}
	pin, err := d.Hash()
	if err != nil {
		return nil, err
	}
	return Verify([]Signed{signed}, pin, built)
}

// Verify accepts a whole chain, of which number 1 has the pinned hash, or nothing of it. built is when this program was built; see
// Chain.Time. Errors: TrustRefused, and SignaturesMissing when nothing is wrong with the signatures but their number.
func Verify(documents []Signed, pin Hash, built time.Time) (*Chain, error) {
	if len(documents) == 0 {
		return nil, &reason.Error{Code: reason.TrustRefused, Doing: "verify trust documents", Cause: errors.New("there are none")}
	}
	first := &documents[0]
	if err := first.validate(); err != nil {
		return nil, refused(first, err)
	}
	hash, err := first.Document.Hash()
	if err != nil {
		return nil, err
	}
	if first.Document.Number != 1 || hash != pin {
		return nil, refused(first, fmt.Errorf("it begins with number %d, hash %s; pinned is number 1, hash %s", first.Document.Number, hash, pin))
	}
	if err := checkSignatures(first, first.Document.Root); err != nil {
		return nil, err
	}
	c := &Chain{documents: []Signed{first.with()}, pin: pin, last: hash, built: built}
	return c.Extend(documents[1:])
}

// Extend returns the chain with later documents behind it, all of them or none. Documents that it has already may stand in front
// of them, if they are the same. Errors: as Verify; the chain itself stays as it is.
func (c *Chain) Extend(later []Signed) (*Chain, error) {
	out := &Chain{documents: slices.Clip(c.documents), pin: c.pin, last: c.last, built: c.built}
	for i := range later {
		s := &later[i]
		if err := s.validate(); err != nil {
			return nil, refused(s, err)
		}
		hash, err := s.Document.Hash()
		if err != nil {
			return nil, err
		}
		if n := s.Document.Number; n <= uint64(len(out.documents)) {
			if have, err := out.documents[n-1].Document.Hash(); err != nil || have != hash {
				return nil, refused(s, fmt.Errorf("another number %d, hash %s, is known already", n, have))
			}
			continue
		}
		if err := out.follows(s); err != nil {
			return nil, err
		}
		out.documents, out.last = append(out.documents, s.with()), hash
	}
	text, err := out.Encode()
	if err != nil {
		return nil, err
	}
	if len(text) > chainMax {
		return nil, refused(&out.documents[len(out.documents)-1], fmt.Errorf("with it the chain has %d bytes, at most %d", len(text), chainMax))
	}
	return out, nil
}

// follows says whether a document may come next.
func (c *Chain) follows(s *Signed) error {
	old, d := &c.documents[len(c.documents)-1].Document, &s.Document
	switch {
	case len(c.documents) >= documentsMax:
		return refused(s, fmt.Errorf("a chain has at most %d documents", documentsMax))
	case d.Cluster != old.Cluster:
		return refused(s, fmt.Errorf("it is of cluster %s, and this is cluster %s", d.Cluster, old.Cluster))
	case d.Number != old.Number+1:
		return refused(s, fmt.Errorf("it comes after number %d: one is missing or out of order", old.Number))
	case d.Previous != c.last:
		return refused(s, fmt.Errorf("it follows another number %d than the one known", old.Number))
	case d.Epoch < old.Epoch:
		return refused(s, fmt.Errorf("its epoch %d is lower than %d", d.Epoch, old.Epoch))
	case d.Issued.Before(old.Issued):
		return refused(s, fmt.Errorf("it was issued at %s, before number %d at %s: the clock of who issued it is behind", d.Issued.Format(clockLayout), old.Number, old.Issued.Format(clockLayout)))
	}
	for _, r := range old.Revoked {
		if i, found := slices.BinarySearchFunc(d.Revoked, r, compareRevocations); !found || !d.Revoked[i].At.Equal(r.At) {
			return refused(s, fmt.Errorf("it takes back the revocation of key %s", r.Key.ID()))
		}
	}
	return checkSignatures(s, old.Root, d.Root)
}

// checkSignatures wants valid signatures of the threshold of each root, and no others. A signature that does not fit is refused,
// and not only not counted: it stands there because something was forged, mixed up or damaged.
func checkSignatures(s *Signed, roots ...Root) error {
	b, err := s.Document.signedBytes()
	if err != nil {
		return err
	}
	for _, v := range s.Signatures {
		if !slices.ContainsFunc(roots, func(r Root) bool { return slices.Contains(r.Keys, v.Key) }) {
			return refused(s, fmt.Errorf("key %s has signed it and is no root key", v.Key.ID()))
		}
		if !v.Key.Verify(b, v.Value) {
			return refused(s, fmt.Errorf("the signature of key %s is wrong", v.Key.ID()))
		}
	}
	var missing []string
	for i, r := range roots {
		which := "new"
		if i < len(roots)-1 {
			which = "present"
		}
		if words := r.missing(s.Signatures); words != "" {
			missing = append(missing, fmt.Sprintf("of the %s root keys %s", which, words))
		}
	}
	if missing != nil {
		return &reason.Error{
			Code: reason.SignaturesMissing, Doing: fmt.Sprintf("verify trust document %d", s.Document.Number),
			Cause: errors.New(strings.Join(missing, "; ")),
			Hint:  "have it signed where the other keys are: `tako trust sign FILE --key KEY`, then `tako trust accept FILE`",
		}
	}
	return nil
}

// Relevant returns the document with the signatures of those alone who may sign it after this chain, and names the others. A key
// that was taken by mistake has not spoilt anything then. Whether a signature is right is found out by Extend.
func (c *Chain) Relevant(s Signed) (kept Signed, others []KeyID) {
	kept = s.with()
	kept.Signatures = slices.DeleteFunc(kept.Signatures, func(v Signature) bool {
		if slices.Contains(c.current().Root.Keys, v.Key) || slices.Contains(s.Document.Root.Keys, v.Key) {
			return false
		}
		others = append(others, v.Key.ID())
		return true
	})
	return kept, others
}

// missing says how many signatures are missing, and of whom, or nothing when the threshold is reached.
func (r *Root) missing(have []Signature) string {
	var without []string
	for _, k := range r.Keys {
		if !slices.ContainsFunc(have, func(v Signature) bool { return v.Key == k }) {
			without = append(without, string(k.ID()))
		}
	}
	if n := len(r.Keys) - len(without); n < r.Threshold {
		return fmt.Sprintf("%d have signed it, want %d, not yet: %s", n, r.Threshold, strings.Join(without, ", "))
	}
	return ""
}

func refused(s *Signed, cause error) error {
	return &reason.Error{Code: reason.TrustRefused, Doing: fmt.Sprintf("verify trust document %d", s.Document.Number), Cause: cause}
}

// Pin returns the hash of document 1: what a host is given when it joins.
func (c *Chain) Pin() Hash { return c.pin }

// Current returns a copy of the document with the highest number: what is in force.
func (c *Chain) Current() Document { return c.current().clone() }

func (c *Chain) current() *Document { return &c.documents[len(c.documents)-1].Document }

// After returns copies of the documents with numbers above n, in order: all for 0, none for the highest and beyond.
func (c *Chain) After(n uint64) []Signed {
	if n >= uint64(len(c.documents)) {
		return nil
	}
	later := make([]Signed, 0, uint64(len(c.documents))-n)
	for _, s := range c.documents[n:] {
		later = append(later, s.with())
	}
	return later
}

// Encode returns the text of the whole chain: trust.json. It holds no secret.
func (c *Chain) Encode() ([]byte, error) { return EncodeDocuments(c.documents) }

// Time is what the chain takes the time to be when the clock says now: not before the last document was issued, and not before
// this program was built. So a clock that was set back does not bring an expired key to life.
func (c *Chain) Time(now time.Time) time.Time {
	return latest(now, c.current().Issued, c.built).UTC()
}

// KeysOf returns the keys that may sign for a role when the clock says now: within their validity, by Time, and not revoked.
func (c *Chain) KeysOf(role Role, now time.Time) []PublicKey {
	at := c.Time(now)
	var keys []PublicKey
	for _, k := range c.current().Keys {
		if k.Role == role && !at.Before(k.NotBefore) && at.Before(k.NotAfter) {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// Pool returns the certificate authorities in force.
func (c *Chain) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, s := range c.current().CAs {
		pool.AppendCertsFromPEM([]byte(s)) // validate has parsed it
	}
	return pool
}

// CAPEM returns the certificate authorities in force as PEM, one block behind the other: for a kubeconfig and for curl.
func (c *Chain) CAPEM() []byte {
	var b bytes.Buffer
	for _, s := range c.current().CAs {
		b.WriteString(s)
	}
	return b.Bytes()
}
