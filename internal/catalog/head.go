package catalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/trust"
)

// Versions of heads.
const (
	HeadProtocol = 1 // of this package
	FormatV1     = 1 // of roots: what this package computes
)

// Bounds of a head. It is 300 bytes as a rule.
const (
	headBytesMax = 16 << 10
	absorbedMax  = LayersMax
	rootsMax     = 4
	nameMax      = 253
)

// Head says what one host is to have. It is made by Sign, and believed after Verify.
type Head struct {
	Protocol    uint             `cbor:"1,keyasint"`
	Key         trust.KeyID      `cbor:"2,keyasint"`
	Cluster     trust.ClusterID  `cbor:"3,keyasint"`
	Node        string           `cbor:"4,keyasint"` // name
	UID         string           `cbor:"5,keyasint"`
	Epoch       uint64           `cbor:"6,keyasint"`
	Version     uint64           `cbor:"7,keyasint"`
	Roots       []FormatRoot     `cbor:"8,keyasint"`           // of the catalog list, one for each format that is served
	Entries     uint64           `cbor:"9,keyasint"`           // in all layers
	Bytes       uint64           `cbor:"10,keyasint"`          // of all bodies
	Issued      int64            `cbor:"11,keyasint"`          // seconds since 1970
	Expires     int64            `cbor:"12,keyasint"`          // the same; afterwards the host is stale and keeps what it has
	MinProtocol uint             `cbor:"13,keyasint"`          // who speaks less keeps what it has
	Window      uint32           `cbor:"14,keyasint,omitzero"` // seconds over which hosts spread their fetches
	Consent     uint8            `cbor:"15,keyasint,omitzero"` // percent of the entries that may be deleted at once
	Try         *Try             `cbor:"16,keyasint,omitempty"`
	Absorbed    []AbsorbedNumber `cbor:"17,keyasint,omitempty"`
}

// FormatRoot is the root of a catalog in one format.
type FormatRoot struct {
	_      struct{} `cbor:",toarray"`
	Format uint
	Root   Digest
}

// Try is a root to fall back to, unless it is confirmed in time that the head's own is right.
type Try struct {
	_        struct{} `cbor:",toarray"`
	Seconds  uint32   // of the host's clock since its boot
	Fallback Digest   // catalog root
}

// AbsorbedNumber is the highest layer statement that the declarations have caught up with.
type AbsorbedNumber struct {
	_      struct{} `cbor:",toarray"`
	Layer  string
	Number uint64
}

// Root is the catalog root in the format of this package; false when it is not served in it.
func (h *Head) Root() (Digest, bool) {
	for _, r := range h.Roots {
		if r.Format == FormatV1 {
			return r.Root, true
		}
	}
	return Digest{}, false
}

func (h *Head) validate() error {
	switch {
	case h.Node == "" || len(h.Node) > nameMax || h.UID == "" || len(h.UID) > nameMax:
		return errors.New("it names no node")
	case h.Version == 0:
		return errors.New("it has no version")
	case len(h.Roots) == 0 || len(h.Roots) > rootsMax:
		return fmt.Errorf("it has %d roots", len(h.Roots))
	case h.Expires <= h.Issued:
		return errors.New("it expires before it is issued")
	case h.Consent > 100:
		return fmt.Errorf("it consents to %d percent", h.Consent)
	case len(h.Absorbed) > absorbedMax:
		return fmt.Errorf("it absorbs %d statements", len(h.Absorbed))
	}
	return nil
}

// SignedHead is a head as it travels. The bytes that were signed are kept, with all fields that this version does not know.
type SignedHead struct {
	_         struct{} `cbor:",toarray"`
	Body      []byte
	Signature []byte
}

// headPurpose keeps a signature under a head from being one under anything else.
const headPurpose = "tako/head/1\n"

// Sign signs a head. Equal heads have equal bytes: every server makes the same.
func (h Head) Sign(key *trust.SigningKey) (SignedHead, error) {
	h.Protocol, h.Key = HeadProtocol, key.Public().ID()
	err := h.validate()
	var body []byte
	if err == nil {
		body, err = encoding.Marshal(h)
	}
	if err != nil {
		return SignedHead{}, &reason.Error{Code: reason.InternalFault, Doing: "sign the head of node " + h.Node, Cause: err}
	}
	return SignedHead{Body: body, Signature: key.Sign(append([]byte(headPurpose), body...))}, nil
}

// Encode is the signed head in canonical CBOR.
func (s SignedHead) Encode() ([]byte, error) {
	b, err := encoding.Marshal(s)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode a head", Cause: err}
	}
	return b, nil
}

// DecodeHead reads a signed head and the head in it, which is not to be believed yet. The error is StateCorrupt.
func DecodeHead(data []byte) (SignedHead, Head, error) {
	s, h, err := decodeHead(data)
	if err != nil {
		return SignedHead{}, Head{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a head", Cause: err}
	}
	return s, h, nil
}

func decodeHead(data []byte) (s SignedHead, h Head, err error) {
	if len(data) > headBytesMax {
		return s, h, fmt.Errorf("%d bytes, at most %d are allowed", len(data), headBytesMax)
	}
	if err := decoding.Unmarshal(data, &s); err != nil {
		return s, h, err
	}
	if err := lenient.Unmarshal(s.Body, &h); err != nil {
		return s, h, err
	}
	return s, h, h.validate()
}

// lenient reads what a later version may have more fields of.
var lenient = func() cbor.DecMode {
	o := decoding.DecOptions()
	o.ExtraReturnErrors = cbor.ExtraDecErrorNone
	mode, err := o.DecMode()
	if err != nil {
		panic(fmt.Sprintf("catalog: decoding options of the CBOR library: %v", err))
	}
	return mode
}()

// Node is who a head must be for.
type Node struct {
	Cluster trust.ClusterID
	Name    string
	UID     string
}

// Keys are those that may sign for a role now: what trust.Chain's KeysOf says.
type Keys []trust.PublicKey

func (keys Keys) signed(by trust.KeyID, purpose string, body, signature []byte) bool {
	for _, k := range keys {
		if k.ID() == by && k.Verify(append([]byte(purpose), body...), signature) {
			return true
		}
	}
	return false
}

// Verify reads a signed head and believes it, if it is signed by one of the keys and for that node. The errors are StateCorrupt
// and HeadRefused. Whether it is news, and not expired, is for Mark to say.
func (s SignedHead) Verify(keys Keys, node Node) (Head, error) {
	var h Head
	err := lenient.Unmarshal(s.Body, &h)
	if err == nil {
		err = h.validate()
	}
	if err != nil {
		return Head{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a head", Cause: err}
	}
	if err := h.isFor(node); err != nil {
		return Head{}, &reason.Error{Code: reason.HeadRefused, Doing: "verify a head", Cause: err}
	}
	if keys.signed(h.Key, headPurpose, s.Body, s.Signature) {
		return h, nil
	}
	return Head{}, &reason.Error{Code: reason.HeadRefused, Doing: "verify the head of node " + node.Name, Cause: fmt.Errorf("no key that may sign heads has signed it, as key %s", h.Key)}
}

func (h *Head) isFor(node Node) error {
	switch {
	case h.Cluster != node.Cluster:
		return fmt.Errorf("it is of cluster %s, not of %s", h.Cluster, node.Cluster)
	case h.Node != node.Name || h.UID != node.UID:
		return fmt.Errorf("it is for node %s (%s), not for %s (%s)", h.Node, h.UID, node.Name, node.UID)
	}
	return nil
}

// Mark is the highest head that a host has accepted. It is made durable before anything is done about the head, and never goes back.
type Mark struct {
	Epoch   uint64 `cbor:"1,keyasint"`
	Version uint64 `cbor:"2,keyasint"`
	Root    Digest `cbor:"3,keyasint"`
	Issued  int64  `cbor:"4,keyasint"`
	Expires int64  `cbor:"5,keyasint"`
}

// Standing is what a verified head, or statement, is to a host.
type Standing string

// The standings.
const (
	HeadNews         Standing = "news"         // higher than the mark: to be fetched
	HeadRepeated     Standing = "repeated"     // the mark again, perhaps with a later expiry
	HeadOld          Standing = "old"          // lower than the mark: ignored, and counted
	HeadEquivocation Standing = "equivocation" // the mark's version with another root: the first is kept, and this is an alarm
	HeadExpired      Standing = "expired"      // higher than the mark, but too late to begin with it
	HeadUnknown      Standing = "unsupported"  // for hosts of a later protocol, or in no format that is known here
)

// Judge says what a verified head is to a host with this mark, at a time that does not go back, and what the mark is then.
func (m Mark) Judge(h *Head, now time.Time) (Standing, Mark) {
	root, known := h.Root()
	switch {
	case h.Epoch < m.Epoch, h.Epoch == m.Epoch && h.Version < m.Version:
		return HeadOld, m
	case h.MinProtocol > HeadProtocol || !known:
		return HeadUnknown, m
	case h.Epoch == m.Epoch && h.Version == m.Version && root != m.Root:
		return HeadEquivocation, m
	case h.Epoch == m.Epoch && h.Version == m.Version:
		if h.Issued > m.Issued {
			m.Issued, m.Expires = h.Issued, h.Expires
		}
		return HeadRepeated, m
	case now.Unix() >= h.Expires:
		return HeadExpired, m
	}
	return HeadNews, Mark{Epoch: h.Epoch, Version: h.Version, Root: root, Issued: h.Issued, Expires: h.Expires}
}

// Stale reports whether the highest head has expired. The host then goes on to enforce what it has.
func (m Mark) Stale(now time.Time) bool { return m.Version > 0 && now.Unix() >= m.Expires }
