package catalog

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Schema is the form of the bodies that Compile writes. A field that is added, and is left out where it is at its default, needs no
// other number; what an old field means never changes under one number.
const Schema = 1

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
}

// Compile makes the items of the layer of a revision, sorted by claim. The resources must have passed Validate. Equal resources
// have equal items, whatever order they and their references are written in. The errors are BodyTooLarge and InternalFault.
func Compile(resources []declare.Resource) ([]Item, error) {
	claims := make(map[string]string, len(resources)) // by name
	for i := range resources {
		claims[resources[i].Name] = resources[i].Claim().String()
	}
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
		b := layerBody{Schema: Schema, Claim: claims[r.Name], Require: of(r.Require), Notify: of(r.Notify)}
		title := r.Title()
		r.Require, r.Notify = nil, nil
		var err error
		var data []byte
		if b.Resource, err = encoding.Marshal(r); err == nil {
			data, err = encoding.Marshal(b)
		}
		if err != nil {
			return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode " + title, Cause: err}
		}
		if len(data) > declare.BodyBytesMax {
			return nil, &reason.Error{Code: reason.BodyTooLarge, Doing: "encode " + title, Cause: fmt.Errorf("%d bytes, the limit is %d", len(data), declare.BodyBytesMax)}
		}
		items = append(items, Item{Claim: b.Claim, Body: data})
	}
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Claim, b.Claim) })
	return items, nil
}

// TrieOf is the trie of items.
func TrieOf(items []Item) Trie {
	rows := make([]Row, len(items))
	for i := range items {
		rows[i] = items[i].Row()
	}
	return Build(rows)
}

// Desired is a body of a layer as a host reads it.
type Desired struct {
	Claim    string
	Resource declare.Resource // without references; empty where it is Unsupported
	Require  []string         // claims
	Notify   []string
	// Unsupported says why this host cannot act upon it: it is of a later version. Its claim is taken all the same.
	Unsupported *reason.Error
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
	if b.Claim == "" || len(b.Claim) > declare.ClaimBytesMax {
		return Desired{}, fmt.Errorf("it has a claim of %d bytes", len(b.Claim))
	}
	d := Desired{Claim: b.Claim, Require: b.Require, Notify: b.Notify}
	why := later(data, &b, &d.Resource)
	if why == nil && d.Resource.Claim().String() != b.Claim {
		return Desired{}, errors.New("its resource is about something else than it says")
	}
	if why != nil {
		d.Resource = declare.Resource{}
		d.Unsupported = &reason.Error{Code: reason.LaterVersion, Doing: "read the declaration of " + b.Claim, Cause: why, Hint: "bring tako-agent on this host up to date"}
	}
	return d, nil
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
	return nil
}
