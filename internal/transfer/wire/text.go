package wire

import "strings"

// Text is a text for people as a message may have it: at most MessageMax bytes of whole letters. What is cut in the middle of one would make
// the whole message unreadable.
func Text(s string) string { return cut(s, MessageMax) }

// Fact is a fact as a message may have it: as Text, of at most FactMax bytes.
func Fact(s string) string { return cut(s, FactMax) }

// Name is the name of something of a host as a message may have it: as Text, of at most 256 bytes.
func Name(s string) string { return cut(s, nameMax) }

func cut(s string, most int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}
