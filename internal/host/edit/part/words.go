package part

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// quoteWhereOdd is a text as it is where it is plain, otherwise quoted with escapes.
func quoteWhereOdd(s string) string {
	if !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// digest is as much of a digest as people compare by eye.
func digest(s string) string {
	const shown = 4 // bytes
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:shown])
}
