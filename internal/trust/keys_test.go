package trust

import (
	"bytes"
	"encoding/hex"
	"testing"

	"tako.dev/tako/internal/reason"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testKeys(t testing.TB) *Keys {
	t.Helper()
	k, err := NewKeys(NewClusterID(), testTime)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysComeBack(t *testing.T) {
	k, secret := testKeys(t), NewRing()
	sealed, err := k.Seal(secret)
	if err != nil {
		t.Fatal(err)
	}
	back, stale, err := OpenKeys(secret, sealed)
	if err != nil || stale {
		t.Fatalf("stale %v, %v", stale, err)
	}
	if back.Cluster() != k.Cluster() || back.Heads().Public() != k.Heads().Public() || back.AtRest().ID() != k.AtRest().ID() {
		t.Errorf("%v came back as %v", k, back)
	}
	// What each key made before must be good after.
	token := NewToken(TokenUser)
	if !back.Pepper().Matches(token, k.Pepper().Hash(token)) {
		t.Error("a token's hash is another one")
	}
	c, err := back.CA().IssueClient(ClientRequest{User: "ann"}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Certificate().CheckSignatureFrom(k.CA().Certificate()); err != nil {
		t.Errorf("a new certificate is not of the old authority: %v", err)
	}
	if plain, _, err := back.AtRest().Open(PurposeObject, "n", k.AtRest().Seal(PurposeObject, "n", []byte("x"))); err != nil || string(plain) != "x" {
		t.Errorf("a secret at rest: %q, %v", plain, err)
	}
}

func TestKeysUnderAnotherSecret(t *testing.T) {
	k, secret, fresh := testKeys(t), NewRing(), NewRing()
	sealed, err := k.Seal(secret)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = OpenKeys(fresh, sealed)
	wantCode(t, err, reason.SealKeyUnknown)
	if reason.Of(err).Hint == "" {
		t.Error("nothing says where the right secret is")
	}
	rotated, err := ringOf(append(fresh.masters(), secret.masters()...))
	if err != nil {
		t.Fatal(err)
	}
	if back, stale, err := OpenKeys(rotated, sealed); err != nil || !stale || back.Cluster() != k.Cluster() {
		t.Errorf("under a rotated secret: stale %v, %v", stale, err)
	}
	_, _, err = OpenKeys(secret, append(bytes.Clone(sealed), make([]byte, keysMax)...))
	wantCode(t, err, reason.SealBroken)
}

func TestKeysRefused(t *testing.T) {
	valid := func(change func(*keysWire)) []byte {
		k := testKeys(t)
		sealed, err := k.Seal(k.atRest)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := k.atRest.Open(PurposeClusterKeys, "", sealed)
		if err != nil {
			t.Fatal(err)
		}
		var w keysWire
		if err := strict.Unmarshal(b, &w); err != nil {
			t.Fatal(err)
		}
		change(&w)
		b, err = canonical.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, _, err := decodeKeys(valid(func(*keysWire) {})); err != nil {
		t.Fatalf("unchanged keys: %v", err)
	}
	other := testKeys(t)
	for name, c := range map[string]struct {
		encoded []byte
		code    reason.Code
	}{
		"nothing":           {nil, reason.SealBroken},
		"no map":            {[]byte{0x01}, reason.SealBroken},
		"newer":             {valid(func(w *keysWire) { w.Version++ }), reason.StateNewer},
		"no cluster":        {valid(func(w *keysWire) { w.Cluster = "" }), reason.SealBroken},
		"another authority": {valid(func(w *keysWire) { w.CACertificate = other.ca.certificate.Raw }), reason.SealBroken},
		"no authority key":  {valid(func(w *keysWire) { w.CAKey = nil }), reason.SealBroken},
		"short heads key":   {valid(func(w *keysWire) { w.Heads = w.Heads[1:] }), reason.SealBroken},
		"no key at rest":    {valid(func(w *keysWire) { w.AtRest = nil }), reason.SealBroken},
		"short pepper":      {valid(func(w *keysWire) { w.Pepper = w.Pepper[1:] }), reason.SealBroken},
		"short delivery":    {valid(func(w *keysWire) { w.Delivery = w.Delivery[1:] }), reason.SealBroken},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := decodeKeys(c.encoded)
			wantCode(t, err, c.code)
		})
	}
}

func FuzzDecodeKeys(f *testing.F) {
	k := testKeys(f)
	sealed, err := k.Seal(k.atRest)
	if err != nil {
		f.Fatal(err)
	}
	good, _, err := k.atRest.Open(PurposeClusterKeys, "", sealed)
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, good, good[:len(good)/2], {0xa0}, {0xbf, 0xff}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, _, err := decodeKeys(b)
		if err != nil {
			if !reason.Is(err, reason.SealBroken) && !reason.Is(err, reason.StateNewer) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		if _, err := k.Seal(k.atRest); err != nil {
			t.Errorf("keys of %x cannot be sealed: %v", b, err)
		}
	})
}

// Each name, key and hash has one text.
func TestTextForms(t *testing.T) {
	key, hash, id := NewSigningKey().Public(), Hash{1, 2}, NewClusterID()
	if back, err := ParsePublicKey(key.String()); err != nil || back != key {
		t.Errorf("key %s came back as %s, %v", key, back, err)
	}
	if back, err := ParseHash(hash.String()); err != nil || back != hash {
		t.Errorf("hash %s came back as %s, %v", hash, back, err)
	}
	if err := id.validate(); err != nil {
		t.Errorf("a fresh cluster id: %v", err)
	}
	digits := key.String()[len(publicPrefix):]
	for _, s := range []string{"", digits, "ed25519:" + digits[1:], key.String() + "\n", "ed25519:\n" + digits, key.String() + "=", "ed25519:" + digits + "AAAA", "ED25519:" + digits} {
		if _, err := ParsePublicKey(s); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%q was read as a key: %v", s, err)
		}
	}
	digits = hash.String()[len(hashPrefix):]
	for _, s := range []string{"", digits, "sha256:" + digits[1:], hash.String() + "0", "sha256:" + "AB" + digits[2:], "sha256:" + "xx" + digits[2:]} {
		if _, err := ParseHash(s); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("%q was read as a hash: %v", s, err)
		}
	}
	for _, s := range []ClusterID{"", id[1:], id + "a", id[1:] + "\n", id[1:] + "0", "A" + id[1:]} {
		if err := s.validate(); err == nil {
			t.Errorf("%q is taken for a cluster id", s)
		}
	}
	for role, good := range map[Role]bool{
		RoleHeads: true, RoleOperator: true, RoleBuild: true, ReleaseRole("prod-1"): true, "": false, "Heads": false, "release": false,
		ReleaseRole(""): false, ReleaseRole("a/b"): false, ReleaseRole("-a"): false, ReleaseRole("a\n"): false,
	} {
		if err := role.validate(); (err == nil) != good {
			t.Errorf("role %q: %v", role, err)
		}
	}
}
