package trust

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/internal/spectest"
)

// vectors are testdata/vectors.json: a chain of two documents, and what is signed and hashed of each.
type vectors struct {
	About     string           `json:"about"`
	Keys      []keyVector      `json:"keys"`
	Pin       string           `json:"pin"`
	Documents []documentVector `json:"documents"`
	Chain     json.RawMessage  `json:"chain"` // trust.json
}

type keyVector struct {
	What    string `json:"what"`
	Warning string `json:"warning"`
	Seed    string `json:"seed"`
	Public  string `json:"public"`
	ID      string `json:"id"`
}

type documentVector struct {
	Number     uint64            `json:"number"`
	Signs      string            `json:"signs"` // the bytes that are signed
	Diagnostic string            `json:"diagnostic"`
	Hash       string            `json:"hash"`
	Signatures map[string]string `json:"signatures"` // by ID of the key
}

const vectorCluster = ClusterID("abcdefghijklmnopqrstuvwx")

// vectorChain is a chain that begins with one root key, and goes on with two of three.
func vectorChain(t *testing.T) (*Chain, []keyVector) {
	t.Helper()
	var keys []keyVector
	key := func(what string, fill byte) *SigningKey {
		seed := bytes.Repeat([]byte{fill}, ed25519.SeedSize)
		k, err := signingKeyOf(seed)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, keyVector{What: what, Warning: "TEST KEY, never use it", Seed: hex.EncodeToString(seed), Public: k.Public().String(), ID: string(k.Public().ID())})
		return k
	}
	first, second, third := key("root key 1", 11), key("root key 2", 12), key("root key 3", 13)
	heads, operator := key("heads", 1), key("operator", 2)
	// The authority is made once, and its key was thrown away: ECDSA signs with chance.
	authority, err := os.ReadFile("testdata/authority.pem")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	d := Document{
		Cluster: vectorCluster, Number: 1, Issued: begin, Epoch: 1, Root: Root{Threshold: 1, Keys: []PublicKey{first.Public()}}, CAs: []string{string(authority)},
		Keys: []RoleKey{{Role: RoleHeads, Key: heads.Public(), NotBefore: begin, NotAfter: begin.AddDate(10, 0, 0)}},
	}
	d.sort()
	one := signed(t, Signed{Document: d}, first)
	pin, err := one.Document.Hash()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Verify([]Signed{one}, pin, begin)
	if err != nil {
		t.Fatal(err)
	}
	two := next(t, c, begin.AddDate(0, 1, 0), []*SigningKey{first, third}, AddRoot(second.Public(), 0), AddRoot(third.Public(), 2),
		SetKey(RoleOperator, operator.Public(), begin.AddDate(1, 0, 0)), SetFallback("https://mirror.example/tako"), BumpEpoch())
	return extend(t, c, two), keys
}

// TestVectors: the chain of testdata/vectors.json has the bytes and hashes that stand there, and somebody who has read docs/spec/transfer.md
// alone verifies it.
func TestVectors(t *testing.T) {
	c, keys := vectorChain(t)
	chain, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	v := vectors{About: "Made by the tests of internal/trust; what the fields mean is in docs/spec/transfer.md. Bytes are in hexadecimal digits. The keys are for these vectors, and everybody knows them.",
		Keys: keys, Pin: c.Pin().String(), Chain: chain}
	for _, s := range c.After(0) {
		signs, err := s.Document.signedBytes()
		if err != nil {
			t.Fatal(err)
		}
		item, err := spectest.Decode(bytes.TrimPrefix(signs, []byte("tako/trust/1\n")))
		if err != nil {
			t.Fatal(err)
		}
		d := documentVector{Number: s.Document.Number, Signs: hex.EncodeToString(signs), Diagnostic: item.String(), Hash: s.Document.hash(t).String(), Signatures: map[string]string{}}
		for _, by := range s.Signatures {
			d.Signatures[string(by.Key.ID())] = hex.EncodeToString(by.Value)
		}
		v.Documents = append(v.Documents, d)
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	spectest.Golden(t, "testdata/vectors.json", append(text, '\n'))
	if text, err = os.ReadFile("testdata/vectors.json"); err != nil {
		t.Fatal(err)
	}
	var read vectors
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	secondReader(t, &read)
}

// jsonDocument is a document of trust.json to somebody who has read the page.
type jsonDocument struct {
	Document struct {
		Cluster, Previous, Issued string
		Number, Epoch             uint64
		Root                      struct {
			Threshold uint64
			Keys      []string
		}
		CAs  []string `json:"cas"`
		Keys []struct {
			Role, Key, NotBefore, NotAfter string
		}
		Revoked []struct {
			Key, At string
		}
		Fallback []string
	}
	Signatures []struct {
		Key   string
		Value []byte
	}
}

// secondReader verifies the chain without calling anything of this package that reads, encodes or verifies.
func secondReader(t *testing.T, v *vectors) {
	t.Helper()
	public := map[string]ed25519.PublicKey{}
	for _, k := range v.Keys {
		seed, err := hex.DecodeString(k.Seed)
		if err != nil {
			t.Fatal(err)
		}
		public[k.Public] = ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	}
	var chain struct{ Documents []jsonDocument }
	if err := json.Unmarshal(v.Chain, &chain); err != nil {
		t.Fatal(err)
	}
	if len(chain.Documents) != 2 {
		t.Fatalf("%d documents", len(chain.Documents))
	}
	previous := make([]byte, sha256.Size)
	var roots []string
	threshold := uint64(0)
	for i, d := range chain.Documents {
		signs := append([]byte("tako/trust/1\n"), d.encode(t, public).Encode()...)
		if hex.EncodeToString(signs) != v.Documents[i].Signs {
			t.Errorf("the second writer makes %s of document %d", d.encode(t, public), i+1)
		}
		hash := sha256.Sum256(signs)
		if "sha256:"+hex.EncodeToString(hash[:]) != v.Documents[i].Hash || i == 0 && v.Pin != v.Documents[0].Hash || i > 0 && d.Document.Previous != v.Documents[i-1].Hash {
			t.Errorf("the hash of document %d is %x", i+1, hash)
		}
		now, before := uint64(0), uint64(0)
		for _, s := range d.Signatures {
			if !ed25519.Verify(public[s.Key], signs, s.Value) {
				t.Errorf("document %d: the signature of %s", i+1, s.Key)
			}
			if slices.Contains(d.Document.Root.Keys, s.Key) {
				now++
			}
			if slices.Contains(roots, s.Key) {
				before++
			}
		}
		if now < d.Document.Root.Threshold || before < threshold {
			t.Errorf("document %d: %d of its own root keys have signed it, and %d of those before", i+1, now, before)
		}
		previous, roots, threshold = hash[:], d.Document.Root.Keys, d.Document.Root.Threshold
	}
	if bytes.Equal(previous, make([]byte, sha256.Size)) {
		t.Error("nothing was hashed")
	}
}

// encode is what is signed of a document, as the page says.
func (d *jsonDocument) encode(t *testing.T, public map[string]ed25519.PublicKey) spectest.Value {
	t.Helper()
	text, key := spectest.Text, func(s string) spectest.Value { return spectest.Bytes(public[s]) }
	seconds := func(s string) spectest.Value {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return spectest.Int(at.Unix())
	}
	hash, err := hex.DecodeString(d.Document.Previous[len("sha256:"):])
	if err != nil {
		t.Fatal(err)
	}
	var roots, keys, revoked, cas, fallback []spectest.Value
	for _, k := range d.Document.Root.Keys {
		roots = append(roots, key(k))
	}
	for _, k := range d.Document.Keys {
		keys = append(keys, spectest.Map(text("role"), text(k.Role), text("key"), key(k.Key), text("notBefore"), seconds(k.NotBefore), text("notAfter"), seconds(k.NotAfter)))
	}
	for _, r := range d.Document.Revoked {
		revoked = append(revoked, spectest.Map(text("key"), key(r.Key), text("at"), seconds(r.At)))
	}
	for _, s := range d.Document.CAs {
		cas = append(cas, text(s))
	}
	for _, s := range d.Document.Fallback {
		fallback = append(fallback, text(s))
	}
	return spectest.Map(
		text("cluster"), text(d.Document.Cluster), text("number"), spectest.Uint(d.Document.Number), text("previous"), spectest.Bytes(hash), text("issued"), seconds(d.Document.Issued),
		text("epoch"), spectest.Uint(d.Document.Epoch), text("root"), spectest.Map(text("threshold"), spectest.Uint(d.Document.Root.Threshold), text("keys"), spectest.Array(roots...)),
		text("cas"), spectest.Array(cas...), text("keys"), spectest.Array(keys...), text("revoked"), spectest.Array(revoked...), text("fallback"), spectest.Array(fallback...))
}
