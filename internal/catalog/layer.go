package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Schema is the newest form of bodies that this version knows. A field that is added, and is left out where it is at its default, needs no
// other number; what an old field means never changes under one number.
const Schema = 1

// schemaOf is the form that a resource is written in: the oldest in which all that it says can be said. So a server of a later version
// writes what the one before has written, and no root moves; and hosts of an older version read what they can act upon.
func schemaOf(*declare.Resource) uint { return 1 }

// Item is one entry of a layer: what stands in its trie, and the body that it names.
type Item struct {
	Claim string // text form
	Body  []byte
}

// Row is where the item stands.
func (i *Item) Row() Row { return Row{Key: KeyOf(i.Claim), Digest: sha256.Sum256(i.Body)} }

// layerBody is the form of a body. References are claims of the same layer; which config has won them is known on the host only.
type layerBody struct {
	Schema   uint            `json:"v"`
	Claim    string          `json:"c"`
	Resource cbor.RawMessage `json:"r"`
	Require  []string        `json:"q,omitempty"`
	Notify   []string        `json:"n,omitempty"`
	Failure  []string        `json:"f,omitempty"` // what is wanted only while this one has failed
	Sealed   *Sealed         `json:"s,omitempty"` // the resource's content
}

// What a host adds when it writes down a body that it has resolved: to each reference the names of its fields and who has won it,
// and around the whole the name of one field. A body that leaves room for that fits everywhere.
const (
	bodyRoom      = 64
	referenceRoom = 24
)

// Content is what a file's contentFrom leads to: a text, or for a secret its sealed form and never a text.
type Content struct {
	Text   string // UTF-8
	Sealed *Sealed
}

// Compile is CompileWith for resources whose contents are all their own.
func Compile(resources []declare.Resource) ([]Item, error) {
	return CompileWith(resources, func(r *declare.Resource) (Content, error) {
		return Content{}, &reason.Error{Code: reason.InternalFault, Doing: "compile " + r.Title(), Cause: errors.New("nobody says what its contentFrom leads to")}
	})
}

// CompileWith makes the items of the layer of a revision, sorted by claim. The resources must have passed Validate. content says
// what a file's contentFrom leads to; it is asked for no other resource, and its errors are returned as they are. Equal resources
// have equal items, whatever order they and their references are written in. The other errors are BodyTooLarge, InvalidValue for a
// text that is no UTF-8, and InternalFault.
func CompileWith(resources []declare.Resource, content func(*declare.Resource) (Content, error)) ([]Item, error) {
	claims := make(map[string]string, len(resources)) // by name
	for i := range resources {
		claims[resources[i].Name] = resources[i].Claim().String()
	}
	relations := declare.Relations(resources)
	items := make([]Item, 0, len(resources))
	for i := range resources {
		r := resources[i]
		of := func(names []string) []string {
			var to []string
			for _, name := range names {
				to = append(to, claims[name])
			}
			slices.Sort(to)
			return slices.Compact(to)
		}
		b := layerBody{Schema: schemaOf(&r), Claim: claims[r.Name], Require: of(relations[i].Require), Notify: of(relations[i].Notify), Failure: of(relations[i].OnFailure)}
		var err error
		if b.Sealed, err = fill(&r, content); err != nil {
			return nil, err
		}
		data, err := b.encode(r)
		if err != nil {
			return nil, err
		}
		items = append(items, Item{Claim: b.Claim, Body: data})
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Claim, b.Claim) })
	return items, nil
}

// fill puts a content in the place of a file's contentFrom. That of a secret stays, because it says what the content is.
func fill(r *declare.Resource, content func(*declare.Resource) (Content, error)) (*Sealed, error) {
	if r.Source() == nil {
		return nil, nil
	}
	c, err := content(r)
	if err != nil {
		return nil, err
	}
	doing := "compile " + r.Title()
	if r.FromSecret() {
		if c.Sealed == nil || c.Text != "" {
			return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("the content from a secret is not sealed")}
		}
		return c.Sealed, nil
	}
	if c.Sealed != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: errors.New("a content that is not from a secret is sealed")}
	}
	if !utf8.ValidString(c.Text) {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: doing, Cause: errors.New("its content is not UTF-8"), Hint: "take it from a Secret, which may hold any bytes"}
	}
	*r, err = r.Filled(c.Text)
	return nil, err
}

// encode is the body of a resource.
func (b *layerBody) encode(r declare.Resource) ([]byte, error) {
	title, refs := r.Title(), len(b.Require)+len(b.Notify)+len(b.Failure)
	name := r.Name
	if r.Delivered() {
		name = "" // nothing names it but its key
	}
	r = r.Unrelated()
	r.Name = name
	var data []byte
	var err error
	if b.Resource, err = encoding.Marshal(r); err == nil {
		data, err = encoding.Marshal(b)
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode " + title, Cause: err}
	}
	if limit := declare.BodyBytesMax - bodyRoom - refs*referenceRoom; len(data) > limit {
		return nil, &reason.Error{Code: reason.BodyTooLarge, Doing: "encode " + title, Cause: fmt.Errorf("%d bytes, the limit is %d", len(data), limit)}
	}
	return data, nil
}

// TrieOf is the trie of items.
func TrieOf(items []Item) Trie {
	rows := make([]Row, len(items))
	for i := range items {
		rows[i] = items[i].Row()
	}
	return Build(rows)
}

// Desired is what one layer wants of one claim.
type Desired struct {
	Claim    string
	Resource declare.Resource // without references; empty where it is Unsupported
	Require  []string         // claims, of the same layer
	Notify   []string
	Failure  []string
	Sealed   *Sealed       // the content of the resource's file
	Place    declare.Place // where it is declared, for people; empty where it came from no file
	// Unsupported says why this host cannot act upon it: it is of a later version. Its claim is taken all the same.
	Unsupported *reason.Error

	body []byte // where it is Unsupported
}

// DecodedLayer is a layer as it takes part in a resolution.
type DecodedLayer struct {
	ID       string // who declares it, as ConfigName says
	Priority int
	Entries  []Desired
}

// DecodeLayer reads the bodies of a layer and the keys at which they stand. The errors are those of DecodeBody.
func DecodeLayer(l Layer, bodies iter.Seq2[Digest, []byte]) (DecodedLayer, error) {
	decoded := DecodedLayer{ID: l.ID, Priority: l.Priority}
	for key, data := range bodies {
		d, err := DecodeBody(key, data)
		if err != nil {
			return DecodedLayer{}, err
		}
		decoded.Entries = append(decoded.Entries, d)
	}
	return decoded, nil
}

// DecodeBody reads a body that stands at a key. The errors are BodyTooLarge and StateCorrupt: a body that this version does not know
// enough to act upon is no error.
func DecodeBody(key Digest, data []byte) (Desired, error) {
	if len(data) > declare.BodyBytesMax {
		return Desired{}, &reason.Error{Code: reason.BodyTooLarge, Doing: "decode a body"}
	}
	d, err := decodeBody(data)
	if err == nil && KeyOf(d.Claim) != key {
		err = fmt.Errorf("it is about %s, and stands where something else belongs", d.Claim)
	}
	if err != nil {
		return Desired{}, &reason.Error{Code: reason.StateCorrupt, Doing: "decode a body", Cause: err}
	}
	return d, nil
}

func decodeBody(data []byte) (Desired, error) {
	var b layerBody
	if err := lenient.Unmarshal(data, &b); err != nil {
		return Desired{}, err
	}
	if len(b.Claim) > declare.ClaimBytesMax {
		return Desired{}, fmt.Errorf("it has a claim of %d bytes", len(b.Claim))
	}
	if _, ok := cutClaim(b.Claim); !ok {
		return Desired{}, fmt.Errorf("%q is no claim", b.Claim)
	}
	d := Desired{Claim: b.Claim, Require: b.Require, Notify: b.Notify, Failure: b.Failure, Sealed: b.Sealed}
	why := later(data, &b, &d.Resource)
	if why == nil && d.Resource.Claim().String() != b.Claim {
		return Desired{}, errors.New("its resource is about something else than it says")
	}
	if why != nil {
		// Whoever wants the same claim is compared with it.
		if _, err := unnamed(data); err != nil {
			return Desired{}, err
		}
		// It is never acted upon, so its order is nobody's.
		d = Desired{Claim: b.Claim, body: bytes.Clone(data)}
		d.Unsupported = &reason.Error{Code: reason.LaterVersion, Doing: "read the declaration of " + b.Claim, Cause: why, Hint: "bring tako-agent on this host up to date"}
	}
	return d, nil
}

// cutClaim reads the text form of a claim, of any kind: this version need not know it.
func cutClaim(text string) (declare.Claim, bool) {
	kind, id, ok := strings.Cut(text, ":")
	return declare.Claim{Kind: declare.ClaimKind(kind), ID: id}, ok && kind != "" && id != ""
}

// later says what a body has that this version does not know; nil if it knows all.
func later(data []byte, b *layerBody, r *declare.Resource) error {
	if b.Schema > Schema {
		return fmt.Errorf("it is of schema %d, and this version knows %d", b.Schema, Schema)
	}
	if err := decoding.Unmarshal(data, &layerBody{}); err != nil {
		return err
	}
	if err := decoding.Unmarshal(b.Resource, r); err != nil {
		return err
	}
	if r.Type() == "" {
		return errors.New("it has no resource type that is known here")
	}
	if b.Sealed != nil && !r.FromSecret() {
		return errors.New("something of it is sealed that this version does not know")
	}
	return nil
}
