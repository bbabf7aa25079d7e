package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/reason"
)

// endless is a body without an end, of which is counted how much was read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.read += len(p)
	return len(p), nil
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestTransferCase42_RefusedBeforeAllocation: what says that it is larger, longer or deeper than it may be is refused for what it says, before there
// is memory for it.
func TestTransferCase42_RefusedBeforeAllocation(t *testing.T) {
	c := casetest.Start(t)
	const little = 64 << 10
	framed := func(content []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	}
	for name, data := range map[string][]byte{
		"4 GiB":                        {0xff, 0xff, 0xff, 0xff},
		"one byte too long":            binary.BigEndian.AppendUint32(nil, FrameMax+1),
		"an array of 2^63 elements":    framed([]byte{0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0}),
		"a part of 2^32 changes":       framed([]byte{0xa2, 0x01, 0x01, 0x02, 0x9a, 0xff, 0xff, 0xff, 0xff}),
		"a body of 2^62 bytes":         framed([]byte{0xa1, 0x02, 0x81, 0xa1, 0x03, 0x5b, 0x40, 0, 0, 0, 0, 0, 0, 0}),
		"a map of 2^40 pairs":          framed([]byte{0xbb, 0, 0, 1, 0, 0, 0, 0, 0}),
		"nested 10,000 times":          framed(bytes.Repeat([]byte{0x81}, 10_000)),
		"nested maps":                  framed(bytes.Repeat([]byte{0xa1, 0x02}, 5_000)),
		"a body of unknown length":     framed([]byte{0xa1, 0x02, 0x81, 0xa1, 0x03, 0x5f}),
		"tags around tags":             framed(bytes.Repeat([]byte{0xc1}, 5_000)),
		"more changes than a part has": framed(append([]byte{0xa1, 0x02, 0x99, 0x20, 0x01}, bytes.Repeat([]byte{0xa0}, 8193)...)),
	} {
		var part SyncPart
		var err error
		used := allocated(func() { err = ReadFrame(bytes.NewReader(data), &part) })
		c.Check(reason.Is(err, reason.StateCorrupt), "%s: %v", name, err)
		c.Check(used < little, "%s: %d bytes were allocated for %d", name, used, len(data))
	}
	// A frame that breaks off costs what a frame may have, and no more.
	var err error
	used := allocated(func() {
		err = ReadFrame(bytes.NewReader(binary.BigEndian.AppendUint32(nil, FrameMax)), &SyncPart{})
	})
	c.Check(errors.Is(err, io.ErrUnexpectedEOF) && used < 2*FrameMax, "a frame that breaks off: %v, %d bytes", err, used)
	// A message without end is read up to its bound.
	body := &endless{}
	err = ReadAll(body, RequestMax, &WatchRequest{})
	c.Check(reason.Is(err, reason.StateCorrupt) && body.read <= 2*RequestMax, "%v after %d bytes, at most %d are allowed", err, body.read, RequestMax)
}
