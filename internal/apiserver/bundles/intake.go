package bundles

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// intake makes a bundle of another one and a difference to it.
type intake struct {
	rows, bodies *bufio.Writer
	all          []catalog.Row
	bytes        int64
}

// accept looks a difference through and makes the bundle that it leads to. What is wrong with the difference is BundleRefused.
func (s *Store) accept(ctx context.Context, want upload) (err error) {
	doing := "accept bundle " + bundle.Digest(want.root)
	part, err := os.Open(s.partPath(want))
	if err != nil {
		return unstored(doing, err)
	}
	defer part.Close() // it was only read
	var base *Bundle
	more := want.size
	if want.base != (catalog.Digest{}) {
		if base, err = openFiles(s.path(want.base)); err != nil {
			return unreadable(want.base, err)
		}
		defer base.close() // it was only read
		st, err := base.bodies.Stat()
		if err != nil {
			return unstored(doing, err)
		}
		more += st.Size()
	}
	if err := content.Spare(s.dir, more); err != nil {
		return err
	}
	made, err := os.MkdirTemp(filepath.Join(s.dir, tmpDir), "made-")
	if err != nil {
		return unstored(doing, err)
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(made) // otherwise the next start does it
		}
	}()
	if err := fill(ctx, made, base, bundle.Read(part), want.root); err != nil {
		return refusal(doing, err)
	}
	return s.place(doing, made, want)
}

// refusal is an error of a difference as one of the bundle.
func refusal(doing string, err error) error {
	e := reason.Of(err)
	switch {
	case reason.Is(err, reason.StateCorrupt), reason.Is(err, reason.BodyTooLarge):
		return &reason.Error{Code: reason.BundleRefused, Doing: doing, Cause: errors.New(e.Error())}
	case reason.Is(err, reason.BundleRefused):
		e.Doing = doing
		return e
	}
	return unstored(doing, err)
}

func refused(format string, args ...any) error {
	return &reason.Error{Code: reason.BundleRefused, Cause: fmt.Errorf(format, args...)}
}

// fill writes the files of a bundle into a directory, durably, and verifies its root.
func fill(ctx context.Context, dir string, base *Bundle, changes iter.Seq2[bundle.Change, error], root catalog.Digest) (err error) {
	rows, err := os.Create(filepath.Join(dir, rowsName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	bodies, err := os.Create(filepath.Join(dir, bodiesName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bodies.Close()) }()
	in := intake{rows: bufio.NewWriterSize(rows, readBuffer), bodies: bufio.NewWriterSize(bodies, readBuffer)}
	if _, err := in.rows.WriteString(rowsMagic); err != nil {
		return err
	}
	if err := in.merge(ctx, base, changes); err != nil {
		return err
	}
	if is := catalog.Build(in.all).Root(); is != root {
		return refused("its entries have the digest %s", bundle.Digest(is))
	}
	return errors.Join(in.rows.Flush(), in.bodies.Flush(), disk.Sync(rows), disk.Sync(bodies), syncDir(dir))
}

// merge goes through the rows of the base and the changes, both in the order of their keys.
func (in *intake) merge(ctx context.Context, base *Bundle, changes iter.Seq2[bundle.Change, error]) error {
	next, from := func() (row, error) { return row{}, io.EOF }, io.Reader(nil)
	if base != nil {
		next, from = base.each(), bufio.NewReaderSize(io.NewSectionReader(base.bodies, 0, 1<<62), readBuffer)
	}
	old := basis{next: next, bodies: from}
	if err := old.step(); err != nil {
		return err
	}
	for c, err := range changes {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := in.keep(&old, &c.Key); err != nil {
			return err
		}
		if old.more && old.row.Key == c.Key {
			if _, err := old.body(); err != nil {
				return err
			}
			if err := old.step(); err != nil {
				return err
			}
		}
		if c.Body == nil {
			continue
		}
		if err := in.add(c.Key, sha256.Sum256(c.Body), c.Body); err != nil {
			return err
		}
	}
	return in.keep(&old, nil)
}

// keep takes over the rows of the base before a key, and all of them when there is no key.
func (in *intake) keep(old *basis, before *catalog.Digest) error {
	for old.more && (before == nil || bytes.Compare(old.row.Key[:], before[:]) < 0) {
		body, err := old.body()
		if err != nil {
			return err
		}
		if err := in.add(old.row.Key, old.row.Digest, body); err != nil {
			return err
		}
		if err := old.step(); err != nil {
			return err
		}
	}
	return nil
}

func (in *intake) add(key, digest catalog.Digest, body []byte) error {
	switch {
	case len(in.all) == declare.BundleEntriesMax:
		return refused("it has more than %d entries", declare.BundleEntriesMax)
	case in.bytes+int64(len(body)) > declare.BundleBytesMax:
		return refused("its entries have more than %d bytes", declare.BundleBytesMax)
	}
	r := row{Row: catalog.Row{Key: key, Digest: digest}, at: uint32(in.bytes), length: uint32(len(body))}
	in.all = append(in.all, r.Row)
	in.bytes += int64(len(body))
	if _, err := in.rows.Write(r.append(make([]byte, 0, rowBytes))); err != nil {
		return err
	}
	_, err := in.bodies.Write(body)
	return err
}

// basis is the bundle that a difference builds upon, from one end to the other.
type basis struct {
	next   func() (row, error)
	bodies io.Reader
	row    row
	more   bool
	buf    []byte
}

// step goes on to the next row. The body of the one before must have been read.
func (b *basis) step() error {
	r, err := b.next()
	if b.more = err == nil; !b.more && !errors.Is(err, io.EOF) {
		return err
	}
	b.row = r
	return nil
}

// body reads the body of the row. What the disk has lost is refused: the digest would be that of something else.
func (b *basis) body() ([]byte, error) {
	if n := int(b.row.length); cap(b.buf) < n {
		b.buf = make([]byte, n)
	}
	b.buf = b.buf[:b.row.length]
	if _, err := io.ReadFull(b.bodies, b.buf); err != nil {
		return nil, err
	}
	if sha256.Sum256(b.buf) != b.row.Digest {
		return nil, errors.New("a body of the bundle that it builds upon has changed on the disk")
	}
	return b.buf, nil
}
