package body

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf16"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// escapesBody reads JSON as long as each escape \uXXXX in it is a character, alone or with the one behind it. It knows where it is
// in an escape, and holds nothing of the text.
type escapesBody struct {
	io.ReadCloser
	offset int64 // bytes that have been read
	state  escapeState
	digits int  // hexadecimal digits of the escape that have been read
	value  rune // of these
	high   rune // the first half, whose second must follow; 0 for none
	began  int64
}

type escapeState int

const (
	inText   escapeState = iota // anywhere else
	inEscape                    // behind a backslash
	inDigits                    // behind \u
)

// Read reads, and refuses half of a character. The library hands the answer that is the error to the client.
func (b *escapesBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; rest = rest[1:] {
		if b.state == inText && b.high == 0 {
			to := bytes.IndexByte(rest, '\\')
			if to < 0 {
				b.offset += int64(len(rest))
				break
			}
			rest = rest[to:]
			b.offset += int64(to)
		}
		if !b.step(rest[0]) {
			return 0, apierrors.NewBadRequest(fmt.Sprintf(
				"the body has half of a character: the escape at byte %d, counted from 0, is one of two that make a character, and the other is missing", b.began))
		}
		b.offset++
	}
	return n, err
}

// step takes one byte; false says that what began at began is half of a character.
func (b *escapesBody) step(c byte) bool {
	switch {
	case b.state == inText && c == '\\':
		b.state = inEscape
		if b.high == 0 {
			b.began = b.offset
		}
	case b.state == inText:
		return b.high == 0
	case b.state == inEscape && c == 'u':
		b.state, b.digits, b.value = inDigits, 0, 0
	case b.state == inEscape:
		b.state = inText
		return b.high == 0
	default:
		return b.digit(c)
	}
	return true
}

func (b *escapesBody) digit(c byte) bool {
	d, is := hexDigit(c)
	if !is { // no JSON, as the decoder will say
		b.state, b.high = inText, 0
		return true
	}
	b.value, b.digits = b.value<<4|d, b.digits+1
	if b.digits < 4 {
		return true
	}
	b.state = inText
	first := b.high
	b.high = 0
	switch {
	case first != 0:
		return utf16.DecodeRune(first, b.value) != '\uFFFD'
	case !utf16.IsSurrogate(b.value):
		return true
	case b.value < 0xDC00: // the first of two; see RFC 8259, section 7
		b.high = b.value
		return true
	}
	return false
}

func hexDigit(c byte) (rune, bool) {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0'), true
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10, true
	}
	return 0, false
}
