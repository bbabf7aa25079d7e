package trust

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"strings"

	"tako.dev/tako/internal/reason"
)

// TokenKind says what a token is good for. It is a part of the text, so that nobody takes one for the other, and so that tools
// that look for leaked secrets can say what leaked.
type TokenKind string

// The kinds of tokens.
const (
	TokenUser TokenKind = "user" // shows who a person is, to the API
	TokenJoin TokenKind = "join" // admits hosts
)

// TokenID names a token: 16 characters. It is no secret.
type TokenID string

const (
	tokenPrefix = "tako_"
	// All three have no left-over bits in base32, so each has one text: 16, 32 and 8 characters.
	tokenIDSize     = 10
	tokenSecretSize = 20 // 160 random bits
	tokenCheckSize  = 5
	tokenSize       = len(tokenPrefix) + 4 + 1 + 16 + 1 + 32 + 1 + 8
)

// base32Lower is RFC 4648's base32 in small letters: no 0, 1, 8 or 9, no padding, and one double click selects all of it.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token is what a person or a host shows to be let in: tako_KIND_ID_SECRET_CHECK, 68 characters. The check is over everything in
// front of it and only finds slips of the hand; it proves nothing.
type Token struct {
	kind   TokenKind
	id     [tokenIDSize]byte
	secret [tokenSecretSize]byte
}

// NewToken makes a fresh random token.
func NewToken(kind TokenKind) Token {
	t := Token{kind: kind}
	rand.Read(t.id[:]) // never fails, says crypto/rand
	rand.Read(t.secret[:])
	return t
}

// Kind returns what the token is good for.
func (t Token) Kind() TokenKind { return t.kind }

// ID returns the name of the token.
func (t Token) ID() TokenID { return TokenID(base32Lower.EncodeToString(t.id[:])) }

// Reveal returns the whole text, which is a secret: it is shown once, to whom the token is for, and stored nowhere.
func (t Token) Reveal() string {
	front := fmt.Sprintf("%s%s_%s_%s", tokenPrefix, t.kind, t.ID(), base32Lower.EncodeToString(t.secret[:]))
	return front + "_" + tokenCheck(front)
}

// Format prints the token without its secret, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "%s%s_%s_…", tokenPrefix, t.kind, t.ID())
}

func tokenCheck(front string) string {
	sum := sha256.Sum256([]byte(front))
	return base32Lower.EncodeToString(sum[:tokenCheckSize])
}

// ParseToken reads the text of a token. Errors: TokenMalformed, which quotes nothing of it. That it can be read does not mean that
// anybody issued it.
func ParseToken(s string) (Token, error) {
	bad := func(why string) (Token, error) {
		return Token{}, &reason.Error{
			Code: reason.TokenMalformed, Doing: "read token", Cause: errors.New(why),
			Hint: "copy all of it: tako_, user or join, and three groups of letters and digits",
		}
	}
	rest, ok := strings.CutPrefix(s, tokenPrefix)
	if !ok {
		return bad("it does not begin with " + tokenPrefix)
	}
	kind, rest, _ := strings.Cut(rest, "_")
	t := Token{kind: TokenKind(kind)}
	if t.kind != TokenUser && t.kind != TokenJoin {
		return bad("it says neither user nor join")
	}
	if len(s) != tokenSize {
		return bad(fmt.Sprintf("it has %d characters, want %d", len(s), tokenSize))
	}
	id, rest, _ := strings.Cut(rest, "_")
	secret, check, _ := strings.Cut(rest, "_")
	if !decodeExactly(t.id[:], id) || !decodeExactly(t.secret[:], secret) {
		return bad("it has a character too many, too few, or one that no token has")
	}
	if subtle.ConstantTimeCompare([]byte(check), []byte(tokenCheck(s[:len(s)-1-len(check)]))) != 1 {
		return bad("its last 8 characters do not fit the others: one was changed on the way")
	}
	return t, nil
}

// decodeExactly fills to from text, and says whether text was just that.
func decodeExactly(to []byte, text string) bool {
	if len(text) != base32Lower.EncodedLen(len(to)) || strings.ContainsAny(text, "\r\n") {
		return false // the decoder skips newlines
	}
	_, err := base32Lower.Decode(to, []byte(text))
	return err == nil
}

// Pepper makes the hashes of tokens that are stored. Without it they tell nothing: a stolen copy of the store does not even allow
// guessing.
type Pepper struct {
	key [masterSize]byte
}

// TokenHashSize is the length of what Hash returns.
const TokenHashSize = sha256.Size

// Hash returns what is stored of a token. A token has 160 random bits, so a fast function is right: nothing can be gained by making
// guesses slow.
func (p *Pepper) Hash(t Token) []byte {
	mac := hmac.New(sha256.New, derive(p.key[:], nil, "tako/token/1", sha256.Size))
	_, _ = io.WriteString(mac, string(t.kind)+"\n") // neither ever fails; the kinds have no newline, so this is unambiguous
	_, _ = mac.Write(append(t.id[:], t.secret[:]...))
	return mac.Sum(nil)
}

// Matches says whether hash is that of the token. It takes as long for a wrong one as for a right one.
func (p *Pepper) Matches(t Token, hash []byte) bool { return hmac.Equal(p.Hash(t), hash) }

// Format prints no pepper, whatever the verb: it never reaches a log.
func (p *Pepper) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "token pepper") }
