package trust

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"strings"
	"testing"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/spectest"
)

// hostileJSON are inputs for a reader of JSON beside a good one.
func hostileJSON(good []byte) map[string][]byte {
	text := string(good)
	return map[string][]byte{
		"good": good, "empty": {}, "cut-off": good[:len(good)/2], "followed": append(bytes.Clone(good), '{', '}'),
		"nested-lists": []byte(`{"documents":` + strings.Repeat("[", 5_000)), "nested-maps": []byte(strings.Repeat(`{"document":`, 5_000)),
		"another-field":  []byte(strings.Replace(text, `"number"`, `"moon": 1, "number"`, 1)),
		"field-twice":    []byte(strings.Replace(text, `"number": 1`, `"number": 1, "number": 1`, 1)),
		"capitals":       []byte(strings.Replace(text, `"number"`, `"Number"`, 1)),
		"escaped":        []byte(strings.Replace(text, `"cluster"`, `"\u0063luster"`, 1)),
		"a-fraction":     []byte(strings.Replace(text, `"number": 1`, `"number": 1.0`, 1)),
		"number-of-2e64": []byte(strings.Replace(text, `"number": 1`, `"number": 18446744073709551616`, 1)),
		"number-0":       []byte(strings.Replace(text, `"number": 1`, `"number": 0`, 1)),
		"below-0":        []byte(strings.Replace(text, `"number": 1`, `"number": -1`, 1)),
		"threshold-0":    []byte(strings.Replace(text, `"threshold": 1`, `"threshold": 0`, 1)),
		"threshold-max":  []byte(strings.Replace(text, `"threshold": 1`, `"threshold": 17`, 1)),
		"another-zone":   []byte(strings.Replace(text, `T00:00:00Z`, `T00:00:00+00:00`, 1)),
		"year-10000":     []byte(strings.Replace(text, `2027-`, `10000-`, 1)),
		"null":           []byte(`null`), "a-list": []byte(`[]`), "nothing": []byte(`{}`), "documents-null": []byte(`{"documents":null}`),
		"many-documents": []byte(`{"documents":[` + strings.Repeat("{},", 1_024) + `{}]}`),
		"no-utf8":        []byte(strings.Replace(text, `https://`, "https://\xff", 1)),
	}
}

// TestCorpus keeps the corpus of each target: what is written, and what somebody may write instead.
func TestCorpus(t *testing.T) {
	c, _ := vectorChain(t)
	chain, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	documents := hostileJSON(chain)
	all := c.After(0)
	for name, list := range map[string][]Signed{
		"the-first-alone": all[:1], "the-second-alone": all[1:], "out-of-order": {all[1], all[0]}, "twice": {all[0], all[0]},
		"signed-by-too-few":     {all[0], {Document: all[1].Document, Signatures: all[1].Signatures[:1]}},
		"signed-for-another":    {all[0], {Document: all[1].Document, Signatures: all[0].Signatures}},
		"without-any-signature": {{Document: all[0].Document, Signatures: []Signature{}}},
	} {
		if documents[name], err = EncodeDocuments(list); err != nil {
			t.Fatal(err)
		}
	}
	spectest.CorpusOf(t, "FuzzDecodeDocuments", documents)
	one, err := all[1].Encode()
	if err != nil {
		t.Fatal(err)
	}
	spectest.CorpusOf(t, "FuzzDecodeSigned", hostileJSON(one))

	texts := map[string][]any{}
	for name, s := range map[string]string{
		"key": all[0].Document.Root.Keys[0].String(), "hash": c.Pin().String(), "empty": "", "a-newline": all[0].Document.Root.Keys[0].String() + "\n", "capitals": strings.ToUpper(c.Pin().String()),
		"padded": all[0].Document.Root.Keys[0].String() + "=", "another-kind": "rsa:" + strings.Repeat("A", 43), "leftover-bits": "ed25519:" + strings.Repeat("A", 42) + "B",
	} {
		texts[name] = []any{s}
	}
	spectest.Corpus(t, "FuzzParseKeyAndHash", texts)
	tokenCorpus(t)
	keyCorpus(t)
	spectest.Targets(t)
}

func tokenCorpus(t *testing.T) {
	t.Helper()
	token, user := Token{kind: TokenJoin, id: [tokenIDSize]byte{1}, secret: [tokenSecretSize]byte{2}}.Reveal(), Token{kind: TokenUser}.Reveal()
	tokens, lines, nodes, relays, servers := map[string][]any{}, map[string][]any{}, map[string][]any{}, map[string][]any{}, map[string][]any{}
	for name, s := range map[string]string{
		"join": token, "user": user, "empty": "", "cut-off": token[:40], "followed": token + "a", "capitals": strings.ToUpper(token), "one-letter-changed": token[:30] + "7" + token[31:],
		"another-kind": strings.Replace(token, "join", "root", 1), "a-newline": token[:len(token)-1] + "\n", "dashes": strings.ReplaceAll(token, "_", "-"),
	} {
		tokens[name] = []any{s}
		lines["with-"+name] = []any{"tako://tako.example:6444/" + Hash{1}.String() + "/" + s}
	}
	for _, address := range []string{"[2001:db8::1]:6444", "h:0", "h:65536", ":1", "a b:1", "h", "[h]:1", "u:p@h:1", "h:1/x"} {
		lines["to-"+strings.NewReplacer(":", ".", "[", "", "]", "", "/", "-", " ", "_").Replace(address)] = []any{"tako://" + address + "/" + Hash{1}.String() + "/" + token}
	}
	for i, id := range []string{
		"spiffe://abcdefghijklmnopqrstuvwx/node/web-1/" + testUID, "spiffe://abcdefghijklmnopqrstuvwx/relay/edge-1/" + testUID, "SPIFFE://abcdefghijklmnopqrstuvwx/node/web-1/" + testUID,
		"spiffe://abcdefghijklmnopqrstuvwx/node/web-1/" + testUID + "/more", "spiffe://abcdefghijklmnopqrstuvwx/node/../" + testUID, "spiffe://abcdefghijklmnopqrstuvwx/node/web-1/" + testUID + "?a=1",
		"spiffe://u@abcdefghijklmnopqrstuvwx/node/web-1/" + testUID, "spiffe://abcdefghijklmnopqrstuvwx:1/node/web-1/" + testUID, "https://abcdefghijklmnopqrstuvwx/node/web-1/" + testUID,
		"spiffe://abcdefghijklmnopqrstuvwx/node/" + strings.Repeat("a", 300) + "/" + testUID,
	} {
		nodes["id-"+string(rune('a'+i))] = []any{id}
		relays["id-"+string(rune('a'+i))] = []any{strings.Replace(id, "/node/", "/relay/", 1), bytes.Repeat([]byte{0x30, 0x80}, i)}
	}
	for name, rest := range map[string]string{
		"good": "/server/a1b2", "none": "/server/", "two": "/server/a/b", "upwards": "/server/..", "a-query": "/server/a?b=c", "a-fragment": "/server/a#b", "escaped": "/server/%61", "a-node": "/node/a/" + testUID,
		"a-port": ":1/server/a", "long": "/server/" + strings.Repeat("a", 300), "twice": "/server//server/a",
	} {
		servers[name] = []any{"spiffe://abcdefghijklmnopqrstuvwx" + rest}
	}
	spectest.Corpus(t, "FuzzParseServerID", servers)
	spectest.Corpus(t, "FuzzParseToken", tokens)
	spectest.Corpus(t, "FuzzParseJoinLine", lines)
	spectest.Corpus(t, "FuzzParseNode", nodes)
	spectest.Corpus(t, "FuzzParseRelay", relays)
}

// keyCorpus is of keys that everybody knows, and of what only chance could make.
func keyCorpus(t *testing.T) {
	t.Helper()
	key, err := signingKeyOf(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	if err != nil {
		t.Fatal(err)
	}
	good := key.EncodePEM()
	block, _ := pem.Decode(good)
	pems := map[string][]byte{
		"good": good, "empty": {}, "cut-off": good[:len(good)/2], "twice": append(bytes.Clone(good), good...), "followed": append(bytes.Clone(good), "more"...),
		"another-block": pem.EncodeToMemory(&pem.Block{Type: "TAKO SEALING KEY", Bytes: bytes.Repeat([]byte{1}, SealingKeySize)}), "too-large": bytes.Repeat([]byte("a"), keyFileMax+1),
		"with-headers": pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: block.Bytes}),
		"nested-der":   pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: bytes.Repeat([]byte{0x30, 0x80}, 200)}), "der-of-4GiB": pem.EncodeToMemory(&pem.Block{Type: privateKeyBlock, Bytes: []byte{0x30, 0x84, 0xff, 0xff, 0xff, 0xff}}),
	}
	spectest.CorpusOf(t, "FuzzDecodeSigningKey", pems)
	spectest.CorpusOf(t, "FuzzDecodeHostKeys", pems)
	secret, err := ringOf([][]byte{bytes.Repeat([]byte{3}, masterSize)})
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string][]byte{"good": encodeSecret(secret), "twice": append(encodeSecret(secret), encodeSecret(secret)...)}
	for name, data := range pems {
		secrets["key-"+name] = data
	}
	spectest.CorpusOf(t, "FuzzDecodeSecret", secrets)
	der := map[string][]byte{"empty": {}, "nothing": {0x30, 0}, "of-4GiB": {0x30, 0x84, 0xff, 0xff, 0xff, 0xff}, "endless": {0x30, 0x80, 0, 0}, "nested": bytes.Repeat([]byte{0x30, 0x82, 0x01, 0x00}, 60),
		"a-key": block.Bytes, "too-large": make([]byte, requestMax+1)}
	spectest.CorpusOf(t, "FuzzParseNodeRequest", der)
	sealed := map[string][]byte{"empty": {}, "zeros": make([]byte, SealedKeySize), "too-short": make([]byte, SealedKeySize-1), "too-long": make([]byte, SealedKeySize+1), "ones": bytes.Repeat([]byte{0xff}, SealedKeySize)}
	spectest.CorpusOf(t, "FuzzOpenSealedKey", sealed)
	salted := append([]byte{sealVersion}, make([]byte, SealOverhead)...)
	spectest.CorpusOf(t, "FuzzOpen", map[string][]byte{"empty": {}, "version-alone": {sealVersion}, "later-version": append([]byte{sealVersion + 1}, salted...), "another-key": salted, "cut-off": salted[:20]})
	spectest.CorpusOf(t, "FuzzDecodeKeys", spectest.Hostile(spectest.Map(spectest.Text("version"), spectest.Uint(keysVersion), spectest.Text("cluster"), spectest.Text(string(vectorCluster)),
		spectest.Text("atRest"), spectest.Array(spectest.Bytes(make([]byte, masterSize)))).Encode()))
}

// FuzzParseRelay: what is read as a relay's identity is exactly what is written for it, and no request of anybody passes for a relay's that is none.
func FuzzParseRelay(f *testing.F) {
	f.Fuzz(func(t *testing.T, id string, der []byte) {
		if r, err := ParseRelayRequest(der); err == nil && r.Key() != KeyDigest(mustSPKI(t, r.public)) {
			t.Errorf("%x was read as %+v", der, r)
		}
		u, err := url.Parse(id)
		if err != nil {
			return
		}
		n, err := ParseRelay(&x509.Certificate{URIs: []*url.URL{u}, ExtKeyUsage: relayUsage()})
		if err != nil {
			wantCode(t, err, reason.CertificateRefused)
			return
		}
		if want := "spiffe://" + string(n.Cluster) + "/relay/" + n.Name + "/" + n.UID; u.String() != want {
			t.Errorf("%q was read as %+v", id, n)
		}
	})
}

// FuzzParseServerID: what is read as a server's identity is exactly what is written for it, and is nobody else's.
func FuzzParseServerID(f *testing.F) {
	f.Fuzz(func(t *testing.T, id string) {
		u, err := url.Parse(id)
		if err != nil {
			return
		}
		cert := &x509.Certificate{URIs: []*url.URL{u}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		n, err := ParseServerID(cert)
		if err != nil {
			wantCode(t, err, reason.CertificateRefused)
			return
		}
		if want := "spiffe://" + string(n.Cluster) + "/server/" + n.Name; u.String() != want {
			t.Errorf("%q was read as %+v", id, n)
		}
		if _, err := ParseNode(cert); err == nil || IsRelay(cert) {
			t.Errorf("%q is somebody else's too", id)
		}
	})
}
