package bundles

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// The files of a bundle.
const (
	rowsName   = "rows"
	bodiesName = "bodies"
	// rowsMagic begins the file of rows; the number is that of its form.
	rowsMagic = "tako bundle rows 1\n"
	// rowBytes is a key, a digest, and place and length of the body in four bytes each, the highest first.
	rowBytes = 2*sha256.Size + 8
	// readBuffer is for what is read or written from one end to the other.
	readBuffer = 1 << 20
)

// row is one entry as the file of rows has it.
type row struct {
	catalog.Row
	at, length uint32
}

func (r *row) append(b []byte) []byte {
	b = append(append(b, r.Key[:]...), r.Digest[:]...)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, r.at), r.length)
}

func parseRow(b []byte) row {
	const digests = 2 * sha256.Size
	return row{Row: catalog.Row{Key: catalog.Digest(b[:sha256.Size]), Digest: catalog.Digest(b[sha256.Size:digests])},
		at: binary.BigEndian.Uint32(b[digests:]), length: binary.BigEndian.Uint32(b[digests+4:])}
}

// Bundle is one that is here. It does not change. Its files are closed when nobody uses it any more, which only the garbage collector
// knows: layers hold it for as long as hosts may ask for them.
type Bundle struct {
	Bytes int64 // of all bodies

	rows, bodies *os.File
	// slots find the row of a digest: at the place that the digest's first bytes say, or after it, stands the row's number and one; 0 is
	// free. There are half as many again as rows at the least, so that a look-up reads one row or two.
	slots []uint32
}

// open reads a bundle and its trie, and verifies all but the bodies. The errors are BundleMissing, StateCorrupt and InputOutput.
func open(dir string, root catalog.Digest) (*Bundle, catalog.Trie, error) {
	b, err := openFiles(dir)
	if err != nil {
		return nil, catalog.Trie{}, unreadable(root, err)
	}
	trie, err := b.read(root)
	if err != nil {
		_ = b.close() // it was only read
		return nil, catalog.Trie{}, unreadable(root, err)
	}
	return b, trie, nil
}

func unreadable(root catalog.Digest, err error) error {
	var system *fs.PathError
	doing := "read bundle " + bundle.Digest(root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Missing(root)
	case errors.As(err, &system):
		return &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	return &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: err, Hint: "remove its directory from the data directory of the server, and push it again"}
}

// Missing says that a bundle is not here.
func Missing(root catalog.Digest) *reason.Error {
	return &reason.Error{Code: reason.BundleMissing, Doing: "read bundle " + bundle.Digest(root), Hint: "put it there: tako bundle push DIR"}
}

func openFiles(dir string) (*Bundle, error) {
	b := &Bundle{}
	var err error
	if b.rows, err = os.Open(filepath.Join(dir, rowsName)); err != nil {
		return nil, err
	}
	if b.bodies, err = os.Open(filepath.Join(dir, bodiesName)); err != nil {
		return nil, errors.Join(err, b.rows.Close())
	}
	return b, nil
}

func (b *Bundle) close() error { return errors.Join(b.rows.Close(), b.bodies.Close()) }

// read makes the slots, and returns the trie.
func (b *Bundle) read(root catalog.Digest) (catalog.Trie, error) {
	st, err := b.bodies.Stat()
	if err != nil {
		return catalog.Trie{}, err
	}
	b.Bytes = st.Size()
	count, err := b.count()
	if err != nil {
		return catalog.Trie{}, err
	}
	size := 1
	for 2*size < 3*count {
		size *= 2
	}
	b.slots = make([]uint32, size)
	rows := make([]catalog.Row, 0, count)
	for next := b.each(); ; {
		r, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return catalog.Trie{}, err
		}
		rows = append(rows, r.Row)
		at := b.slot(&r.Digest)
		for b.slots[at] != 0 {
			at = (at + 1) & (size - 1)
		}
		b.slots[at] = uint32(len(rows))
	}
	trie := catalog.Build(rows)
	if trie.Root() != root {
		return catalog.Trie{}, errors.New("it is not what its name says")
	}
	return trie, nil
}

// slot is where to look for a digest first. The number of slots is a power of two.
func (b *Bundle) slot(d *catalog.Digest) int {
	return int(binary.BigEndian.Uint32(d[:])) & (len(b.slots) - 1)
}

// count is how many rows there are.
func (b *Bundle) count() (int, error) {
	st, err := b.rows.Stat()
	if err != nil {
		return 0, err
	}
	n := st.Size() - int64(len(rowsMagic))
	if n < 0 || n%rowBytes != 0 || n/rowBytes > declare.BundleEntriesMax {
		return 0, fmt.Errorf("%s has %d bytes, which are no rows", rowsName, st.Size())
	}
	return int(n / rowBytes), nil
}

// each returns what reads row after row, each verified against the one before and the bodies. Its error is io.EOF at the end.
func (b *Bundle) each() func() (row, error) {
	r := bufio.NewReaderSize(io.NewSectionReader(b.rows, 0, 1<<62), readBuffer)
	magic := make([]byte, len(rowsMagic))
	_, begun := io.ReadFull(r, magic)
	if begun == nil && string(magic) != rowsMagic {
		begun = fmt.Errorf("%s does not begin as it should", rowsName)
	}
	var last row
	any, end := false, int64(0)
	return func() (row, error) {
		if begun != nil {
			return row{}, begun
		}
		var raw [rowBytes]byte
		if _, err := io.ReadFull(r, raw[:]); err != nil {
			return row{}, err
		}
		is := parseRow(raw[:])
		if any && bytes.Compare(last.Key[:], is.Key[:]) >= 0 || int64(is.at) != end || is.length > declare.BodyBytesMax {
			return row{}, fmt.Errorf("%s has a row that belongs elsewhere", rowsName)
		}
		last, any, end = is, true, end+int64(is.length)
		return is, nil
	}
}

// Body is the body with that digest; false when it is none of this bundle, or the disk has lost it.
func (b *Bundle) Body(digest catalog.Digest) ([]byte, bool) {
	body, _, found := b.find(digest)
	return body, found
}

// find is Body, with the number of the row.
func (b *Bundle) find(digest catalog.Digest) (body []byte, number int, found bool) {
	for at := b.slot(&digest); b.slots[at] != 0; at = (at + 1) & (len(b.slots) - 1) {
		var raw [rowBytes]byte
		number := int(b.slots[at] - 1)
		if _, err := b.rows.ReadAt(raw[:], placeOf(number)); err != nil {
			return nil, 0, false
		}
		r := parseRow(raw[:])
		if r.Digest != digest || r.length > declare.BodyBytesMax {
			continue
		}
		body := make([]byte, r.length)
		if _, err := b.bodies.ReadAt(body, int64(r.at)); err != nil || sha256.Sum256(body) != digest {
			return nil, 0, false
		}
		return body, number, true
	}
	return nil, 0, false
}

// placeOf is where a row stands in its file.
func placeOf(number int) int64 { return int64(len(rowsMagic)) + int64(number)*rowBytes }
