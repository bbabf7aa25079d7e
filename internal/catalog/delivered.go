package catalog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// deliveredPrefix begins the claims of entries that are delivered and not acted upon.
const deliveredPrefix = string(declare.ClaimData) + ":"

// DataClaim is the text form of the claim that data of a key has.
func DataClaim(key string) string { return deliveredPrefix + key }

// DataKey is the key of data, given the text form of its claim; false where that is of something else.
func DataKey(claim string) (string, bool) { return strings.CutPrefix(claim, deliveredPrefix) }

// ClaimOf is the text form of the claim in a body, which need not be right in anything else; empty where there is none.
func ClaimOf(body []byte) string {
	var b struct {
		Claim string `json:"c"`
	}
	if lenient.Unmarshal(body, &b) != nil {
		return ""
	}
	return b.Claim
}

// Delivered reports whether a body is delivered to a host, and not acted upon. It reads the claim alone, wherever that stands, and
// believes it: a body whose claim cannot be read is acted upon, which finds out why.
func Delivered(body []byte) bool {
	claim, first := firstClaim(body)
	if !first {
		claim = []byte(ClaimOf(body))
	}
	return bytes.HasPrefix(claim, []byte(deliveredPrefix))
}

// KeyOfBody is the key at which a body stands that begins with its claim; false where it does not begin so, and nothing can be said.
func KeyOfBody(body []byte) (Digest, bool) {
	claim, first := firstClaim(body)
	if !first {
		return Digest{}, false
	}
	return sha256.Sum256(claim), true
}

// firstClaim cuts the claim out of a body that begins with it, as all do that are written in the canonical order of the names that there
// are. A million bodies are looked at when a layer is read, and decoding one whole takes ten times as long.
func firstClaim(body []byte) ([]byte, bool) {
	const (
		majorMap, majorText = 5, 3
		inByte, inTwo       = 24, 25 // where the length of an item stands: RFC 8949, section 3
	)
	if len(body) < 4 || body[0]>>5 != majorMap || body[0]&0x1f == 0 || body[0]&0x1f >= inByte || body[1] != majorText<<5|1 || body[2] != 'c' || body[3]>>5 != majorText {
		return nil, false
	}
	length, rest := int(body[3]&0x1f), body[4:]
	switch {
	case length < inByte:
	case length == inByte && len(rest) >= 1:
		length, rest = int(rest[0]), rest[1:]
	case length == inTwo && len(rest) >= 2:
		length, rest = int(binary.BigEndian.Uint16(rest)), rest[2:]
	default:
		return nil, false
	}
	if length > len(rest) {
		return nil, false
	}
	return rest[:length], true
}

// DataItem is the item of data, which must be without Mistake: the one that Compile makes of a resource that has it. The errors are
// BodyTooLarge and InternalFault.
func DataItem(d *declare.Data) (Item, error) { return DataItemFor(d, "") }

// DataItemFor is DataItem of data that has a TTL, which must be without mistake; the empty one is none.
func DataItemFor(d *declare.Data, ttl string) (Item, error) {
	r := declare.Resource{Data: d, TTL: ttl}
	b := layerBody{Schema: schemaOf(&r), Claim: r.Claim().String()}
	body, err := b.encode(r)
	return Item{Claim: b.Claim, Body: body}, err
}

// ttlName is the name of the field in a body, with its length before it: RFC 8949, section 3.1. No body has a TTL in which it does not stand.
var ttlName = []byte("\x63ttl")

// TTLOf is the TTL in a body; 0 where there is none.
func TTLOf(body []byte) time.Duration {
	if !bytes.Contains(body, ttlName) { // a million bodies are looked at to list keys
		return 0
	}
	var b struct {
		Resource struct {
			TTL string `json:"ttl"`
		} `json:"r"`
	}
	if lenient.Unmarshal(body, &b) != nil {
		return 0
	}
	r := declare.Resource{TTL: b.Resource.TTL}
	return r.TimeToLive()
}

// ReadDataItem reads the body of data, and nothing that DataItem would not have written: so what is declared has one form, whoever has
// written it. The errors are BodyTooLarge and StateCorrupt.
func ReadDataItem(body []byte) (Item, error) {
	corrupt := func(cause error) error {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read an entry of data", Cause: cause}
	}
	if len(body) > declare.BodyBytesMax {
		return Item{}, &reason.Error{Code: reason.BodyTooLarge, Doing: "read an entry of data"}
	}
	d, err := decodeBody(body)
	switch {
	case err != nil:
		return Item{}, corrupt(err)
	case d.Unsupported != nil:
		return Item{}, corrupt(d.Unsupported)
	case d.Resource.Data == nil:
		return Item{}, corrupt(errors.New("it is of something that is acted upon"))
	}
	if _, mistake, _ := d.Resource.Data.Mistake(); mistake != "" {
		return Item{}, corrupt(errors.New(mistake))
	}
	if mistake, _ := declare.TTLMistake(d.Resource.TTL); mistake != "" {
		return Item{}, corrupt(errors.New(mistake))
	}
	item, err := DataItemFor(d.Resource.Data, d.Resource.TTL)
	if err != nil {
		return Item{}, err
	}
	if !bytes.Equal(item.Body, body) {
		return Item{}, corrupt(errors.New("it is not in canonical form"))
	}
	return item, nil
}

// Datum is data as a layer wants it.
type Datum struct {
	Config string // of the layer, as ConfigName says
	TTL    string
	declare.Data
}

// ResolveData picks, of what layers want of one key in the order of a List, the one of the highest priority. There must be one at least.
// The error is PriorityConflict, where two of that priority want different things.
func ResolveData(wants []Datum, priorities []int) (Datum, error) {
	first := wants[0]
	for i := 1; i < len(wants) && priorities[i] == priorities[0]; i++ {
		if wants[i].Data != first.Data || wants[i].TTL != first.TTL {
			return Datum{}, (&Conflict{Claim: declare.Claim{Kind: declare.ClaimData, ID: first.Key}, Priority: priorities[0],
				IDs: [2]string{first.Config, wants[i].Config}, Titles: [2]string{DataClaim(first.Key), DataClaim(first.Key)}}).Reason()
		}
	}
	return first, nil
}
