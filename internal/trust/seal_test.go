package trust

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// testTime is some time after which nothing here was built.
var testTime = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

// wantCode ends the test unless err has the code, and returns its words for a look at them.
func wantCode(t *testing.T, err error, code reason.Code) string {
	t.Helper()
	if !reason.Is(err, code) {
		t.Fatalf("error %v, want one with code %s", err, code)
	}
	return err.Error()
}

func TestSealOpensForItsNameAndPurposeOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "text")
		name := rapid.String().Draw(t, "name")
		r := NewRing()
		sealed := r.Seal(PurposeObject, name, text)
		if len(sealed) != len(text)+SealOverhead {
			t.Fatalf("%d bytes became %d", len(text), len(sealed))
		}
		plain, stale, err := r.Open(PurposeObject, name, sealed)
		if err != nil || stale || !bytes.Equal(plain, text) {
			t.Fatalf("opened %x (stale %v, %v), want %x", plain, stale, err, text)
		}
		if _, _, err := r.Open(PurposeClusterKeys, name, sealed); !reason.Is(err, reason.SealBroken) {
			t.Fatalf("opened for another purpose: %v", err)
		}
		if _, _, err := r.Open(PurposeObject, name+"x", sealed); !reason.Is(err, reason.SealBroken) {
			t.Fatalf("opened for another name: %v", err)
		}
		if _, _, err := NewRing().Open(PurposeObject, name, sealed); !reason.Is(err, reason.SealKeyUnknown) {
			t.Fatalf("opened with another key: %v", err)
		}
		at := rapid.IntRange(0, len(sealed)-1).Draw(t, "at")
		sealed[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		if _, _, err := r.Open(PurposeObject, name, sealed); err == nil {
			t.Fatalf("opened with byte %d changed", at)
		}
		if _, _, err := r.Open(PurposeObject, name, sealed[:at]); err == nil {
			t.Fatalf("opened when cut to %d bytes", at)
		}
	})
}

func TestSealHidesEqualTexts(t *testing.T) {
	r := NewRing()
	a, b := r.Seal(PurposeObject, "/x", []byte("secret")), r.Seal(PurposeObject, "/x", []byte("secret"))
	if bytes.Equal(a[headerSize:], b[headerSize:]) {
		t.Error("one text was sealed twice to the same bytes")
	}
}

func TestRingWithSeveralKeys(t *testing.T) {
	old, fresh := NewRing(), NewRing()
	both, err := ringOf(append(fresh.masters(), old.masters()...))
	if err != nil {
		t.Fatal(err)
	}
	if both.ID() != fresh.ID() {
		t.Errorf("the ring seals with %s, want its first key %s", both.ID(), fresh.ID())
	}
	for _, c := range []struct {
		by    *Ring
		stale bool
	}{{old, true}, {fresh, false}, {both, false}} {
		plain, stale, err := both.Open(PurposeObject, "/x", c.by.Seal(PurposeObject, "/x", []byte("text")))
		if err != nil || stale != c.stale || string(plain) != "text" {
			t.Errorf("sealed by %s: %q, stale %v, %v; want stale %v", c.by, plain, stale, err, c.stale)
		}
	}
	words := wantCode(t, second(old.Open(PurposeObject, "/x", fresh.Seal(PurposeObject, "/x", nil))), reason.SealKeyUnknown)
	if !strings.Contains(words, old.ID()) || !strings.Contains(words, fresh.ID()) {
		t.Errorf("%q names not both keys", words)
	}
	for _, keys := range [][][]byte{nil, {make([]byte, 31)}, append(old.masters(), old.masters()...), make([][]byte, ringKeysMax+1)} {
		if _, err := ringOf(keys); !reason.Is(err, reason.KeyFileDamaged) {
			t.Errorf("a ring of %d bad keys: %v", len(keys), err)
		}
	}
}

func second(_ []byte, _ bool, err error) error { return err }

// goldenSealed is "hello" for PurposeObject and the name /registry/secrets/a, under a key of 32 bytes 7, as the first version of the
// format sealed it. goldenRingID is the id of that key.
const (
	goldenRingID = "b375ce3406014ebd"
	goldenSealed = "01b375ce3406014ebdf29e8ef9d5379017e054aca65f54abd52493e8510b2e0a2c65550e81fbe1b1860693ed16e681931134d15effd830c3c87eff0a0a07"
)

// The bytes on disk must stay readable.
func TestSealFormatStays(t *testing.T) {
	r, err := ringOf([][]byte{bytes.Repeat([]byte{7}, masterSize)})
	if err != nil {
		t.Fatal(err)
	}
	if r.ID() != goldenRingID {
		t.Errorf("id %s, want %s", r.ID(), goldenRingID)
	}
	plain, _, err := r.Open(PurposeObject, "/registry/secrets/a", unhex(t, goldenSealed))
	if err != nil || string(plain) != "hello" {
		t.Errorf("opened %q, %v", plain, err)
	}
}

func FuzzOpen(f *testing.F) {
	r, err := ringOf([][]byte{bytes.Repeat([]byte{7}, masterSize)})
	if err != nil {
		f.Fatal(err)
	}
	good := r.Seal(PurposeObject, "n", []byte("text"))
	for _, b := range [][]byte{nil, {1}, good, good[:SealOverhead], good[1:], append(bytes.Clone(good), 0)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		// It cannot be forged, so whatever opens is what was sealed here or in the seed corpus of an earlier run.
		plain, _, err := r.Open(PurposeObject, "n", sealed)
		if err == nil && string(plain) != "text" {
			t.Errorf("%x opened as %q", sealed, plain)
		}
		if err != nil && !reason.Is(err, reason.SealBroken) && !reason.Is(err, reason.SealKeyUnknown) {
			t.Errorf("%x: %v", sealed, err)
		}
	})
}

func scalar(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	b, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// S3 of the design: whatever is printed or logged by mistake shows no secret.
func TestNothingSecretIsPrinted(t *testing.T) {
	keys := testKeys(t)
	token := NewToken(TokenJoin)
	credential, err := keys.ca.IssueClient(ClientRequest{User: "ann"}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	line := JoinLine{Address: "h:1", Token: token}
	_, secret, _ := strings.Cut(strings.TrimPrefix(token.Reveal(), "tako_join_"), "_")
	// Each secret in the spellings that fmt and encoding/json would give it.
	var secrets []string
	for _, b := range [][]byte{
		keys.atRest.keys[0].key[:], keys.pepper.key[:], keys.heads.private.Seed(), []byte(secret), token.secret[:], scalar(t, keys.ca.key), scalar(t, credential.key),
	} {
		list, number := strings.Trim(fmt.Sprint(b), "[]"), new(big.Int).SetBytes(b).String()
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, string(b), fmt.Sprintf("%x", b), fmt.Sprintf("%X", b), list, number, strings.Trim(string(text), `"`))
	}
	for _, v := range []any{keys, keys.ca, keys.heads, keys.atRest, keys.pepper, token, &token, line, &line, credential, []any{keys, token}} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&out, verb, v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
		for _, s := range secrets {
			if strings.Contains(out.String(), s) {
				t.Errorf("a %T prints a secret: %s", v, out.String())
				break
			}
		}
	}
}
