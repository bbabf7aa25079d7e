package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server"
	"tako.dev/tako/internal/transfer/wire"
)

// spoilAll changes a byte in the middle of each file in a directory.
func spoilAll(t testing.TB, dir string) {
	t.Helper()
	each(t, dir, func(path string) error {
		data, err := os.ReadFile(path)
		if err == nil {
			data[len(data)/2] ^= 1
			err = os.WriteFile(path, data, 0o600)
		}
		return err
	})
}

// removeAll removes each file in a directory.
func removeAll(t testing.TB, dir string) {
	t.Helper()
	each(t, dir, os.Remove)
}

func each(t testing.TB, dir string, do func(path string) error) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		if err := do(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// lying is the content of a server, with each body replaced by another one.
type lying struct{ opts *server.Options }

func (l lying) List(_ context.Context, of server.Showing) ([]byte, error) {
	data, _ := l.opts.Catalogs.List(of.Root)
	return data, nil
}

func (l lying) Sync(_ context.Context, _ server.Showing, r *wire.SyncRequest) (server.Way, error) {
	layer, _ := l.opts.Catalogs.Layer(r.Layer, r.Target)
	part := wire.SyncPart{Kind: wire.SyncSnapshot, Last: true}
	for row := range layer.Trie.From(catalog.Digest{}) {
		part.Changes = append(part.Changes, wire.Change{Key: row.Key, Body: []byte("a lie")})
	}
	return server.Way{Kind: wire.SyncSnapshot, Frames: one(part)}, nil
}

func one(part wire.SyncPart) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var b bytes.Buffer
		err := wire.WriteFrame(&b, part)
		yield(b.Bytes(), err)
	}
}

func (l lying) Nodes(context.Context, server.Showing, catalog.Layer, []catalog.Digest) (func(catalog.Digest) ([]byte, bool, error), error) {
	return func(catalog.Digest) ([]byte, bool, error) { return []byte("a lie"), true, nil }, nil
}

func (l lying) Body(context.Context, server.Showing, catalog.Layer, catalog.Digest) ([]byte, error) {
	return []byte("a lie"), nil
}

func (l lying) Object(context.Context, server.Showing, catalog.Digest, content.Digest) (server.Object, error) {
	return nil, errors.New("a lie")
}

// part is a part of a snapshot with so many rows, from a number on.
func part(from, count int, last bool) wire.SyncPart {
	p := wire.SyncPart{Kind: wire.SyncSnapshot, Last: last}
	for i := range count {
		p.Changes = append(p.Changes, wire.Change{Key: catalog.Digest{byte(from + i)}, Body: []byte{byte(from + i)}})
	}
	return p
}

// frameOf is a part as it goes over the wire.
func frameOf(t testing.TB, p wire.SyncPart) []byte {
	t.Helper()
	for frame, err := range one(p) {
		if err != nil {
			t.Fatal(err)
		}
		return frame
	}
	return nil
}

// TestCut: from whatever key on, what is left of an answer is what stands at that key and behind it, and the last part is there.
func TestCut(t *testing.T) {
	parts := []wire.SyncPart{part(1, 3, false), part(4, 3, false), part(7, 2, true)}
	for cursor := range 12 {
		var got []byte
		begun, last := false, false
		for _, p := range parts {
			frame := frameOf(t, p)
			if !begun {
				var err error
				if frame, begun, err = cut(frame, catalog.Digest{byte(cursor)}); err != nil {
					t.Fatal(err)
				}
			}
			if frame == nil {
				continue
			}
			var m wire.SyncPart
			if err := wire.ReadFrame(bytes.NewReader(frame), &m); err != nil {
				t.Fatal(err)
			}
			for _, c := range m.Changes {
				got = append(got, c.Key[0])
			}
			last = last || m.Last
		}
		if want := min(8, 8-cursor+1); len(got) != max(0, want) || len(got) > 0 && int(got[0]) != max(1, cursor) || !last {
			t.Errorf("from %d on: %v, last %t", cursor, got, last)
		}
	}
}

// FuzzNextFrame: whatever the disk has is read to an end, with an error of its own, and what is read is whole.
func FuzzNextFrame(f *testing.F) {
	good := appendFrame(appendFrame(nil, []byte("a part")), nil)
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			frame, err := nextFrame(r)
			if errors.Is(err, io.EOF) || reason.Is(err, reason.StateCorrupt) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if again, err := nextFrame(bytes.NewReader(appendFrame(nil, frame))); err != nil || sha256.Sum256(again) != sha256.Sum256(frame) {
				t.Fatalf("it comes back as %x, %v", again, err)
			}
		}
	})
}
