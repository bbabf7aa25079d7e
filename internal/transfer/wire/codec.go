package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/internal/reason"
)

// encoding, decoding are core deterministic CBOR; what a later version has more is passed over.
var encoding, decoding = modes()

func modes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("wire: encoding options of the CBOR library: %v", err))
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, MaxArrayElements: 8192, MaxMapPairs: 1024,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("wire: decoding options of the CBOR library: %v", err))
	}
	return enc, dec
}

// Encode is a message as bytes. The error is InternalFault.
func Encode(message any) ([]byte, error) {
	b, err := encoding.Marshal(message)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("encode %T", message), Cause: err}
	}
	return b, nil
}

// Decode reads a message. The error is StateCorrupt.
func Decode(data []byte, message any) error {
	if err := decoding.Unmarshal(data, message); err != nil {
		return &reason.Error{Code: reason.StateCorrupt, Doing: fmt.Sprintf("decode %T", message), Cause: err}
	}
	return nil
}

// ReadAll reads one message that takes all of a body of at most so many bytes. The errors are StateCorrupt, and those of the reader.
func ReadAll(r io.Reader, max int64, message any) error {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return err
	}
	if int64(len(data)) > max {
		return tooLong(message, max)
	}
	return Decode(data, message)
}

// WriteFrame writes one message of a stream. It is one call of w.
func WriteFrame(w io.Writer, message any) error {
	data, err := Encode(message)
	if err != nil {
		return err
	}
	if len(data) > FrameMax {
		return &reason.Error{Code: reason.InternalFault, Doing: fmt.Sprintf("send %T", message), Cause: fmt.Errorf("%d bytes, the limit is %d", len(data), FrameMax)}
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data))), data...))
	return err
}

// ReadFrame reads one message of a stream. The errors are io.EOF at its end, io.ErrUnexpectedEOF inside of a frame, StateCorrupt, and
// those of the reader.
func ReadFrame(r io.Reader, message any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > FrameMax {
		return tooLong(message, FrameMax)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return Decode(data, message)
}

func tooLong(message any, max int64) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: fmt.Sprintf("decode %T", message), Cause: fmt.Errorf("it has more than %d bytes", max)}
}
