package trust

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

func TestTokenComesBack(t *testing.T) {
	for _, kind := range []TokenKind{TokenUser, TokenJoin} {
		token := NewToken(kind)
		text := token.Reveal()
		if !strings.HasPrefix(text, "tako_"+string(kind)+"_"+string(token.ID())+"_") || len(text) != tokenSize {
			t.Errorf("token %s has %d characters, want %d", token, len(text), tokenSize)
		}
		back, err := ParseToken(text)
		if err != nil || back != token || back.Kind() != kind {
			t.Errorf("%s came back as %s, %v", token, back, err)
		}
		if other := NewToken(kind); other.ID() == token.ID() || other.secret == token.secret {
			t.Errorf("two tokens are alike: %s and %s", token, other)
		}
	}
}

func TestTokensRefused(t *testing.T) {
	text := NewToken(TokenUser).Reveal()
	id, rest, _ := strings.Cut(strings.TrimPrefix(text, "tako_user_"), "_")
	secret, check, _ := strings.Cut(rest, "_")
	for name, s := range map[string]string{
		"nothing":             "",
		"another prefix":      "ghp_" + text,
		"unknown kind":        "tako_root_" + id + "_" + secret + "_" + check,
		"another kind":        "tako_join_" + id + "_" + secret + "_" + check,
		"no check":            "tako_user_" + id + "_" + secret,
		"cut off":             text[:len(text)-1],
		"too long":            text + "a",
		"blank behind":        text + " ",
		"newline inside":      "tako_user_" + id[:15] + "\n_" + secret + "_" + check,
		"capital letters":     strings.ToUpper(text),
		"groups moved":        "tako_user_" + secret[:16] + "_" + id + secret[16:] + "_" + check,
		"separators moved":    "tako_user_" + id + secret[:1] + "_" + secret[1:] + "_" + check,
		"no separators":       strings.ReplaceAll(text, "_", "a"),
		"a separator too few": "tako_user_" + id + "a" + secret + "_" + check,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseToken(s)
			words := wantCode(t, err, reason.TokenMalformed) + reason.Of(err).Hint
			for _, part := range []string{secret, id, check} {
				if strings.Contains(strings.ToLower(words), part) {
					t.Errorf("the error quotes the token: %q", words)
				}
			}
		})
	}
}

// A slip of the hand is found wherever it is.
func TestTokenWithOneWrongCharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(NewToken(TokenJoin).Reveal())
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		wrong := rapid.Byte().Filter(func(b byte) bool { return b != text[at] }).Draw(t, "wrong")
		text[at] = wrong
		if _, err := ParseToken(string(text)); !reason.Is(err, reason.TokenMalformed) {
			t.Fatalf("with byte %d wrong: %v", at, err)
		}
	})
}

func TestTokenHash(t *testing.T) {
	pepper, other := &Pepper{[masterSize]byte{1}}, &Pepper{[masterSize]byte{2}}
	token := NewToken(TokenUser)
	hash := pepper.Hash(token)
	if len(hash) != TokenHashSize || !pepper.Matches(token, hash) {
		t.Errorf("a token does not match its own hash of %d bytes", len(hash))
	}
	if other.Matches(token, hash) {
		t.Error("the hash does not depend on the pepper")
	}
	anotherSecret, anotherID, anotherKind := token, token, token
	anotherSecret.secret[0]++
	anotherID.id[0]++
	anotherKind.kind = TokenJoin
	for _, forged := range []Token{anotherSecret, anotherID, anotherKind, NewToken(TokenUser)} {
		if pepper.Matches(forged, hash) {
			t.Errorf("%s matches the hash of %s", forged, token)
		}
	}
	for _, h := range [][]byte{nil, {}, hash[:31], append(slices.Clone(hash), 0)} {
		if pepper.Matches(token, h) {
			t.Errorf("a hash of %d bytes matches", len(h))
		}
	}
}

func TestTokenTime(t *testing.T) {
	id := NewToken(TokenUser).ID()
	until := testTime.Add(time.Hour)
	for name, c := range map[string]struct {
		from, until, now time.Time
		words            []string
	}{
		"now":                {testTime, until, testTime, nil},
		"clock a bit behind": {testTime, until, testTime.Add(-ClockSkew), nil},
		"just before end":    {testTime, until, until.Add(-1), nil},
		"no end":             {testTime, time.Time{}, testTime.AddDate(50, 0, 0), nil},
		"at its end":         {testTime, until, until, []string{"was valid until 2026-11-21 09:00:00 UTC", "clock says 2026-11-21 09:00:00 UTC"}},
		"of last year":       {testTime, until, testTime.AddDate(1, 0, 0), []string{"was valid until 2026-11-21 09:00:00 UTC", "clock says 2027-11-21 08:00:00 UTC"}},
		"of next year":       {testTime.AddDate(1, 0, 0), time.Time{}, testTime, []string{"valid from 2027-11-21 08:00:00 UTC", "clock says 2026-11-21 08:00:00 UTC"}},
		"in another zone":    {testTime, until, until.In(time.FixedZone("X", 3600)), []string{"clock says 2026-11-21 09:00:00 UTC"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckTokenTime(id, c.from, c.until, c.now)
			if c.words == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			words := wantCode(t, err, reason.TokenTime)
			for _, w := range append(c.words, string(id)) {
				if !strings.Contains(words, w) {
					t.Errorf("%q does not say %q", words, w)
				}
			}
		})
	}
}

func FuzzParseToken(f *testing.F) {
	for _, s := range []string{"", "tako_", "tako_user_", NewToken(TokenUser).Reveal(), NewToken(TokenJoin).Reveal(), strings.Repeat("_", tokenSize)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			wantCode(t, err, reason.TokenMalformed)
			return
		}
		if token.Reveal() != s {
			t.Errorf("%q was read as another token", s)
		}
	})
}

func TestJoinLine(t *testing.T) {
	token := NewToken(TokenJoin)
	trust := Hash{1, 2, 3}
	for _, address := range []string{"tako.example:6444", "10.0.0.1:6444", "[2001:db8::1]:6444", "a_b:1", "h:65535"} {
		line := JoinLine{Address: address, Trust: trust, Token: token}
		back, err := ParseJoinLine("  " + line.Reveal() + "\n")
		if err != nil || back != line {
			t.Errorf("%s came back as %s, %v", line, back, err)
		}
	}
	good := JoinLine{Address: "h:1", Trust: trust, Token: token}.Reveal()
	user := NewToken(TokenUser).Reveal()
	for name, s := range map[string]string{
		"nothing":           "",
		"token alone":       token.Reveal(),
		"another scheme":    "https" + strings.TrimPrefix(good, "tako"),
		"no token":          "tako://h:1/" + trust.String() + "/",
		"user's token":      "tako://h:1/" + trust.String() + "/" + user,
		"no hash":           "tako://h:1//" + token.Reveal(),
		"short hash":        "tako://h:1/sha256:00/" + token.Reveal(),
		"a part too many":   good + "/",
		"no port":           "tako://h/" + trust.String() + "/" + token.Reveal(),
		"port 0":            strings.Replace(good, "h:1", "h:0", 1),
		"port 65536":        strings.Replace(good, "h:1", "h:65536", 1),
		"port 01":           strings.Replace(good, "h:1", "h:01", 1),
		"no host":           strings.Replace(good, "h:1", ":1", 1),
		"blank in host":     strings.Replace(good, "h:1", "a b:1", 1),
		"brackets":          strings.Replace(good, "h:1", "[h]:1", 1),
		"zone":              strings.Replace(good, "h:1", "[fe80::1%eth0]:1", 1),
		"too long":          strings.Replace(good, "h:1", strings.Repeat("a.", joinMax)+"a:1", 1),
		"user and password": strings.Replace(good, "h:1", "u:p@h:1", 1),
	} {
		_, err := ParseJoinLine(s)
		if !reason.Is(err, reason.TokenMalformed) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, hidden := range []string{token.Reveal()[27:], user[27:]} {
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("%s: the error quotes the token: %v", name, err)
			}
		}
	}
}

func FuzzParseJoinLine(f *testing.F) {
	for _, s := range []string{
		"", "tako://", JoinLine{Address: "h:1", Token: NewToken(TokenJoin)}.Reveal(), JoinLine{Address: "[::1]:6444", Token: NewToken(TokenJoin)}.Reveal(),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		line, err := ParseJoinLine(s)
		if err != nil {
			wantCode(t, err, reason.TokenMalformed)
			return
		}
		if line.Reveal() != strings.TrimSpace(s) {
			t.Errorf("%q was read as another line", s)
		}
	})
}
