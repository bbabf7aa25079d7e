// Package openpgp looks at OpenPGP public keys as people paste them: in ASCII armor, RFC 9580 (and RFC 4880 before it). It tells whether a
// text is public keys and nothing else, and which. It verifies nothing: that is for the program that is given the keys.
//
//	text:    one or more blocks, -----BEGIN PGP PUBLIC KEY BLOCK-----; nothing else but blanks
//	block:   headers, an empty line, base64, "=" and a CRC-24 that may be left out, the end
//	packets: a public key first; after it user IDs, signatures and subkeys, and more of the kind
//
// No error quotes the text, because it may be a private key in the wrong place.
package openpgp

import (
	"bytes"
	"crypto/sha1" // a fingerprint of version 4 is one
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// TextBytesMax bounds a text: ours. The keys of all of Debian's developers have more; those of a repository have a few kilobytes.
const TextBytesMax = 256 << 10

// The errors of Parse.
var (
	ErrPrivate = errors.New("it is a private key, not a public one")

	errEmpty     = errors.New("it is empty")
	errLong      = fmt.Errorf("it has more than %d bytes", TextBytesMax)
	errNoArmor   = errors.New("it is not armored: its first line is not " + begin)
	errBetween   = errors.New("something else stands before or after the armored key")
	errNoEnd     = errors.New("its last line, " + end + ", is missing: it may have been cut")
	errHeader    = errors.New("a line before its first empty line is not a header: an empty line has to follow the first line")
	errBase64    = errors.New("a line is not base64: it may have been cut or wrapped")
	errChecksum  = errors.New("its checksum does not fit: it is damaged")
	errCut       = errors.New("it ends in the middle: it may have been cut")
	errPacket    = errors.New("it holds something that is not part of a public key")
	errNotKey    = errors.New("it does not begin with a public key: a signature, or another thing, was taken for one")
	errOld       = errors.New("it is a key of version 3 or before, which no program accepts any more")
	errPartial   = errors.New("its packets are of a form that keys do not have")
	errNoPackets = errors.New("there is no key in it")
)

const (
	begin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	end   = "-----END PGP PUBLIC KEY BLOCK-----"
)

// Keys are the public keys of a text.
type Keys struct {
	// Binary is the keys without armor: a keyring.
	Binary []byte
	// Fingerprints name the primary keys, as gpg shows them without blanks: upper case hexadecimal digits.
	Fingerprints []string
}

// Parse reads public keys in armor.
func Parse(text string) (Keys, error) {
	switch {
	case strings.Contains(text, "PRIVATE KEY"):
		return Keys{}, ErrPrivate
	case len(text) > TextBytesMax:
		return Keys{}, errLong
	}
	var keys Keys
	rest := strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
	if rest == "" {
		return Keys{}, errEmpty
	}
	for rest != "" {
		block, after, err := cutBlock(rest)
		if err != nil {
			if len(keys.Binary) > 0 && errors.Is(err, errNoArmor) {
				err = errBetween
			}
			return Keys{}, err
		}
		binary, err := unarmor(block)
		if err != nil {
			return Keys{}, err
		}
		if err := keys.add(binary); err != nil {
			return Keys{}, err
		}
		rest = strings.TrimSpace(after)
	}
	return keys, nil
}

// ParseBinary reads public keys without armor: a keyring.
func ParseBinary(b []byte) (Keys, error) {
	var keys Keys
	if err := keys.add(b); err != nil {
		return Keys{}, err
	}
	return keys, nil
}

// cutBlock takes the lines between the first and the last one of a block off a text that begins with it.
func cutBlock(text string) (lines []string, rest string, err error) {
	body, found := strings.CutPrefix(text, begin)
	switch {
	case !found && strings.Contains(text, begin):
		return nil, "", errBetween
	case !found:
		return nil, "", errNoArmor
	}
	body, rest, found = strings.Cut(body, end)
	if !found {
		return nil, "", errNoEnd
	}
	for line := range strings.Lines(body) {
		lines = append(lines, strings.TrimSpace(line))
	}
	if len(lines) == 0 || lines[0] != "" {
		return nil, "", errHeader // something follows in the first line
	}
	return lines[1:], rest, nil
}

// unarmor decodes the lines of a block.
func unarmor(lines []string) ([]byte, error) {
	for len(lines) > 0 && lines[0] != "" {
		if !strings.Contains(lines[0], ":") {
			return nil, errHeader
		}
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return nil, errHeader
	}
	var body strings.Builder
	checksum := ""
	for _, line := range lines[1:] {
		switch {
		case line == "":
		case checksum != "":
			return nil, errBase64
		case line[0] == '=':
			checksum = line[1:]
		default:
			body.WriteString(line)
		}
	}
	binary, err := base64.StdEncoding.Strict().DecodeString(body.String())
	if err != nil {
		return nil, errBase64
	}
	if checksum == "" {
		return binary, nil
	}
	const crcBytes = 3
	sum, err := base64.StdEncoding.Strict().DecodeString(checksum)
	if err != nil || len(sum) != crcBytes {
		return nil, errBase64
	}
	if crc := crc24(binary); !bytes.Equal(sum, []byte{byte(crc >> 16), byte(crc >> 8), byte(crc)}) {
		return nil, errChecksum
	}
	return binary, nil
}

// crc24 is the checksum of armor, RFC 9580 section 6.1.
func crc24(b []byte) uint32 {
	const start, polynomial, top, mask = 0xb704ce, 0x1864cfb, 1 << 24, 1<<24 - 1
	crc := uint32(start)
	for _, c := range b {
		crc ^= uint32(c) << 16
		for range 8 {
			if crc <<= 1; crc&top != 0 {
				crc ^= polynomial
			}
		}
	}
	return crc & mask
}

// The tags of packets, RFC 9580 section 5.
const (
	tagSignature     = 2
	tagSecretKey     = 5
	tagPublicKey     = 6
	tagSecretSubkey  = 7
	tagMarker        = 10
	tagTrust         = 12
	tagUserID        = 13
	tagPublicSubkey  = 14
	tagUserAttribute = 17
	tagPadding       = 21
)

// add takes in the packets of one block.
func (k *Keys) add(binary []byte) error {
	if len(binary) == 0 {
		return errNoPackets
	}
	k.Binary = append(k.Binary, binary...)
	first := true
	for rest := binary; len(rest) > 0; {
		tag, body, after, err := nextPacket(rest)
		if err != nil {
			return err
		}
		switch tag {
		case tagSecretKey, tagSecretSubkey:
			return ErrPrivate
		case tagPublicKey:
			fingerprint, err := fingerprintOf(body)
			if err != nil {
				return err
			}
			k.Fingerprints = append(k.Fingerprints, fingerprint)
		case tagMarker:
			rest = after
			continue
		case tagSignature, tagTrust, tagUserID, tagPublicSubkey, tagUserAttribute, tagPadding:
			if first {
				return errNotKey
			}
		default:
			return errPacket
		}
		first, rest = false, after
	}
	if first {
		return errNoPackets
	}
	return nil
}

// nextPacket takes one packet off, RFC 9580 section 4.2.
func nextPacket(b []byte) (tag int, body, rest []byte, err error) {
	const always, newForm = 0x80, 0x40
	head := b[0]
	if head&always == 0 {
		return 0, nil, nil, errPacket
	}
	length, n := 0, 0
	if head&newForm != 0 {
		tag = int(head & 0x3f)
		length, n, err = newLength(b[1:])
	} else {
		tag = int(head >> 2 & 0x0f)
		length, n, err = oldLength(head&3, b[1:])
	}
	if err != nil {
		return 0, nil, nil, err
	}
	b = b[1+n:]
	if length > len(b) {
		return 0, nil, nil, errCut
	}
	return tag, b[:length], b[length:], nil
}

// oldLength reads a length of 1, 2 or 4 bytes; type 3 is of what ends with its file.
func oldLength(kind byte, b []byte) (length, n int, err error) {
	const toTheEnd = 3
	if kind == toTheEnd {
		return 0, 0, errPartial
	}
	n = 1 << kind
	if len(b) < n {
		return 0, 0, errCut
	}
	for _, c := range b[:n] {
		length = length<<8 | int(c)
	}
	return length, n, nil
}

// newLength reads a length of the newer form, section 4.2.1.
func newLength(b []byte) (length, n int, err error) {
	const twoFrom, partialFrom, five = 192, 224, 255
	switch {
	case len(b) == 0:
		return 0, 0, errCut
	case b[0] < twoFrom:
		return int(b[0]), 1, nil
	case b[0] < partialFrom:
		if len(b) < 2 {
			return 0, 0, errCut
		}
		return (int(b[0])-twoFrom)<<8 + int(b[1]) + twoFrom, 2, nil
	case b[0] == five:
		if len(b) < 5 {
			return 0, 0, errCut
		}
		return int(binary.BigEndian.Uint32(b[1:])), 5, nil
	}
	return 0, 0, errPartial
}

// fingerprintOf names a key by its packet, section 5.5.4.
func fingerprintOf(body []byte) (string, error) {
	const before4, prefix4, prefix6 = 4, 0x99, 0x9b
	if len(body) < 6 {
		return "", errCut
	}
	var sum []byte
	switch version := body[0]; {
	case version < before4:
		return "", errOld
	case version == before4:
		s := sha1.Sum(append([]byte{prefix4, byte(len(body) >> 8), byte(len(body))}, body...))
		sum = s[:]
	default:
		head := binary.BigEndian.AppendUint32([]byte{prefix6}, uint32(len(body)))
		s := sha256.Sum256(append(head, body...))
		sum = s[:]
	}
	return strings.ToUpper(hex.EncodeToString(sum)), nil
}
