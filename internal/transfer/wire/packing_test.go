package wire

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// dataChanges are so many new entries of data, whose values cannot be guessed.
func dataChanges(tb testing.TB, count int) []Change {
	random := rand.NewChaCha8([32]byte{})
	changes := make([]Change, count)
	for i := range changes {
		value := make([]byte, 33)
		_, _ = random.Read(value) // never fails
		item, err := catalog.DataItem(&declare.Data{Key: fmt.Sprintf("app/item-%07d", i), Value: base64.StdEncoding.EncodeToString(value)})
		if err != nil {
			tb.Fatal(err)
		}
		changes[i] = Change{Key: item.Row().Key, Body: item.Body}
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Key.String(), b.Key.String()) })
	return changes
}

// TestPartIsPacked: of a difference goes over the wire what cannot be known: no key that follows from its body, and nothing twice.
func TestPartIsPacked(t *testing.T) {
	part := SyncPart{Kind: SyncDelta, Changes: dataChanges(t, 1000), Last: true}
	plain := 0
	for i := range part.Changes {
		plain += len(part.Changes[i].Key) + len(part.Changes[i].Body)
	}
	data, err := Encode(part)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 45_000 || plain < 140_000 {
		t.Errorf("1,000 changes of %d bytes, of which 33,000 cannot be guessed, have %d", plain, len(data))
	}
	var back SyncPart
	if err := Decode(data, &back); err != nil || !reflect.DeepEqual(back, part) {
		t.Errorf("they come back otherwise: %v", err)
	}
}

// TestPartOfAnySize: short ones come back, too, packed or not.
func TestPartOfAnySize(t *testing.T) {
	for size := range 1200 {
		part := SyncPart{Kind: SyncDelta, Changes: []Change{{Key: catalog.Digest{1}, Body: bytes.Repeat([]byte("a"), size+1)}}, Last: true}
		data, err := Encode(part)
		if err != nil {
			t.Fatal(err)
		}
		var back SyncPart
		if err := Decode(data, &back); err != nil || !reflect.DeepEqual(back, part) {
			t.Fatalf("a body of %d bytes comes back otherwise: %v", size+1, err)
		}
	}
}

// TestDeletionIsItsKey: there is nothing that it follows from.
func TestDeletionIsItsKey(t *testing.T) {
	part := SyncPart{Kind: SyncDelta}
	for i := range 100 {
		part.Changes = append(part.Changes, Change{Key: catalog.KeyOf(fmt.Sprint(i)), Deleted: true})
	}
	data, err := Encode(part)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 100*(sha256.Size+1)+16 {
		t.Errorf("100 deletions have %d bytes", len(data))
	}
}

// TestRandomIsNotPacked: it would only cost whoever reads it.
func TestRandomIsNotPacked(t *testing.T) {
	body := make([]byte, 4<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body) // never fails
	data, err := Encode(SyncPart{Kind: SyncDelta, Changes: []Change{{Key: catalog.Digest{1}, Body: body}}})
	if err != nil {
		t.Fatal(err)
	}
	var p packedPart
	if err := decoding.Unmarshal(data, &p); err != nil || p.Unpacked != 0 {
		t.Errorf("%d bytes are packed into %d, %v", p.Unpacked, len(p.Rows), err)
	}
}

// TestAnyChanges: what is packed comes back, whatever it is.
func TestAnyChanges(t *testing.T) {
	claims := rapid.StringMatching(`[a-z]{1,4}:[a-z]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		part := SyncPart{Kind: SyncDelta, Last: rapid.Bool().Draw(t, "last")}
		for range rapid.IntRange(0, 40).Draw(t, "count") {
			c := Change{Key: catalog.KeyOf(claims.Draw(t, "claim"))}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				c.Deleted = true
			case 1:
				c.Body = rapid.SliceOf(rapid.Byte()).Draw(t, "body")
			default: // begins with a claim, which is that of its key or another one
				claim := claims.Draw(t, "claim of the body")
				body, err := encoding.Marshal(map[string]string{"c": claim, "r": rapid.String().Draw(t, "rest")})
				if err != nil {
					t.Fatal(err)
				}
				if c.Body = body; rapid.Bool().Draw(t, "its own") {
					c.Key = catalog.KeyOf(claim)
				}
			}
			part.Changes = append(part.Changes, c)
		}
		data, err := Encode(part)
		if err != nil {
			t.Fatal(err)
		}
		var back SyncPart
		if err := Decode(data, &back); err != nil {
			t.Fatal(err)
		}
		if len(back.Changes) != len(part.Changes) || back.Kind != part.Kind || back.Last != part.Last {
			t.Fatalf("%+v came back as %+v", part, back)
		}
		for i, c := range part.Changes {
			if b := back.Changes[i]; b.Key != c.Key || b.Deleted != c.Deleted || !bytes.Equal(b.Body, c.Body) {
				t.Fatalf("%+v came back as %+v", c, b)
			}
		}
	})
}

// TestRowsRefused: rows that are no rows.
func TestRowsRefused(t *testing.T) {
	for name, p := range map[string]packedPart{
		"a key that is cut off":            {Rows: make([]byte, 32)},
		"a body that is cut off":           {Rows: []byte{20, 1, 2}},
		"a number that is cut off":         {Rows: []byte{0x80}},
		"a number of 10 bytes":             {Rows: bytes.Repeat([]byte{0xff}, 11)},
		"a key without its claim":          {Rows: append(binary.AppendUvarint(nil, 8), "body"...)},
		"something that is not packed":     {Rows: []byte("nothing of that"), Unpacked: 15},
		"less than it says":                {Rows: bomb(t, 330), Unpacked: 331},
		"more than it says":                {Rows: bomb(t, 330), Unpacked: 329},
		"a skippable frame without an end": {Rows: []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}, Unpacked: 330},
	} {
		if err := Decode(partOf(t, p), &SyncPart{}); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	if err := Decode(partOf(t, packedPart{Rows: bomb(t, 330), Unpacked: 330}), &SyncPart{}); err != nil {
		t.Errorf("ten deletions: %v", err)
	}
	if _, err := Encode(SyncPart{Changes: make([]Change, ChangesMax+1)}); err == nil {
		t.Error("a part of too many changes is written")
	}
}

// BenchmarkPart is what packing and unpacking 2,048 rows takes, as many as a server puts into a part.
func BenchmarkPart(b *testing.B) {
	part := SyncPart{Kind: SyncSnapshot, Changes: dataChanges(b, 2048)}
	data, err := Encode(part)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("write", func(b *testing.B) {
		var packer Packer
		for b.Loop() {
			if err := packer.WriteFrame(io.Discard, &part); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := Decode(data, &SyncPart{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
