package declare

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenText
	tokenNumber
	tokenSign
)

// token is one word of an expression; at is the byte where it begins.
type token struct {
	kind tokenKind
	at   int
	text string // of a text without its quotes
}

func (t token) describe() string {
	switch t.kind {
	case tokenEnd:
		return "the end"
	case tokenText:
		return "the text " + strconv.Quote(clipText(t.text))
	}
	return clipText(t.text)
}

func (p *parser) is(sign string) bool { return p.token.kind == tokenSign && p.token.text == sign }

// signs are the two-letter ones first, so that "<=" is not read as "<".
var signs = []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")", "[", "]", ","}

// next reads the next token into p.token.
func (p *parser) next() {
	if p.err != nil {
		return
	}
	rest := strings.TrimLeft(p.source[p.offset:], " \t\n")
	at := len(p.source) - len(rest)
	p.offset = at
	if rest == "" {
		p.token = token{kind: tokenEnd, at: at}
		return
	}
	for _, s := range signs {
		if strings.HasPrefix(rest, s) {
			p.take(tokenSign, at, len(s))
			return
		}
	}
	switch c := rest[0]; {
	case c == '\'' || c == '"':
		p.nextText(rest, at)
	case c >= '0' && c <= '9' || c == '-':
		p.nextNumber(rest, at)
	case isNameByte(c) && c != '.':
		p.take(tokenWord, at, prefixLength(rest, isNameByte))
	default:
		p.fail(at, "found "+strconv.QuoteRune(firstRune(rest))+", which means nothing here", signHint(c))
	}
}

func (p *parser) take(kind tokenKind, at, length int) {
	p.token = token{kind: kind, at: at, text: p.source[at : at+length]}
	p.offset = at + length
}

func (p *parser) nextText(rest string, at int) {
	var text strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == rest[0]:
			p.token = token{kind: tokenText, at: at, text: text.String()}
			p.offset = at + i + 1
			return
		case c == '\\' && i+1 < len(rest):
			i++
			text.WriteByte(rest[i])
		default:
			text.WriteByte(c)
		}
	}
	p.fail(at, "the text has no closing "+rest[:1], "")
}

func (p *parser) nextNumber(rest string, at int) {
	length := 1 + prefixLength(rest[1:], func(c byte) bool { return c >= '0' && c <= '9' })
	if length < len(rest) && isNameByte(rest[length]) || rest[:length] == "-" {
		p.fail(at, "not a whole number", "sizes are in bytes without a unit; quote a text")
		return
	}
	p.take(tokenNumber, at, length)
}

func signHint(c byte) string {
	switch c {
	case '=':
		return "equality is written =="
	case '&':
		return "\"and\" is written &&"
	case '|':
		return "\"or\" is written ||"
	case '$':
		return "a condition names a fact without $( )"
	}
	return ""
}

func isNameByte(c byte) bool {
	return c == '.' || c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func prefixLength(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}
