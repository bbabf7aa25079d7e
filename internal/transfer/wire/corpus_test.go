package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/spectest"
)

// TestCorpus keeps the corpus of each target: what is sent, and what somebody may send instead.
func TestCorpus(t *testing.T) {
	good := map[string][][]byte{}
	for _, e := range examples() {
		data, err := Encode(e.message)
		if err != nil {
			t.Fatal(err)
		}
		name := reflect.TypeOf(e.message).Name()
		good[name] = append(good[name], data)
	}
	for name, all := range good {
		inputs := spectest.Hostile(all[0])
		for i, data := range all {
			inputs[fmt.Sprintf("good-%d", i)] = data
		}
		if name == "SyncPart" {
			maps.Copy(inputs, hostileParts(t))
		}
		spectest.CorpusOf(t, "Fuzz"+name, inputs)
	}
	frames := map[string][]byte{
		"empty": {}, "three-bytes": {0, 0, 0}, "4GiB": {0xff, 0xff, 0xff, 0xff}, "one-too-long": binary.BigEndian.AppendUint32(nil, FrameMax+1),
		"a-frame-that-does-not-come": binary.BigEndian.AppendUint32(nil, FrameMax), "no-bytes": {0, 0, 0, 0}, "many-without-bytes": make([]byte, 400),
	}
	for name, data := range spectest.Hostile(good["Frame"][0]) {
		frames[name] = append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
	}
	for i, data := range good["Frame"] {
		frames["all"] = append(append(frames["all"], binary.BigEndian.AppendUint32(nil, uint32(len(data)))...), data...)
		frames[fmt.Sprintf("said-too-long-%d", i)] = append(binary.BigEndian.AppendUint32(nil, uint32(len(data)+1)), data...)
	}
	spectest.CorpusOf(t, "FuzzReadFrame", frames)

	headers := map[string][]any{}
	digits := strings.Repeat("0a", 32)
	for name, text := range map[string]string{
		"good": digits, "empty": "", "capitals": strings.ToUpper(digits), "one-digit-more": digits + "0", "one-digit-less": digits[1:], "a-prefix": "sha256:" + digits,
		"base64": EncodeHead([]byte("a head")), "padded": "YQ==", "of-urls": "_-_-", "with-a-newline": "YWFh\n", "too-long": strings.Repeat("A", headMax+1),
	} {
		headers[name] = []any{text}
	}
	spectest.Corpus(t, "FuzzHeaders", headers)
	ranges := map[string][]any{}
	for name, text := range map[string]string{
		"none": "", "from-0": "bytes=0-", "from-100": "bytes=100-", "to-the-largest": "bytes=9223372036854775807-", "one-more": "bytes=9223372036854775808-", "below-0": "bytes=-5-",
		"the-last": "bytes=-5", "a-part": "bytes=0-99", "several": "bytes=0-1,2-3", "another-unit": "rows=0-", "a-sign": "bytes=+1-", "spaces": "bytes= 1-",
	} {
		ranges[name] = []any{text}
	}
	spectest.Corpus(t, "FuzzRange", ranges)
	spectest.Targets(t)
}

// hostileParts are parts whose rows are packed, and whose rows are no rows. They are packed by hand, so that they are the same whatever compresses.
func hostileParts(t *testing.T) map[string][]byte {
	t.Helper()
	number := func(n uint64) []byte { return binary.AppendUvarint(nil, n) }
	deletions := func(n int) int { return n * (1 + len(catalog.Digest{})) } // bytes, all of them 0
	keyOfA := catalog.KeyOf("a:")
	ten := repeated(0, deletions(10))
	parts := map[string]packedPart{
		"packed": {Kind: SyncDelta, Rows: ten, Unpacked: uint32(deletions(10)), Last: true}, "packed-and-not-said": {Kind: SyncDelta, Rows: ten},
		"packed-one-byte-more": {Rows: ten, Unpacked: uint32(deletions(10) + 1)}, "packed-one-byte-less": {Rows: ten, Unpacked: uint32(deletions(10) - 1)},
		"packed-half-a-row": {Rows: repeated(0, 40), Unpacked: 40}, "packed-cut-off": {Rows: ten[:len(ten)-1], Unpacked: uint32(deletions(10))},
		"packed-twice":      {Rows: slices.Concat(ten, ten), Unpacked: uint32(deletions(10))},
		"packed-followed":   {Rows: append(bytes.Clone(ten), 0), Unpacked: uint32(deletions(10))},
		"packed-4GiB":       {Rows: ten, Unpacked: math.MaxUint32},
		"packed-no-bytes":   {Rows: repeated(0, 0), Unpacked: 1},
		"a-bomb":            {Rows: repeated(0, 64<<20), Unpacked: 100},
		"a-bomb-that-says":  {Rows: repeated(0, 64<<20), Unpacked: 64 << 20},
		"as-long-as-can-be": {Rows: repeated(0, FrameMax), Unpacked: FrameMax},
		"one-byte-longer":   {Rows: repeated(0, FrameMax+1), Unpacked: FrameMax + 1},
		"too-many-changes":  {Rows: repeated(0, deletions(ChangesMax+1)), Unpacked: uint32(deletions(ChangesMax + 1))},
		"no-frame":          {Rows: []byte("nothing of that"), Unpacked: 15},
		"skippable":         {Rows: []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}, Unpacked: 330},
		"key-cut-off":       {Rows: make([]byte, 32)},
		"body-cut-off":      {Rows: []byte{20, 1, 2}},
		"number-cut-off":    {Rows: []byte{0x80}},
		"number-of-10":      {Rows: bytes.Repeat([]byte{0xff}, 10)},
		"body-of-2e62":      {Rows: number(1 << 63)},
		"no-body":           {Rows: slices.Concat(number(1), make([]byte, 32))},
		"no-claim":          {Rows: append(number(2*4), "body"...)},
		"a-claim":           {Kind: SyncDelta, Rows: append(number(2*6), 0xa1, 0x61, 'c', 0x62, 'a', ':')},
		"a-long-number":     {Kind: SyncDelta, Rows: append([]byte{0x8c, 0x00}, 0xa1, 0x61, 'c', 0x62, 'a', ':')},
		"a-key-for-nothing": {Kind: SyncDelta, Rows: slices.Concat(number(2*6+1), keyOfA[:], []byte{0xa1, 0x61, 'c', 0x62, 'a', ':'})},
	}
	wide := repeated(0, deletions(10))
	wide[5] = 10 << 3
	parts["a-window-of-1MiB"] = packedPart{Rows: wide, Unpacked: uint32(deletions(10))}
	all := map[string][]byte{}
	for name, p := range parts {
		all[name] = partOf(t, p)
	}
	return all
}

// repeated is one byte so many times as a frame of Zstandard, written from RFC 8878 alone: it says its size, has a window of 512 KiB, and blocks of
// one byte that is repeated.
func repeated(of byte, size int) []byte {
	const blockMax, repeat, last = 128 << 10, 1 << 1, 1
	frame := binary.LittleEndian.AppendUint32([]byte{0x28, 0xb5, 0x2f, 0xfd, 2 << 6, 9 << 3}, uint32(size))
	for {
		n := min(size, blockMax)
		head := uint32(n)<<3 | repeat
		if size -= n; size == 0 {
			head |= last
		}
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), of)
		if size == 0 {
			return frame
		}
	}
}

// TestUnpacksOthers: rows that somebody else has packed are read.
func TestUnpacksOthers(t *testing.T) {
	var part SyncPart
	if err := Decode(hostileParts(t)["packed"], &part); err != nil || part.Kind != SyncDelta || !part.Last || len(part.Changes) != 10 || !part.Changes[9].Deleted {
		t.Errorf("it is read as %+v, %v", part, err)
	}
}

// FuzzExport is what somebody brings by hand.
func FuzzExport(f *testing.F) { fuzz[Export](f) }

// FuzzRange: of whatever is asked for, one byte to begin at is read, or nothing.
func FuzzRange(f *testing.F) {
	f.Fuzz(func(t *testing.T, header string) {
		from, err := DecodeRange(header)
		if from < 0 || err != nil && from != 0 || err == nil && header != "" && !strings.HasPrefix(header, "bytes=") {
			t.Errorf("%q is read as %d, %v", header, from, err)
		}
	})
}

// FuzzHeaders: what is read of a header has one text only, and is not longer than a head.
func FuzzHeaders(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := DecodeKey(text); err == nil && key.String() != text {
			t.Errorf("%q is read as key %s", text, key)
		}
		head, err := DecodeHead(text)
		if err != nil {
			return
		}
		if len(head) > headMax {
			t.Errorf("a head of %d bytes", len(head))
		}
		if again, err := DecodeHead(EncodeHead(head)); err != nil || !bytes.Equal(again, head) {
			t.Errorf("%q is read as %x, and that as %x", text, head, again)
		}
	})
}

// unpackingMax is what the rows of one part may take: they themselves, and what unpacks them, whatever is in them.
const unpackingMax = 3 * FrameMax

// TestDecodingAllocates: whatever a message says that it has, there is no more memory for it than some hundred bytes for each that came.
func TestDecodingAllocates(t *testing.T) {
	for _, e := range examples() {
		good, err := Encode(e.message)
		if err != nil {
			t.Fatal(err)
		}
		hostile := spectest.Hostile(good)
		most := func(n int) uint64 { return uint64(64<<10 + 512*n) }
		if _, is := e.message.(SyncPart); is {
			maps.Copy(hostile, hostileParts(t))
			most = func(n int) uint64 { return uint64(unpackingMax + 512*n) }
		}
		for name, data := range hostile {
			used := spectest.Allocated(func() {
				_ = Decode(data, reflect.New(reflect.TypeOf(e.message)).Interface()) // only what it takes counts here
			})
			if used > most(len(data)) {
				t.Errorf("%T, %s: %d bytes are allocated for %d", e.message, name, used, len(data))
			}
		}
	}
}
