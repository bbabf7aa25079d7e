package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/relay/core"
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

// TestUnverifiedAnswerIsNotKeptForLong: a difference cannot be verified here, nor a snapshot of very many entries. A wrong one is given to the hosts of one
// change alone, over a restart too; what was verified stays.
func TestUnverifiedAnswerIsNotKeptForLong(t *testing.T) {
	const name = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		what  string
		kind  wire.SyncKind
		count int
		stays bool
	}{
		{"a difference", wire.SyncDelta, 3, false},
		{"a snapshot of very many entries", wire.SyncSnapshot, verifiedMax + 1, false},
		{"a snapshot", wire.SyncSnapshot, 3, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				open := func() contents {
					cache, err := openCache(dir, core.NewShelf(1<<30), newMetrics(), slog.New(slog.DiscardHandler))
					if err != nil {
						t.Fatal(err)
					}
					return contents{relay: &Relay{cache: cache, opts: Options{Log: slog.New(slog.DiscardHandler)}}}
				}
				c := open()
				p := wire.SyncPart{Kind: test.kind, Last: true}
				for i := range test.count {
					change := wire.Change{Body: []byte{1}}
					binary.BigEndian.PutUint64(change.Key[:], uint64(i))
					p.Changes = append(p.Changes, change)
				}
				f := &fetching{contents: c, name: name, flight: &flight{settled: make(chan struct{})}, bytesMax: uint64(test.count)}
				if err := errors.Join(f.begin(p.Kind), f.check(&p)); err != nil {
					t.Fatal(err)
				}
				f.request.Target = catalog.Build(f.rows).Root()
				f.finish(f.verify(nil))
				kept := func(c contents) bool {
					a := c.kept(name)
					if a != nil {
						a.body.release()
					}
					return a != nil
				}
				time.Sleep(unverifiedFor - time.Second)
				if !kept(c) {
					t.Error("it is not given to the hosts of its change")
				}
				if c = open(); !kept(c) {
					t.Error("a restart has lost it")
				}
				time.Sleep(2 * time.Second)
				if c = open(); kept(c) != test.stays {
					t.Errorf("it stays %t, want %t", !test.stays, test.stays)
				}
				time.Sleep(24 * time.Hour)
				if kept(c) != test.stays {
					t.Errorf("a day later it is kept: %t, want %t", !test.stays, test.stays)
				}
			})
		})
	}
}
