package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String wrote, and nothing else: small hexadecimal digits, so that there is one text for each digest. It makes no
// garbage: files are called after digests, and there are many.
func ParseDigest(text string) (d Digest, ok bool) {
	if len(text) != hex.EncodedLen(len(d)) {
		return Digest{}, false
	}
	for i := range d {
		high, low := digit(text[2*i]), digit(text[2*i+1])
		if high < 0 || low < 0 {
			return Digest{}, false
		}
		d[i] = byte(high<<4 | low)
	}
	return d, true
}

// digit is the value of a small hexadecimal digit; below 0 for anything else.
func digit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// UnmarshalCBOR reads a byte string of just that length: the library would fill up a shorter one.
func (d *Digest) UnmarshalCBOR(data []byte) error {
	var b []byte
	if err := decoding.Unmarshal(data, &b); err != nil {
		return err
	}
	if len(b) != len(d) {
		return fmt.Errorf("a digest of %d bytes", len(b))
	}
	copy(d[:], b)
	return nil
}

// Entry is one resource that a host must have, with its references resolved to claims.
type Entry struct {
	Config   string        // KIND/NAME or KIND/NAMESPACE/NAME: who declares it
	Place    declare.Place // where it is declared, for people; empty where it came from no file
	Resource declare.Resource
	Require  []Ref
	Notify   []Ref
	Failure  []Ref   // what is wanted only while this one has failed
	Sealed   *Sealed // the content of the resource's file, which is in no other form here
	// Unsupported says why this host cannot act upon it: it is of a later version. The resource is empty then, and the claim is taken
	// all the same.
	Unsupported *reason.Error

	unread *Desired // where it is Unsupported
}

// Ref is a reference to what another resource claims.
type Ref struct {
	Claim declare.Claim `json:"c"`
	// Cross says that another config has won the claim referred to. Such an order yields where it would close a cycle that
	// neither config has by itself.
	Cross bool `json:"x,omitempty"`
}

// Claim is what the entry is about.
func (e *Entry) Claim() declare.Claim {
	if e.Unsupported != nil {
		claim, _ := cutClaim(e.unread.Claim) // it was one when it was read
		return claim.Of(e.Config)
	}
	return e.Resource.Claim().Of(e.Config)
}

// Title is how people see the entry: TYPE/NAME, or its claim where this version does not know more of it.
func (e *Entry) Title() string {
	if e.Unsupported != nil {
		return e.unread.Claim
	}
	return e.Resource.Title()
}

// body is the encoded form of what an entry wants.
type body struct {
	Resource declare.Resource `json:"r,omitzero"`
	Require  []Ref            `json:"q,omitempty"`
	Notify   []Ref            `json:"n,omitempty"`
	Failure  []Ref            `json:"f,omitempty"`
	Sealed   *Sealed          `json:"s,omitempty"`
	// Unread is the whole body that a layer has, of a version that is not known here, and nothing else is set then. A later version
	// of the agent reads it from there.
	Unread []byte `json:"u,omitempty"`
}

// encoding is core deterministic CBOR, RFC 8949 section 4.2.1. Fields that are at their default are absent, because
// declare leaves them empty, so that a later default or a new field moves no digest.
var encoding, decoding = modes()

func modes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("catalog: encoding options of the CBOR library: %v", err))
	}
	// The bounds are those of a body: at most 1 MiB, lists of names and arguments only, four levels deep.
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, MaxArrayElements: declare.ResourcesMax, MaxMapPairs: 1000,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("catalog: decoding options of the CBOR library: %v", err))
	}
	return enc, dec
}

// Encode returns the entry's body: canonical, so that equal wants have equal bytes. Config and Place are not in it.
func (e *Entry) Encode() ([]byte, error) {
	content := body{Resource: e.Resource, Require: e.Require, Notify: e.Notify, Failure: e.Failure, Sealed: e.Sealed}
	if e.Unsupported != nil {
		content = body{Unread: e.unread.body}
	}
	b, err := encoding.Marshal(content)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode " + e.Title(), Cause: err}
	}
	if len(b) > declare.BodyBytesMax {
		return nil, &reason.Error{Code: reason.BodyTooLarge, Doing: "encode " + e.Title(),
			Cause: fmt.Errorf("%d bytes, the limit is %d", len(b), declare.BodyBytesMax)}
	}
	return b, nil
}

// Decode reads a body. What it returns has no Config and no Place.
func Decode(data []byte) (Entry, error) {
	if len(data) > declare.BodyBytesMax {
		return Entry{}, &reason.Error{Code: reason.BodyTooLarge, Doing: "decode an entry"}
	}
	var b body
	if err := decoding.Unmarshal(data, &b); err != nil {
		return Entry{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode an entry", Cause: err}
	}
	if len(b.Unread) > 0 {
		return decodeUnread(b.Unread)
	}
	if b.Resource.Type() == "" {
		return Entry{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode an entry", Cause: fmt.Errorf("it has no resource type")}
	}
	return Entry{Resource: b.Resource, Require: b.Require, Notify: b.Notify, Failure: b.Failure, Sealed: b.Sealed}, nil
}

// decodeUnread reads a body that was of a later version than the agent that wrote it down, and may be known by now. Who has won the
// claims that it refers to is not known before the next resolution, so its order yields.
func decodeUnread(data []byte) (Entry, error) {
	d, err := decodeBody(data)
	if err != nil {
		return Entry{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode an entry", Cause: err}
	}
	e := d.entry()
	for _, text := range d.Require {
		e.Require = addRef(e.Require, claimOf(text, ""), true)
	}
	for _, text := range d.Notify {
		e.Notify = addRef(e.Notify, claimOf(text, ""), true)
	}
	for _, text := range d.Failure {
		e.Failure = addRef(e.Failure, claimOf(text, ""), true)
	}
	return e, nil
}

// Desire is the digest of what is wanted of a claim: the resource without its name and its order. Two resources that
// desire the same of one claim are one.
func Desire(r declare.Resource) (Digest, error) {
	b, err := encoding.Marshal(r.Unrelated())
	if err != nil {
		return Digest{}, &reason.Error{Code: reason.InternalFault, Doing: "encode a resource", Cause: err}
	}
	return sha256.Sum256(b), nil
}

// DesireOf is the digest of what the entry wants of its claim, as Desire is, where r is its resource as this host must have it:
// with another secret it is another one.
func (e *Entry) DesireOf(r declare.Resource) (Digest, error) {
	if e.Unsupported != nil {
		return e.unread.desire()
	}
	return sealedDesire(r, e.Sealed)
}

// sealedDesire is Desire of a resource and the content that it has in sealed form.
func sealedDesire(r declare.Resource, s *Sealed) (Digest, error) {
	d, err := Desire(r)
	if err != nil || s == nil {
		return d, err
	}
	b, err := encoding.Marshal(s)
	if err != nil {
		return Digest{}, &reason.Error{Code: reason.InternalFault, Doing: "encode a sealed content", Cause: err}
	}
	return sha256.Sum256(append(d[:], b...)), nil
}

// Root is one hash over a set of entries, whatever their order: of the claims and bodies, sorted by claim.
func Root(claims []declare.Claim, bodies [][]byte) Digest {
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return bytes.Compare([]byte(claims[a].String()), []byte(claims[b].String()))
	})
	h := sha256.New()
	h.Write([]byte("alone-v1"))
	for _, i := range order {
		claim, content := sha256.Sum256([]byte(claims[i].String())), sha256.Sum256(bodies[i])
		h.Write(claim[:])
		h.Write(content[:])
	}
	return Digest(h.Sum(nil))
}
