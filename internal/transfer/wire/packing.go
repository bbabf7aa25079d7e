package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// packedPart is a SyncPart as it goes over the wire. Rows are the changes one after the other, each with a number before it, unsigned LEB128:
//
//	0        the row is deleted: its key
//	2n       a body of n bytes, whose key is that of the claim which it begins with: catalog.KeyOfBody
//	2n + 1   a key, and a body of n bytes
//
// Where Unpacked is set, Rows are one Zstandard frame (RFC 8878) of so many bytes, with a window of at most windowMax.
type packedPart struct {
	Kind     SyncKind `cbor:"1,keyasint"`
	Rows     []byte   `cbor:"2,keyasint,omitempty"`
	Last     bool     `cbor:"3,keyasint,omitempty"`
	Unpacked uint32   `cbor:"4,keyasint,omitempty"`
}

const (
	// windowMax is what an agent looks back when it unpacks, in bytes: it is a part of what a host pays for being managed.
	windowMax = 512 << 10
	// packMin is of how many bytes on packing is tried: of one row there is little that repeats, and a shorter frame would not say its size.
	packMin = 256
	// packShare is what packing must save, of all: what is compressed already only costs whoever unpacks it.
	packShare = 8
)

// Packer writes parts, many after one another or at once, and keeps between them what packing needs: some hundred KB, until the collector
// takes it. The zero value is ready.
type Packer struct{ encoders sync.Pool }

// WriteFrame is WriteFrame of a part.
func (p *Packer) WriteFrame(w io.Writer, part *SyncPart) error {
	e, kept := p.encoders.Get().(*zstd.Encoder)
	if !kept {
		e = newEncoder()
	}
	packed, err := part.pack(e)
	p.encoders.Put(e)
	if err != nil {
		return err
	}
	return WriteFrame(w, packed)
}

func newEncoder() *zstd.Encoder {
	// The fastest level: on bodies of data the next one takes twice the time, and saves nothing. There is no checksum, because roots are compared.
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowMax),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(fmt.Sprintf("wire: options of the encoder of Zstandard: %v", err))
	}
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowMax), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("wire: options of the decoder of Zstandard: %v", err))
	}
	return d
}

// MarshalCBOR packs a part, as a Packer does.
func (p SyncPart) MarshalCBOR() ([]byte, error) {
	packed, err := p.pack(newEncoder())
	if err != nil {
		return nil, err
	}
	return encoding.Marshal(packed)
}

// pack packs a part, if that pays.
func (p *SyncPart) pack(e *zstd.Encoder) (packedPart, error) {
	packed := packedPart{Kind: p.Kind, Last: p.Last}
	rows, err := encodeRows(p.Changes)
	if err != nil {
		return packed, &reason.Error{Code: reason.InternalFault, Doing: "send a layer", Cause: err}
	}
	packed.Rows = rows
	if len(rows) < packMin {
		return packed, nil
	}
	if short := e.EncodeAll(rows, make([]byte, 0, len(rows))); len(short) < len(rows)-len(rows)/packShare {
		packed.Rows, packed.Unpacked = short, uint32(len(rows))
	}
	return packed, nil
}

// UnmarshalCBOR unpacks a part. Nothing is made room for that is larger than a frame may be, whatever the part says.
func (p *SyncPart) UnmarshalCBOR(data []byte) error {
	var packed packedPart
	if err := decoding.Unmarshal(data, &packed); err != nil {
		return err
	}
	rows, err := packed.rows()
	if err != nil {
		return err
	}
	changes, err := decodeRows(rows)
	if err != nil {
		return err
	}
	*p = SyncPart{Kind: packed.Kind, Changes: changes, Last: packed.Last}
	return nil
}

// rows are the rows, unpacked.
func (p *packedPart) rows() ([]byte, error) {
	if p.Unpacked == 0 {
		return p.Rows, nil
	}
	if p.Unpacked > FrameMax {
		return nil, fmt.Errorf("its rows have %d bytes, at most %d are allowed", p.Unpacked, FrameMax)
	}
	var header zstd.Header
	if err := header.Decode(p.Rows); err != nil {
		return nil, fmt.Errorf("read packed rows: %w", err)
	}
	if !header.HasFCS || header.FrameContentSize != uint64(p.Unpacked) {
		return nil, errors.New("its packed rows are of another length than it says")
	}
	d := newDecoder()
	defer d.Close()
	rows, err := d.DecodeAll(p.Rows, make([]byte, 0, p.Unpacked))
	if err == nil && len(rows) != int(p.Unpacked) {
		err = errors.New("something follows them")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack rows: %w", err)
	}
	return rows, nil
}

// encodeRows are changes as packedPart says. The error is of what no part may hold.
func encodeRows(changes []Change) ([]byte, error) {
	if len(changes) > ChangesMax {
		return nil, fmt.Errorf("it has %d changes, at most %d are allowed", len(changes), ChangesMax)
	}
	size := 0
	for i := range changes {
		size += binary.MaxVarintLen32 + len(changes[i].Key) + len(changes[i].Body)
	}
	b := make([]byte, 0, size)
	for i := range changes {
		c := &changes[i]
		if c.Deleted {
			b = append(append(b, 0), c.Key[:]...)
			continue
		}
		if key, found := catalog.KeyOfBody(c.Body); found && key == c.Key {
			b = binary.AppendUvarint(b, uint64(len(c.Body))<<1)
		} else {
			b = binary.AppendUvarint(b, uint64(len(c.Body))<<1|1)
			b = append(b, c.Key[:]...)
		}
		b = append(b, c.Body...)
	}
	return b, nil
}

var errRows = errors.New("its rows are cut off")

// decodeRows reads what encodeRows wrote. The bodies are where they were.
func decodeRows(rows []byte) ([]Change, error) {
	count := 0
	for rest := rows; len(rest) > 0; count++ {
		var err error
		if _, rest, err = nextRow(rest); err != nil {
			return nil, err
		}
		if count >= ChangesMax {
			return nil, fmt.Errorf("it has more than %d changes", ChangesMax)
		}
	}
	if count == 0 {
		return nil, nil
	}
	changes := make([]Change, count)
	for i := range changes {
		var row packedRow
		var err error
		if row, rows, err = nextRow(rows); err != nil {
			return nil, err
		}
		if changes[i], err = row.change(); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// packedRow is a row before anything is computed of it.
type packedRow struct {
	key  []byte // nil: it follows from the body
	body []byte // nil: it is deleted
}

// nextRow cuts off the first row.
func nextRow(rows []byte) (r packedRow, rest []byte, err error) {
	number, n := binary.Uvarint(rows)
	if n <= 0 || number>>1 > FrameMax {
		return r, nil, errRows
	}
	rest = rows[n:]
	if number == 0 || number&1 == 1 {
		if len(rest) < len(catalog.Digest{}) {
			return r, nil, errRows
		}
		r.key, rest = rest[:len(catalog.Digest{})], rest[len(catalog.Digest{}):]
	}
	if number == 0 {
		return r, rest, nil
	}
	length := int(number >> 1)
	if length > len(rest) {
		return r, nil, errRows
	}
	r.body = rest[:length:length]
	return r, rest[length:], nil
}

func (r *packedRow) change() (Change, error) {
	c := Change{Deleted: r.body == nil, Body: r.body}
	if r.key != nil {
		c.Key = catalog.Digest(r.key)
		return c, nil
	}
	key, found := catalog.KeyOfBody(r.body)
	if !found {
		return c, errors.New("a row has no key, and its body does not begin with a claim")
	}
	c.Key = key
	return c, nil
}
