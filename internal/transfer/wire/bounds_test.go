package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

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

// partOf is a part as somebody else may have encoded it.
func partOf(t *testing.T, p packedPart) []byte {
	t.Helper()
	data, err := encoding.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bomb is so many bytes that are 0, packed.
func bomb(t *testing.T, size int) []byte { return packed(t, make([]byte, size), windowMax) }

func packed(t *testing.T, rows []byte, window int) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return e.EncodeAll(rows, nil)
}

// blindBomb does not say how long it is.
func blindBomb(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	e, err := zstd.NewWriter(&b, zstd.WithWindowSize(windowMax), zstd.WithEncoderConcurrency(1))
	if err == nil {
		_, err = e.Write(make([]byte, size))
	}
	if err := errors.Join(err, e.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// wide needs a window of 1 MiB.
func wide(t *testing.T) []byte { return packed(t, make([]byte, FrameMax), 1<<20) }

// TestTransferCase42_RefusedBeforeAllocation: what says that it is larger, longer or deeper than it may be is refused for what it says, before there
// is memory for it.
func TestTransferCase42_RefusedBeforeAllocation(t *testing.T) {
	c := casetest.Start(t)
	const little = 64 << 10
	framed := func(content []byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	}
	for name, data := range map[string][]byte{
		"4 GiB":                      {0xff, 0xff, 0xff, 0xff},
		"one byte too long":          binary.BigEndian.AppendUint32(nil, FrameMax+1),
		"an array of 2^63 elements":  framed([]byte{0x9b, 0x80, 0, 0, 0, 0, 0, 0, 0}),
		"rows of 2^32 bytes":         framed([]byte{0xa2, 0x01, 0x01, 0x02, 0x5a, 0xff, 0xff, 0xff, 0xff}),
		"a body of 2^62 bytes":       framed(partOf(t, packedPart{Rows: binary.AppendUvarint(nil, 1<<63)})),
		"a body that is not there":   framed(partOf(t, packedPart{Rows: []byte{200}})),
		"unpacked 4 GiB":             framed(partOf(t, packedPart{Rows: bomb(t, 1<<10), Unpacked: 1<<32 - 1})),
		"unpacked one byte too long": framed(partOf(t, packedPart{Rows: bomb(t, FrameMax+1), Unpacked: FrameMax + 1})),
		"a bomb":                     framed(partOf(t, packedPart{Rows: bomb(t, 64<<20), Unpacked: 100})),
		"a bomb of unknown length":   framed(partOf(t, packedPart{Rows: blindBomb(t, 64<<20), Unpacked: 100})),
		"a map of 2^40 pairs":        framed([]byte{0xbb, 0, 0, 1, 0, 0, 0, 0, 0}),
		"nested 10,000 times":        framed(bytes.Repeat([]byte{0x81}, 10_000)),
		"nested maps":                framed(bytes.Repeat([]byte{0xa1, 0x02}, 5_000)),
		"rows of unknown length":     framed([]byte{0xa1, 0x02, 0x5f}),
		"tags around tags":           framed(bytes.Repeat([]byte{0xc1}, 5_000)),
		"an array of changes":        framed(append([]byte{0xa1, 0x02, 0x99, 0x20, 0x01}, bytes.Repeat([]byte{0xa0}, 8193)...)),
	} {
		var part SyncPart
		var err error
		used := allocated(func() { err = ReadFrame(bytes.NewReader(data), &part) })
		c.Check(reason.Is(err, reason.StateCorrupt), "%s: %v", name, err)
		c.Check(used < little, "%s: %d bytes were allocated for %d", name, used, len(data))
	}
	// What is packed costs what a frame may have, whatever is in it: more changes than a part may have, other frames behind the first, a wide window.
	many := bytes.Repeat(make([]byte, 33), ChangesMax+1)
	for name, part := range map[string]packedPart{
		"more changes than a part has": {Rows: many},
		"the same, packed":             {Rows: bomb(t, len(many)), Unpacked: uint32(len(many))},
		"a bomb behind a frame":        {Rows: append(bomb(t, 1<<10), bomb(t, 64<<20)...), Unpacked: 1 << 10},
		"a window that is too wide":    {Rows: wide(t), Unpacked: FrameMax},
		"a frame that is cut off":      {Rows: bomb(t, 64<<10)[:12], Unpacked: 64 << 10},
	} {
		var err error
		data := framed(partOf(t, part))
		used := allocated(func() { err = ReadFrame(bytes.NewReader(data), &SyncPart{}) })
		c.Check(reason.Is(err, reason.StateCorrupt), "%s: %v", name, err)
		c.Check(used < 3*FrameMax, "%s: %d bytes were allocated for %d", name, used, len(data))
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
