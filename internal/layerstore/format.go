package layerstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

const (
	// version is of the file format. A file of a later one is left alone.
	version = 2
	line    = "tako layer 2\n"

	headBytes = len(line) + 3*digestBytes + 4 + 4 + 8 + 4
	rowBytes  = 2*digestBytes + 8 + 4 + 4

	digestBytes = len(catalog.Digest{})

	// A row's length and flags share four bytes: a body has at most a MiB.
	flagBits      = 8
	flagDeleted   = 1
	flagDelivered = 2
)

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errNewer = errors.New("a later version of tako-agent has written it")
	errLine  = errors.New("it does not begin with the line of such a file")
	errHead  = errors.New("its head is damaged")
	errRow   = errors.New("a row in it is damaged")
	errBody  = errors.New("a body in it has changed")
	errOrder = errors.New("its rows are not in order")
)

// head is what a file says of itself.
type head struct {
	root   catalog.Digest
	base   catalog.Digest // of the layer that it is a difference to; zero: it has all rows
	of     catalog.Digest // of the layer that this is the remains of; zero: of none
	rows   int
	acting int   // of these, how many are acted upon
	length int64 // of the file
}

func (h *head) whole() bool { return h.base == catalog.Digest{} }

// actingAt is where the bits are, bodiesAt where the bodies begin.
func (h *head) actingAt() int64 { return int64(headBytes) + int64(h.rows)*int64(rowBytes) }
func (h *head) bodiesAt() int64 { return h.actingAt() + int64(bitBytes(h.rows)) }

func bitBytes(rows int) int { return (rows + 7) / 8 }

func (h *head) encode() []byte {
	b := append(make([]byte, 0, headBytes), line...)
	for _, d := range []catalog.Digest{h.root, h.base, h.of} {
		b = append(b, d[:]...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(h.rows))
	b = binary.BigEndian.AppendUint32(b, uint32(h.acting))
	b = binary.BigEndian.AppendUint64(b, uint64(h.length))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeHead reads the beginning of a file.
func decodeHead(b []byte) (head, error) {
	if err := checkLine(b); err != nil {
		return head{}, err
	}
	if len(b) < headBytes {
		return head{}, errHead
	}
	b = b[:headBytes]
	sum := headBytes - 4
	if crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return head{}, errHead
	}
	var h head
	rest := b[len(line):]
	for _, d := range []*catalog.Digest{&h.root, &h.base, &h.of} {
		*d, rest = catalog.Digest(rest[:digestBytes]), rest[digestBytes:]
	}
	rows, acting, length := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:]), binary.BigEndian.Uint64(rest[8:])
	// A difference may also say what is not there any more.
	if rows > 2*catalog.EntriesMax || acting > rows || length > uint64(headBytes)+uint64(rows)*uint64(rowBytes+1+declare.BodyBytesMax) {
		return head{}, fmt.Errorf("it says that it has %d rows in %d bytes", rows, length)
	}
	h.rows, h.acting, h.length = int(rows), int(acting), int64(length)
	if h.length < h.bodiesAt() {
		return head{}, fmt.Errorf("it says that it has %d rows in %d bytes", rows, length)
	}
	return h, nil
}

// checkLine reads the line that a file begins with.
func checkLine(b []byte) error {
	text, _, ok := bytes.Cut(b, []byte("\n"))
	digits, of := strings.CutPrefix(string(text), "tako layer ")
	v, err := strconv.ParseUint(digits, 10, 32)
	switch {
	case !ok || !of || err != nil:
		return errLine
	case v > version:
		return errNewer
	case v < version:
		return errors.New("an earlier version of tako-agent has written it")
	case string(text) != strings.TrimSuffix(line, "\n"):
		return errLine
	}
	return nil
}

// row is one row of a file.
type row struct {
	catalog.Row
	at        int64 // of the body in the file
	length    int
	deleted   bool // it is in the base, and not in this layer; nothing else is set then
	delivered bool // it is not acted upon: catalog.Delivered
}

func (r *row) append(b []byte) []byte {
	from := len(b)
	b = append(append(b, r.Key[:]...), r.Digest[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.at))
	flags := uint32(r.length) << flagBits
	if r.deleted {
		flags |= flagDeleted
	}
	if r.delivered {
		flags |= flagDelivered
	}
	b = binary.BigEndian.AppendUint32(b, flags)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// acting tells whether the row is acted upon.
func (r *row) acting() bool { return !r.deleted && !r.delivered }

// decodeRow reads a row of a file; false where it is damaged.
func (h *head) decodeRow(b []byte) (row, bool) {
	sum := rowBytes - 4
	if crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:rowBytes]) {
		return row{}, false
	}
	flags := binary.BigEndian.Uint32(b[2*digestBytes+8:])
	r := row{
		Row:       catalog.Row{Key: catalog.Digest(b[:digestBytes]), Digest: catalog.Digest(b[digestBytes : 2*digestBytes])},
		at:        int64(binary.BigEndian.Uint64(b[2*digestBytes:])),
		length:    int(flags >> flagBits),
		deleted:   flags&flagDeleted != 0,
		delivered: flags&flagDelivered != 0,
	}
	if r.deleted {
		return r, r.length == 0 && !h.whole()
	}
	return r, r.length <= declare.BodyBytesMax && r.at >= h.bodiesAt() && r.at <= h.length-int64(r.length)
}
