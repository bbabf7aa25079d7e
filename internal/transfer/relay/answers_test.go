package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestManyChanges: a layer may have many times more entries than a host may act upon, and they go through a relay.
func TestManyChanges(t *testing.T) {
	const count, each = 2*declare.ResourcesMax + 10_000, 1_000
	f := &fetching{bytesMax: count}
	for from := 0; from < count; from += each {
		p := wire.SyncPart{Kind: wire.SyncSnapshot}
		for i := from; i < from+each; i++ {
			c := wire.Change{Body: []byte{1}}
			binary.BigEndian.PutUint64(c.Key[:], uint64(i))
			p.Changes = append(p.Changes, c)
		}
		if err := f.check(&p); err != nil {
			t.Fatalf("after %d changes: %v", from, err)
		}
	}
	if len(f.rows) > verifiedMax {
		t.Errorf("%d rows are kept", len(f.rows))
	}
	f.changes = 2 * catalog.EntriesMax
	if err := f.check(&wire.SyncPart{Kind: wire.SyncSnapshot, Changes: []wire.Change{{Key: catalog.Digest{0xff}, Body: []byte{1}}}}); err == nil {
		t.Error("more changes are taken than all entries of two layers")
	}
}

// TestDamagedAnswer: an answer that was kept is told from one of which any bit has changed, its end included, or that was cut off anywhere.
func TestDamagedAnswer(t *testing.T) {
	read := func(data []byte) error {
		r := bytes.NewReader(data)
		for {
			if _, err := nextFrame(r); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
	whole := appendFrame(appendFrame(nil, []byte("one")), []byte("and another one"))
	whole = appendFrame(whole, nil)
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for bit := range 8 {
			damaged := slices.Clone(whole)
			damaged[i] ^= 1 << bit
			if err := read(damaged); !reason.Is(err, reason.StateCorrupt) {
				t.Errorf("byte %d, bit %d: %v", i, bit, err)
			}
		}
		if err := read(whole[:i]); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("cut off at byte %d: %v", i, err)
		}
	}
}
