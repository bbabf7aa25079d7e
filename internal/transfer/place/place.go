package place

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// files opens files of the layout. The error is fs.ErrNotExist for one that is not there.
type files interface {
	open(ctx context.Context, name string) (io.ReadCloser, error)
}

// Place is one place. Use Directory, Location or NewOrder.
type Place struct {
	files files
	name  string // for people
	twice bool   // what is there may be read twice; otherwise it is brought over first
	spool string // the directory for that
}

// String is what the place is called.
func (p *Place) String() string { return p.name }

// wrong is the error of reading a file: fs.ErrNotExist where it is not there.
func (p *Place) wrong(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &reason.Error{Code: reason.PlaceUnusable, Doing: "read " + name + " in " + p.name, Cause: err}
}

// read reads a file of at most so many bytes. The errors are fs.ErrNotExist, where it is not there, and PlaceUnusable.
func (p *Place) read(ctx context.Context, name string, most int64) ([]byte, error) {
	r, err := p.files.open(ctx, name)
	if err != nil {
		return nil, p.wrong(name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return nil, p.wrong(name, err)
	}
	return data, nil
}

// Trust reads the trust documents. They speak for themselves. The errors are fs.ErrNotExist, PlaceUnusable and TrustRefused.
func (p *Place) Trust(ctx context.Context) ([]trust.Signed, error) {
	data, err := p.read(ctx, trustName, trustMax)
	if err != nil {
		return nil, err
	}
	return trust.DecodeDocuments(data)
}

// Head reads the signed head of a node. It is not to be believed yet. The errors are fs.ErrNotExist and PlaceUnusable.
func (p *Place) Head(ctx context.Context, uid string) ([]byte, error) {
	if !plain(uid) {
		return nil, fs.ErrNotExist
	}
	return p.read(ctx, path.Join(headsName, uid), headMax)
}

// plain tells whether a UID can be the name of a file: those that servers give can.
func plain(uid string) bool {
	if uid == "" || len(uid) > uidMax || uid[0] == '.' {
		return false
	}
	for _, c := range uid {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

// Statements reads the signed statements. They are not to be believed yet. The errors are fs.ErrNotExist, PlaceUnusable and StateCorrupt.
func (p *Place) Statements(ctx context.Context) ([][]byte, error) {
	data, err := p.read(ctx, statementsName, int64(statementsMax))
	if err != nil {
		return nil, err
	}
	return DecodeStatements(data)
}

// List reads the catalog list with a root. The errors are fs.ErrNotExist, also where it is another one than it is called, and PlaceUnusable.
func (p *Place) List(ctx context.Context, root catalog.Digest) ([]byte, error) {
	data, err := p.read(ctx, path.Join(listsName, root.String()), listMax)
	if err != nil {
		return nil, err
	}
	if catalog.ListRoot(data) != root {
		return nil, fs.ErrNotExist
	}
	return data, nil
}

// Layer hands the rows of the layer with a root to part, from a key on, in parts as a server sends them; the last one says so. All of them
// have been verified before, and have so many bytes of bodies at most. The errors are fs.ErrNotExist, also where it is another one than it is called,
// PlaceUnusable, and that of part.
func (p *Place) Layer(ctx context.Context, root, from catalog.Digest, most uint64, part func(wire.SyncPart) error) error {
	name := path.Join(layersName, root.String())
	open := func() (io.ReadCloser, error) { return p.files.open(ctx, name) }
	if !p.twice {
		spooled, err := p.bring(ctx, name, most)
		if err != nil {
			return err
		}
		defer spooled.Close()
		open = func() (io.ReadCloser, error) {
			_, err := spooled.Seek(0, io.SeekStart)
			return io.NopCloser(spooled), err
		}
	}
	r, err := open()
	if err != nil {
		return p.wrong(name, err)
	}
	err = verify(r, root, most)
	if err = errors.Join(err, r.Close()); err != nil {
		return p.wrong(name, err)
	}
	if r, err = open(); err != nil {
		return p.wrong(name, err)
	}
	defer r.Close()
	return send(r, from, part)
}

// verify reads rows, and wants those of a root. The error is fs.ErrNotExist for others.
func verify(r io.Reader, root catalog.Digest, most uint64) error {
	var b catalog.Builder // a host has no room for the rows of a million entries
	var size uint64
	err := catalog.ReadRows(r, func(key catalog.Digest, body []byte) error {
		if size += uint64(len(body)); size > most {
			return fmt.Errorf("it has more than the %d bytes that are signed", most)
		}
		return b.Add(catalog.Row{Key: key, Digest: sha256.Sum256(body)})
	})
	if err != nil {
		return err
	}
	if b.Trie(nil).Root() != root {
		return fs.ErrNotExist
	}
	return nil
}

// send hands rows over as the parts of a snapshot.
func send(r io.Reader, from catalog.Digest, part func(wire.SyncPart) error) error {
	p := wire.SyncPart{Kind: wire.SyncSnapshot}
	size := 0
	err := catalog.ReadRows(r, func(key catalog.Digest, body []byte) error {
		if bytes.Compare(key[:], from[:]) < 0 {
			return nil
		}
		if size > 0 && size+len(body) > wire.PartBytesMax {
			full := p
			p, size = wire.SyncPart{Kind: wire.SyncSnapshot}, 0
			if err := part(full); err != nil {
				return err
			}
		}
		p.Changes = append(p.Changes, wire.Change{Key: key, Body: body})
		size += len(body) + rowMax
		return nil
	})
	if err != nil {
		return err
	}
	p.Last = true
	return part(p)
}

// bring brings a layer over into a file that has no name: it is gone with the process.
func (p *Place) bring(ctx context.Context, name string, most uint64) (*os.File, error) {
	r, err := p.files.open(ctx, name)
	if err != nil {
		return nil, p.wrong(name, err)
	}
	defer r.Close()
	f, err := Spool(p.spool, r, layerMax(most))
	if err != nil {
		return nil, p.wrong(name, err)
	}
	return f, nil
}

// layerMax is how large the file of a layer can be, whose bodies have so many bytes: each has one at least.
func layerMax(bodies uint64) int64 {
	rows := min(bodies, countMax)
	return int64(min(bodies, 1<<40) + rows*rowMax + headerMax)
}

// Spool copies at most so many bytes into a file of a directory that has no name there, and is at its beginning. The caller closes it.
func Spool(dir string, r io.Reader, most int64) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".tako-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	var n int64
	if err == nil {
		n, err = io.Copy(f, io.LimitReader(r, most+1))
	}
	if err == nil && n > most {
		err = fmt.Errorf("it has more than the %d bytes that are signed", most)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
