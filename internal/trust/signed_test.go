package trust

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
)

// There is one text for a document, white space aside.
func TestTextIsStrict(t *testing.T) {
	c := newTestChain(t)
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	var compact bytes.Buffer
	if err := json.Compact(&compact, b); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeDocuments(compact.Bytes()); err != nil {
		t.Errorf("without white space: %v", err)
	}
	replace := func(old, fresh string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%q is not in the text", old)
		}
		return strings.Replace(text, old, fresh, 1)
	}
	for name, s := range map[string]string{
		"nothing":              "",
		"cut off":              text[:len(text)/2],
		"text behind":          text + "{}",
		"another value":        "[]",
		"no list":              `{"documents":null}`,
		"no list of anything":  `{}`,
		"unknown field":        replace(`"epoch"`, `"time"`),
		"field in capitals":    replace(`"epoch"`, `"Epoch"`),
		"field twice":          replace(`"epoch": 1,`, `"epoch": 1, "epoch": 1,`),
		"field missing":        replace(`"epoch": 1,`, ``),
		"fields in any order":  strings.Replace(replace(`"number": 1,`, ``), `"epoch": 1,`, `"epoch": 1, "number": 1,`, 1),
		"number as text":       replace(`"epoch": 1,`, `"epoch": "1",`),
		"number otherwise":     replace(`"epoch": 1,`, `"epoch": 1e0,`),
		"negative number":      replace(`"epoch": 1,`, `"epoch": -1,`),
		"huge number":          replace(`"epoch": 1,`, `"epoch": 99999999999999999999,`),
		"time otherwise":       replace(`:00Z"`, `:00+00:00"`),
		"fraction of a second": replace(`:00Z"`, `:00.000Z"`),
		"text otherwise":       replace(`"role": "heads"`, `"role": "\u0068eads"`),
		"invalid UTF-8":        replace(`"role": "heads"`, "\"role\": \"heads\xff\""),
		"another key form":     replace(`ed25519:`, `ed448:`),
		"null for a list":      replace(`"fallback": []`, `"fallback": null`),
		"unsigned":             replace(`"signatures": [`, `"signatures": null, "x": [`),
		"deep":                 strings.Repeat(`{"documents":[`, 10000),
		"too long":             text + strings.Repeat(" ", chainMax),
	} {
		if _, err := DecodeDocuments([]byte(s)); !reason.Is(err, reason.TrustRefused) {
			t.Errorf("%s: %v", name, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// A document that is at every bound can be read, and a chain that could not be read is not accepted.
func TestBounds(t *testing.T) {
	c := newTestChain(t)
	full := c.Current()
	full.Root.Keys = nil
	for i := range RootKeysMax {
		full.Root.Keys = append(full.Root.Keys, PublicKey{1, byte(i)})
	}
	full.Keys, full.Revoked, full.Fallback = nil, nil, nil
	for i := range roleKeysMax {
		role := ReleaseRole(strings.Repeat("e", 63))
		full.Keys = append(full.Keys, RoleKey{Role: role, Key: PublicKey{2, byte(i)}, NotBefore: testTime, NotAfter: testTime.AddDate(1, 0, 0)})
	}
	for i := range revokedMax {
		full.Revoked = append(full.Revoked, Revocation{Key: PublicKey{3, byte(i)}, At: testTime})
	}
	for i := range fallbackMax {
		place := fmt.Sprintf("https://a.example/%02d?", i)
		full.Fallback = append(full.Fallback, place+strings.Repeat(`"`, fallbackURLMax-len(place)))
	}
	s := Signed{Document: full}.with()
	for i := range 2 * RootKeysMax {
		s = s.with(Signature{PublicKey{4, byte(i)}, make([]byte, 64)})
	}
	text, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if most := documentMax - casMax*caSizeMax*2; len(text) > most {
		t.Errorf("a full document has %d bytes, want at most %d besides its authorities", len(text), most)
	}
	if _, err := DecodeSigned(text); err != nil {
		t.Errorf("a full document: %v", err)
	}

	list := c.After(0)
	for size := 0; size <= chainMax; {
		d := full.clone()
		d.Number, d.Previous = uint64(len(list)+1), list[len(list)-1].Document.hash(t)
		d.Root = c.Current().Root
		list = append(list, signed(t, Signed{Document: d}, c.root))
		alone, err := list[len(list)-1].Encode()
		if err != nil {
			t.Fatal(err)
		}
		size += len(alone)
	}
	_, err = Verify(list, c.Pin(), testBuilt)
	if words := wantCode(t, err, reason.TrustRefused); !strings.Contains(words, "at most") {
		t.Errorf("a chain that is too large is refused with %q", words)
	}
	shorter, err := Verify(list[:len(list)*3/4], c.Pin(), testBuilt)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = shorter.Encode(); err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeDocuments(text); err != nil {
		t.Errorf("a chain of %d large documents was accepted and cannot be read: %v", len(list), err)
	}
}

// What is signed must stay the same bytes in every version: this document was signed by the first.
func TestSignedBytesStay(t *testing.T) {
	key, err := signingKeyOf(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	d := Document{
		Cluster: "aaaabbbbccccddddeeeeffff", Number: 2, Previous: Hash{1}, Issued: testTime, Epoch: 3,
		Root:     Root{Threshold: 1, Keys: []PublicKey{key.Public()}},
		CAs:      []string{"pem"},
		Keys:     []RoleKey{{Role: RoleHeads, Key: PublicKey{2}, NotBefore: testTime, NotAfter: testTime.AddDate(1, 0, 0)}},
		Revoked:  []Revocation{{Key: PublicKey{3}, At: testTime}},
		Fallback: []string{},
	}
	b, err := d.signedBytes()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", b); got != goldenDocument {
		t.Errorf("the encoding is\n%s, want\n%s", got, goldenDocument)
	}
}

const goldenDocument = "74616b6f2f74727573742f310aaa63636173816370656d646b65797381a4636b6579582002000000000000000000000000000000000000" +
	"0000000000000000000000000064726f6c65656865616473686e6f7441667465721a6ce28300696e6f744265666f72651a6b014f806472" +
	"6f6f74a2646b657973815820ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c697468726573686f6c6401" +
	"6565706f636803666973737565641a6b014f80666e756d6265720267636c75737465727818616161616262626263636363646464646565" +
	"656566666666677265766f6b656481a26261741a6b014f80636b6579582003000000000000000000000000000000000000000000000000" +
	"000000000000006866616c6c6261636b806870726576696f75735820010000000000000000000000000000000000000000000000000000" +
	"0000000000"

func FuzzDecodeDocuments(f *testing.F) {
	c := newTestChain(f)
	two := extend(f, c.Chain, next(f, c.Chain, testTime, []*SigningKey{c.root}, SetFallback("https://a.example/t?a=1&b=<2>"), Revoke(c.keys.Heads().Public().ID())))
	text, err := two.Encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, text, text[:len(text)/2], []byte(`{"documents":[]}`), []byte(`{"documents":[{"document":{}}]}`)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := DecodeDocuments(b)
		if err != nil {
			wantCode(t, err, reason.TrustRefused)
			return
		}
		again, err := EncodeDocuments(list)
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDocuments(again)
		if err != nil || len(back) != len(list) {
			t.Fatalf("%q came back with %v", b, err)
		}
		for i := range list {
			if list[i].Document.hash(t) != back[i].Document.hash(t) {
				t.Fatalf("%q came back as %q", b, again)
			}
		}
		// Nobody else has the key: what is believed is what was signed here.
		if v, err := Verify(list, c.Pin(), testBuilt); err == nil {
			if have, err := v.Encode(); err != nil || !bytes.HasPrefix(text, bytes.TrimRight(have, "\n ]}")) {
				t.Errorf("believed: %s", have)
			}
		}
	})
}

func FuzzDecodeSigned(f *testing.F) {
	c := newTestChain(f)
	text, err := next(f, c.Chain, testTime, []*SigningKey{c.root}, BumpEpoch()).Encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, text, text[:100], []byte(`{"document":{},"signatures":[]}`)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSigned(b)
		if err != nil {
			wantCode(t, err, reason.TrustRefused)
			return
		}
		again, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeSigned(again); err != nil || back.Document.hash(t) != s.Document.hash(t) {
			t.Errorf("%q came back as %q, %v", b, again, err)
		}
	})
}

func FuzzParseKeyAndHash(f *testing.F) {
	for _, s := range []string{"", "ed25519:", "sha256:", NewSigningKey().Public().String(), Hash{1}.String()} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := ParsePublicKey(s); err == nil && k.String() != s {
			t.Errorf("%q was read as key %s", s, k)
		}
		if h, err := ParseHash(s); err == nil && h.String() != s {
			t.Errorf("%q was read as hash %s", s, h)
		}
	})
}
