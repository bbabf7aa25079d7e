package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/server/index"
	"tako.dev/tako/internal/transfer/snapshots"
	"tako.dev/tako/internal/transfer/wire"
)

// Content is what calls for content are answered from: the tries and bodies of a server (the default, of Catalogs and Objects), or what a
// relay has kept or asks for. Its methods may be called from several goroutines, and end with their context. Whoever calls them has
// verified the head that was shown, and but for List that its list names the layer at that root. The errors are coded; RootUnknown is for what
// was let go, and TransferBusy and ServerUnreachable for what is to be had later, or elsewhere.
type Content interface {
	// List is the encoded list of the root of the head.
	List(ctx context.Context, of Showing) ([]byte, error)
	// Sync is the way to the target of a request. It is the same at each call with another cursor, so that what is resumed goes on.
	Sync(ctx context.Context, of Showing, r *wire.SyncRequest) (Way, error)
	// Nodes finds what a layer is made of, of these hashes at least; what the layer has not is not found.
	Nodes(ctx context.Context, of Showing, at catalog.Layer, hashes []catalog.Digest) (find func(catalog.Digest) ([]byte, bool, error), err error)
	// Body is what stands at a key of a layer; nil when it has no such key.
	Body(ctx context.Context, of Showing, at catalog.Layer, key catalog.Digest) ([]byte, error)
	// Object is a large content, which the entry at a key of a listed layer names. The caller closes it. Its error is ObjectMissing.
	Object(ctx context.Context, of Showing, key catalog.Digest, digest content.Digest) (Object, error)
}

// atHand is a Content that has lists at hand, without a wait.
type atHand interface {
	ListAtHand(root catalog.Digest) ([]byte, bool)
}

// Showing is a head that was shown, and for whom.
type Showing struct {
	Who  Identity // of the node that the head is for
	Head []byte
	Root catalog.Digest // of the head
}

// Way is how a host gets from a base to a target.
type Way struct {
	Kind wire.SyncKind
	// Frames are the encoded parts, as wire.WriteFrame writes them, from the cursor of the request on. It may be ranged over once, and a
	// frame is good until the next one. After an error there is no more: the host takes it up again where it was.
	Frames iter.Seq2[[]byte, error]
	// Close ends it, whether it was ranged over or not; nil where nothing is to be ended.
	Close func()
}

// Object is a large content of a size that is known. ReadAt may wait for what is on its way, and fails when that does not come.
type Object interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// memory is the Content of a server: all of it is here.
type memory struct {
	catalogs Catalogs
	objects  Objects // nil: there are none
	index    *index.Index
	packer   wire.Packer
	// snapshots are what was sent to hosts that had nothing; nil: nothing is kept.
	snapshots *snapshots.Store
}

var _ Content = (*memory)(nil)

func (m *memory) List(_ context.Context, of Showing) ([]byte, error) {
	data, found := m.catalogs.List(of.Root)
	if !found {
		return nil, &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + of.Who.Name, Cause: fmt.Errorf("there is no catalog %s", of.Root)}
	}
	return data, nil
}

// ListAtHand is List of what is in memory.
func (m *memory) ListAtHand(root catalog.Digest) ([]byte, bool) { return m.catalogs.List(root) }

// layer is a layer of which the list says that there is one.
func (m *memory) layer(of Showing, id string, root catalog.Digest) (Layer, error) {
	l, found := m.catalogs.Layer(id, root)
	if !found {
		return Layer{}, &reason.Error{Code: reason.RootUnknown, Doing: "serve node " + of.Who.Name, Cause: fmt.Errorf("root %s of layer %s", root, clip(id)), After: time.Second}
	}
	return l, nil
}

func (m *memory) Sync(_ context.Context, of Showing, r *wire.SyncRequest) (Way, error) {
	target, err := m.layer(of, r.Layer, r.Target)
	if err != nil {
		return Way{}, err
	}
	kind, changes, err := m.way(r, target.Trie)
	if err != nil {
		return Way{}, err
	}
	if kind == wire.SyncUnknownBase {
		return Way{Kind: kind, Frames: m.last(kind)}, nil
	}
	body := target.Body
	if target.Reader != nil {
		body = target.Reader()
	}
	keep := m.snapshots
	if kind != wire.SyncSnapshot {
		keep = nil // differences are of a few hosts each
	}
	return Way{Kind: kind, Frames: keep.Frames(r.Target, r.Cursor, m.parts(kind, changes, body))}, nil
}

// changing is what changes on a way, from a key on.
type changing func(from catalog.Digest) iter.Seq2[catalog.Change, error]

// way says how a host gets to a target, and what changes on it. Which way it is does not depend on the cursor, so that what is resumed
// goes on.
func (m *memory) way(r *wire.SyncRequest, target catalog.Trie) (wire.SyncKind, changing, error) {
	between := func(base catalog.Trie) changing {
		return func(from catalog.Digest) iter.Seq2[catalog.Change, error] {
			return catalog.Difference(base, target, from)
		}
	}
	if r.Base == (catalog.Digest{}) {
		return wire.SyncSnapshot, between(catalog.Trie{}), nil
	}
	base, found := m.catalogs.Layer(r.Layer, r.Base)
	switch {
	case !found && target.Len() == 0:
		return wire.SyncSnapshot, between(catalog.Trie{}), nil // there is nothing to send
	case !found:
		return wire.SyncUnknownBase, nil, nil
	}
	changed, kept := 0, []catalog.Change(nil)
	for c, err := range catalog.Difference(base.Trie, target, catalog.Digest{}) {
		if err != nil {
			return 0, nil, err
		}
		if changed++; 2*changed > target.Len() && changed > fewChanges {
			return wire.SyncSnapshot, between(catalog.Trie{}), nil
		}
		if changed <= keptMax {
			kept = append(kept, c)
		}
	}
	if changed > keptMax {
		return wire.SyncDelta, between(base.Trie), nil
	}
	return wire.SyncDelta, func(from catalog.Digest) iter.Seq2[catalog.Change, error] {
		n, _ := slices.BinarySearchFunc(kept, from, func(c catalog.Change, from catalog.Digest) int { return bytes.Compare(c.Key[:], from[:]) })
		return catalog.Changes(kept[n:]...)
	}, nil
}

// keptMax is how many changes are kept from counting them to sending them, which is cheaper than to compare once more: 270 KB.
const keptMax = 4_096

// fewChanges are always sent as such: with so few rows a snapshot saves nothing.
const fewChanges = 16

// changesMax is of one part: deletions have no bodies. What a reader accepts is in wire.
const changesMax = 2_048

// parts makes parts of changes, each from a key on.
func (m *memory) parts(kind wire.SyncKind, changes changing, body func(catalog.Digest) ([]byte, bool)) snapshots.Make {
	part := wire.SyncPart{Kind: kind}
	return func(from catalog.Digest) (made snapshots.Part, err error) {
		// Lets the bodies go of the part before.
		part.Changes, part.Last = slices.Delete(part.Changes, 0, len(part.Changes)), true
		size := 0 // of the bodies in part
		for c, err := range changes(from) {
			if err != nil {
				return made, err
			}
			out := wire.Change{Key: c.Key, Deleted: c.Deleted}
			if !c.Deleted {
				data, found := body(c.Digest)
				if !found {
					return made, &reason.Error{Code: reason.InternalFault, Doing: "send a layer", Cause: fmt.Errorf("there is no body %s", c.Digest)}
				}
				out.Body = data
			}
			if full := size+len(out.Body) > wire.PartBytesMax || len(part.Changes) >= changesMax; full && len(part.Changes) > 0 {
				part.Last, made.Next = false, c.Key
				break
			}
			part.Changes = append(part.Changes, out)
			size, made.Last = size+len(out.Body), c.Key
		}
		made.End = part.Last
		made.Frame, err = m.encoded(&part)
		return made, err
	}
}

// last is a way without any change.
func (m *memory) last(kind wire.SyncKind) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) { yield(m.encoded(&wire.SyncPart{Kind: kind, Last: true})) }
}

func (m *memory) encoded(part *wire.SyncPart) ([]byte, error) {
	var b bytes.Buffer
	err := m.packer.WriteFrame(&b, part)
	return b.Bytes(), err
}

func (m *memory) Nodes(_ context.Context, of Showing, at catalog.Layer, _ []catalog.Digest) (func(catalog.Digest) ([]byte, bool, error), error) {
	layer, err := m.layer(of, at.ID, at.Root)
	if err != nil {
		return nil, err
	}
	made, err := m.index.Of(at.Root, layer.Trie)
	if err != nil {
		return nil, err
	}
	return func(hash catalog.Digest) ([]byte, bool, error) {
		data, found, err := made.Nodes.Encoded(hash)
		if _, has := made.Bodies[hash]; has && !found && err == nil {
			data, found = layer.Body(hash)
		}
		return data, found, err
	}, nil
}

func (m *memory) Body(_ context.Context, of Showing, at catalog.Layer, key catalog.Digest) ([]byte, error) {
	layer, err := m.layer(of, at.ID, at.Root)
	if err != nil {
		return nil, err
	}
	digest, found, err := layer.Trie.Get(key)
	if !found || err != nil {
		return nil, err
	}
	body, _ := layer.Body(digest)
	return body, nil
}

func (m *memory) Object(_ context.Context, of Showing, _ catalog.Digest, digest content.Digest) (Object, error) {
	if m.objects == nil {
		return nil, &reason.Error{Code: reason.ObjectMissing, Doing: "serve node " + of.Who.Name, Cause: errors.New("this server has no objects")}
	}
	f, err := m.objects.Open(digest)
	if err != nil {
		return nil, err
	}
	return OfFile(f)
}

// OfFile is an object that is in a file, which is closed with it. The error is InputOutput; then the file is closed.
func OfFile(f *os.File) (Object, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: "read " + f.Name(), Cause: errors.Join(err, f.Close())}
	}
	return file{f, st.Size()}, nil
}

// file is an object that is here.
type file struct {
	*os.File
	size int64
}

// Size is that of the file when it was opened.
func (f file) Size() int64 { return f.size }
