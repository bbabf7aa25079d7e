package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
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

// FuzzExport is what somebody brings by hand.
func FuzzExport(f *testing.F) { fuzz[Export](f) }

// FuzzRange: of whatever is asked for, one byte to begin at is read, or nothing.
func FuzzRange(f *testing.F) {
	f.Fuzz(func(t *testing.T, header string) {
		from, err := DecodeRange(header)
		if err != nil && !reason.Is(err, reason.CallMalformed) || from < 0 {
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

// TestDecodingAllocates: whatever a message says that it has, there is no more memory for it than some hundred bytes for each that came.
func TestDecodingAllocates(t *testing.T) {
	for _, e := range examples() {
		good, err := Encode(e.message)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range spectest.Hostile(good) {
			used := spectest.Allocated(func() {
				_ = Decode(data, reflect.New(reflect.TypeOf(e.message)).Interface()) // only what it takes counts here
			})
			if most := uint64(64<<10 + 512*len(data)); used > most {
				t.Errorf("%T, %s: %d bytes are allocated for %d", e.message, name, used, len(data))
			}
		}
	}
}
