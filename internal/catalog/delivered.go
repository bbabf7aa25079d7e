package catalog

import (
	"bytes"
	"encoding/binary"
)

// deliveredClaim begins the claims of what is delivered and not acted upon: data.
const deliveredClaim = "data:"

// Delivered reports whether a body is delivered to a host, and not acted upon. It reads the claim alone, wherever that stands, and
// believes it: a body whose claim cannot be read is acted upon, which finds out why.
func Delivered(body []byte) bool {
	claim, first := firstClaim(body)
	if !first {
		var b struct {
			Claim string `json:"c"`
		}
		if lenient.Unmarshal(body, &b) != nil {
			return false
		}
		claim = []byte(b.Claim)
	}
	return bytes.HasPrefix(claim, []byte(deliveredClaim))
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
