package trust

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/reason"
)

// One value has one key, id and sealed text, on every server and at any time.
func TestDataKey(t *testing.T) {
	d := &Delivery{[masterSize]byte{1}}
	id, key := d.DataKey("uid", "password", []byte("secret"))
	// A changed derivation would make every stored layer and envelope unreadable.
	if want := "d2d94d02d0ec12c8623dbdf40589886f"; id != want {
		t.Errorf("the id is %s, want %s", id, want)
	}
	sealed := key.SealText(id, []byte("secret"))
	if len(sealed) != len("secret")+TextOverhead {
		t.Errorf("%d bytes sealed", len(sealed))
	}
	again, sameKey := d.DataKey("uid", "password", []byte("secret"))
	if again != id || sameKey != key || !bytes.Equal(sameKey.SealText(again, []byte("secret")), sealed) {
		t.Error("the same value has another key or text")
	}
	plain, err := key.OpenText(id, sealed)
	if err != nil || string(plain) != "secret" {
		t.Errorf("opened %q, %v", plain, err)
	}
	if plain, err := key.OpenText(id, key.SealText(id, nil)); err != nil || len(plain) != 0 {
		t.Errorf("an empty value: %q, %v", plain, err)
	}
	_, other := d.DataKey("uid", "password", []byte("other"))
	broken := bytes.Clone(sealed)
	broken[0] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another key": func() ([]byte, error) { return other.OpenText(id, sealed) },
		"another id":  func() ([]byte, error) { return key.OpenText(strings.Repeat("0", 32), sealed) },
		"damaged":     func() ([]byte, error) { return key.OpenText(id, broken) },
		"cut off":     func() ([]byte, error) { return key.OpenText(id, sealed[:10]) },
		"nothing":     func() ([]byte, error) { return key.OpenText(id, nil) },
	} {
		_, err := open()
		if !reason.Is(err, reason.SealBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s", "%d"} {
		if words := fmt.Sprintf(verb+verb, key, d); words != "data keydelivery key" {
			t.Errorf("%s prints %q", verb, words)
		}
	}
}

// No key seals two texts: that is what makes a fixed nonce safe.
func TestNoKeyTwice(t *testing.T) {
	d := newDelivery()
	type use struct{ uid, key, value string }
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\x00\x01]{0,3}`)
		draw := rapid.Custom(func(t *rapid.T) use {
			return use{text.Draw(t, "uid"), text.Draw(t, "key"), text.Draw(t, "value")}
		})
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		idA, keyA := d.DataKey(a.uid, a.key, []byte(a.value))
		idB, keyB := d.DataKey(b.uid, b.key, []byte(b.value))
		if (a == b) != (keyA == keyB) || (a == b) != (idA == idB) {
			t.Fatalf("%q and %q: ids %s and %s, equal keys: %v", a, b, idA, idB, keyA == keyB)
		}
		if _, elsewhere := newDelivery().DataKey(a.uid, a.key, []byte(a.value)); elsewhere == keyA {
			t.Fatal("another cluster has the same key")
		}
	})
}

func TestSealedKeys(t *testing.T) {
	d, host, cluster := newDelivery(), NewSealingKey(), NewClusterID()
	id, key := d.DataKey("uid", "k", []byte("v"))
	e := Envelope{Cluster: cluster, NodeUID: testUID, KeyID: id}
	sealed, err := SealKey(host.Public(), e, key)
	if err != nil || len(sealed) != SealedKeySize {
		t.Fatalf("%d bytes, %v", len(sealed), err)
	}
	if back, err := host.Open(e, sealed); err != nil || back != key {
		t.Errorf("another key came out: %v", err)
	}
	if again, err := SealKey(host.Public(), e, key); err != nil || bytes.Equal(again, sealed) {
		t.Errorf("sealed twice alike: %v", err)
	}
	otherID, _ := d.DataKey("uid", "k", []byte("w"))
	broken := bytes.Clone(sealed)
	broken[len(broken)-1] ^= 1
	for name, c := range map[string]struct {
		host   *SealingKey
		e      Envelope
		sealed []byte
	}{
		"another host":    {NewSealingKey(), e, sealed},
		"another cluster": {host, Envelope{NewClusterID(), testUID, id}, sealed},
		"another node":    {host, Envelope{cluster, testUID[1:], id}, sealed},
		"another id":      {host, Envelope{cluster, testUID, otherID}, sealed},
		"no id":           {host, Envelope{cluster, testUID, ""}, sealed},
		"no cluster":      {host, Envelope{"", testUID, id}, sealed},
		"damaged":         {host, e, broken},
		"cut off":         {host, e, sealed[1:]},
		"nothing":         {host, e, nil},
	} {
		if _, err := c.host.Open(c.e, c.sealed); !reason.Is(err, reason.SealBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, public := range map[string][]byte{"none": nil, "short": host.Public()[1:], "zeros": make([]byte, SealingKeySize)} {
		if _, err := SealKey(public, e, key); !reason.Is(err, reason.InvalidValue) {
			t.Errorf("sealed to %s: %v", name, err)
		}
	}
	if _, err := SealKey(host.Public(), Envelope{cluster, testUID, "x"}, key); !reason.Is(err, reason.InvalidValue) {
		t.Errorf("sealed without an id: %v", err)
	}
}

// Keys that were stored before there was a delivery key get one, and it stays.
func TestDeliveryKeyIsAdded(t *testing.T) {
	secret, k := NewRing(), testKeys(t)
	sealed, err := k.Seal(secret)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := secret.Open(PurposeClusterKeys, "", sealed)
	if err != nil {
		t.Fatal(err)
	}
	var w map[string]any
	if err := lenient.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	delete(w, "delivery")
	if b, err = canonical.Marshal(w); err != nil {
		t.Fatal(err)
	}
	first, stale, err := OpenKeys(secret, secret.Seal(PurposeClusterKeys, "", b))
	if err != nil || !stale {
		t.Fatalf("stale %v, %v", stale, err)
	}
	if sealed, err = first.Seal(secret); err != nil {
		t.Fatal(err)
	}
	second, stale, err := OpenKeys(secret, sealed)
	if err != nil || stale || second.Delivery().key != first.Delivery().key || first.Delivery().key == (Delivery{}).key {
		t.Errorf("stored and read again: stale %v, %v", stale, err)
	}
}

func FuzzOpenSealedKey(f *testing.F) {
	host, e := NewSealingKey(), Envelope{Cluster: NewClusterID(), NodeUID: testUID, KeyID: strings.Repeat("0", 32)}
	sealed, err := SealKey(host.Public(), e, DataKey{})
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{nil, sealed, sealed[1:], make([]byte, SealedKeySize)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		key, err := host.Open(e, b)
		if err != nil && !reason.Is(err, reason.SealBroken) || err == nil && (key != DataKey{}) {
			t.Errorf("%x: %v", b, err)
		}
		if _, err := (DataKey{}).OpenText(e.KeyID, b); err != nil && !reason.Is(err, reason.SealBroken) {
			t.Errorf("%x: %v", b, err)
		}
	})
}

func FuzzDecodeHostKeys(f *testing.F) {
	for _, b := range [][]byte{nil, NewHostKey().EncodePEM(), NewSealingKey().EncodePEM(), NewSigningKey().EncodePEM()} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := DecodeHostKey(b); err == nil {
			if back, err := DecodeHostKey(k.EncodePEM()); err != nil || back.Digest() != k.Digest() {
				t.Errorf("%q does not come back: %v", b, err)
			}
		} else if !reason.Is(err, reason.KeyFileDamaged) {
			t.Errorf("%q: %v", b, err)
		}
		if k, err := DecodeSealingKey(b); err == nil {
			if back, err := DecodeSealingKey(k.EncodePEM()); err != nil || !bytes.Equal(back.Public(), k.Public()) {
				t.Errorf("%q does not come back: %v", b, err)
			}
		} else if !reason.Is(err, reason.KeyFileDamaged) {
			t.Errorf("%q: %v", b, err)
		}
	})
}
