package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

const (
	// version is of all file formats. A file of a later one is left alone.
	version = 1
	// headerMax is more than any header line has, also those of later versions.
	headerMax = 64
	// frameHead is the length and the checksum, four bytes each, little endian.
	frameHead = 8
	// payloadMax bounds one frame: the largest is the report of a host on which 100,000 resources fail, 1 KiB each.
	payloadMax = 256 << 20
	// readBuffer is what reading a file costs besides its largest frame.
	readBuffer = 32 << 10
)

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoding and decoding are the one form of payloads. Strings are bytes here: a name is kept as it is, valid or not.
var encoding, decoding = modes()

func modes() (cbor.EncMode, cbor.DecMode) {
	options := cbor.CoreDetEncOptions()
	options.Time = cbor.TimeRFC3339Nano // as a number it would lose nanoseconds
	enc, err := options.EncMode()
	if err != nil {
		panic(fmt.Sprintf("store: encoding options of the CBOR library: %v", err))
	}
	// Nothing of ours nests deeper than a claim in a list in a removal in an event.
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, UTF8: cbor.UTF8DecodeInvalid, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("store: decoding options of the CBOR library: %v", err))
	}
	return enc, dec
}

// header is the first line of a file of a kind.
func header(kind string) []byte { return fmt.Appendf(nil, "tako %s %d\n", kind, version) }

// parseHeader reads a header line, without its newline. There is one line for each version.
func parseHeader(line, kind string) (v uint64, ok bool) {
	digits, ok := strings.CutPrefix(line, "tako "+kind+" ")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(digits, 10, 32)
	return v, err == nil && digits[0] != '0'
}

// appendFrame appends a frame with the encoded form of v, which is one of the package's own types: those cannot fail.
func appendFrame(buf []byte, v any) []byte {
	payload, err := encoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("store: encode %T: %v", v, err))
	}
	return appendRaw(buf, payload)
}

// appendRaw appends a frame. The payload must not be longer than payloadMax.
func appendRaw(buf, payload []byte) []byte {
	var head [frameHead]byte
	binary.LittleEndian.PutUint32(head[:4], uint32(len(payload)))
	binary.LittleEndian.PutUint32(head[4:], checksum(head[:4], payload))
	return append(append(buf, head[:]...), payload...)
}

// checksum covers the length too, so that a run of zeros is no frame.
func checksum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, payload)
}

// frameLen is how long the frame is that a buffer begins with; 0 where there is not even its head.
func frameLen(b []byte) int64 {
	if len(b) < frameHead {
		return 0
	}
	return frameHead + int64(binary.LittleEndian.Uint32(b))
}

// cutFrame takes the payload of a frame from the beginning of a buffer, and returns what is behind it.
func cutFrame(b []byte) (payload, rest []byte, ok bool) {
	n := frameLen(b)
	if n < frameHead || n > int64(len(b)) || binary.LittleEndian.Uint32(b[4:]) != checksum(b[:4], b[frameHead:n]) {
		return nil, nil, false
	}
	return b[frameHead:n:n], b[n:], true
}

// errNoHeader says that a file does not begin like one of ours.
var errNoHeader = errors.New("it does not begin with the line of such a file")

// newerError says that a file is of a later version.
type newerError struct{ version uint64 }

func (e newerError) Error() string {
	return fmt.Sprintf("it has format version %d, this program knows %d", e.version, version)
}

// scan reads the frames of one file in order. It needs memory for its largest good frame, and never more than the file has.
type scan struct {
	r      *bufio.Reader
	size   int64 // of the file, bytes
	at     int64 // where the next frame begins
	end    int64 // where the last good frame ends
	passed int   // frames with a wrong checksum that a good one follows
	bad    int   // frames with a wrong checksum since the last good one
	buf    []byte
	err    error // of reading
}

// newScan reads the header. Its errors are errNoHeader, newerError and those of r.
func newScan(r io.Reader, size int64, kind string) (*scan, error) {
	s := &scan{r: bufio.NewReaderSize(r, int(min(size+1, readBuffer))), size: size}
	line, err := s.r.ReadSlice('\n')
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, err
	}
	if err != nil || len(line) > headerMax {
		return nil, errNoHeader
	}
	v, ok := parseHeader(string(line[:len(line)-1]), kind)
	switch {
	case !ok:
		return nil, errNoHeader
	case v > version:
		return nil, newerError{v}
	}
	s.at, s.end = int64(len(line)), int64(len(line))
	return s, nil
}

// next returns the payload of the next good frame, which is valid until the next call, and where its frame begins; nothing
// at the end.
func (s *scan) next() (payload []byte, at int64, ok bool) {
	for s.err == nil {
		var head [frameHead]byte
		if s.size-s.at < frameHead || !s.fill(head[:]) {
			return nil, 0, false
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n > payloadMax || n > s.size-s.at-frameHead {
			return nil, 0, false
		}
		if n > int64(cap(s.buf)) {
			s.buf = make([]byte, n)
		}
		payload = s.buf[:n]
		if !s.fill(payload) {
			return nil, 0, false
		}
		at = s.at
		s.at += frameHead + n
		if checksum(head[:4], payload) != binary.LittleEndian.Uint32(head[4:]) {
			s.bad++
			continue
		}
		s.passed += s.bad
		s.bad = 0
		s.end = s.at
		return payload, at, true
	}
	return nil, 0, false
}

// fill reads exactly len(b) bytes. A file that has become shorter meanwhile just ends.
func (s *scan) fill(b []byte) bool {
	_, err := io.ReadFull(s.r, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		s.err = err
	}
	return err == nil
}

// damage says what is wrong with a file.
type damage struct {
	passed     int   // damaged frames that good ones follow
	torn, size int64 // bytes behind the last good frame, and of the file
}

func (d damage) Error() string {
	torn := fmt.Sprintf("the last %d of %d bytes are torn", d.torn, d.size)
	switch {
	case d.passed == 0:
		return torn
	case d.torn == 0:
		return fmt.Sprintf("damaged frames: %d", d.passed)
	}
	return fmt.Sprintf("damaged frames: %d, and %s", d.passed, torn)
}

// verdict is nil when the whole file is good. After the last next only.
func (s *scan) verdict() error {
	if s.err != nil {
		return s.err
	}
	if s.passed > 0 || s.end < s.size {
		return damage{s.passed, s.size - s.end, s.size}
	}
	return nil
}
