package wire

import "strings"

// Text is a text for people as a message may have it: at most MessageMax bytes of whole letters. What is cut in the middle of one would make
// the whole message unreadable.
func Text(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ToValidUTF8(s[:min(len(s), MessageMax)], "")
}
