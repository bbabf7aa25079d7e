package catalog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// rowsHeader begins a layer as a file: then the number of rows in four bytes, the highest first, and each row in the order of the keys:
// key, length of the body in four bytes, body. Nothing follows.
const rowsHeader = "tako layer rows 1\n"

// orderHeader begins an order as a file: then the length of the signed statement in four bytes, the statement, and its layer.
const orderHeader = "tako order 1\n"

// WriteRows writes a layer of so many rows, in the order of their keys. The errors are those of w, and InternalFault.
func WriteRows(w io.Writer, count int, rows iter.Seq2[Digest, []byte]) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(rowsHeader) // errors of a bufio.Writer stay until Flush
	_, _ = out.Write(binary.BigEndian.AppendUint32(nil, uint32(count)))
	for key, body := range rows {
		_, _ = out.Write(binary.BigEndian.AppendUint32(key[:], uint32(len(body))))
		_, _ = out.Write(body)
		count--
	}
	if count != 0 {
		return &reason.Error{Code: reason.InternalFault, Doing: "write a layer", Cause: fmt.Errorf("it has %d rows less than was said", count)}
	}
	return out.Flush()
}

// RowsOf are the rows of items in the order of their keys.
func RowsOf(items []Item) iter.Seq2[Digest, []byte] {
	bodies := make(map[Digest][]byte, len(items))
	for i := range items {
		bodies[items[i].Row().Digest] = items[i].Body
	}
	return func(yield func(Digest, []byte) bool) {
		for row := range TrieOf(items).From(Digest{}) {
			if !yield(row.Key, bodies[row.Digest]) {
				return
			}
		}
	}
}

// ReadRows reads what WriteRows wrote, and hands each row to take, which may keep the body. Whether it is the layer that somebody meant is
// told by the root of its rows. The errors are StateCorrupt, that of take, and those of the reader.
func ReadRows(r io.Reader, take func(key Digest, body []byte) error) error {
	err := readRows(bufio.NewReader(r), take)
	if e := new(rowsError); errors.As(err, &e) {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read the rows of a layer", Cause: e.cause}
	}
	return err
}

// rowsError is what is wrong with the bytes, and not with who reads or takes them.
type rowsError struct{ cause error }

func (e *rowsError) Error() string { return e.cause.Error() }

func badRows(format string, args ...any) error { return &rowsError{fmt.Errorf(format, args...)} }

// cutOff makes the end of a file in the middle of it what it is.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badRows("it is cut off")
	}
	return err
}

func readRows(r *bufio.Reader, take func(Digest, []byte) error) error {
	count, err := readStart(r, rowsHeader)
	if err != nil {
		return err
	}
	if count > EntriesMax {
		return badRows("it says that it has %d rows", count)
	}
	var last Digest
	for i := range count {
		var head [sha256.Size + 4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return cutOff(err)
		}
		key, length := Digest(head[:sha256.Size]), binary.BigEndian.Uint32(head[sha256.Size:])
		switch {
		case length == 0 || length > declare.BodyBytesMax:
			return badRows("a body in it has %d bytes", length)
		case i > 0 && bytes.Compare(last[:], key[:]) >= 0:
			return badRows("its rows are not in order")
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(r, body); err != nil {
			return cutOff(err)
		}
		if err := take(key, body); err != nil {
			return err
		}
		last = key
	}
	switch _, err := r.ReadByte(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return badRows("something follows its last row")
}

// readStart reads a header and the number behind it.
func readStart(r *bufio.Reader, header string) (uint32, error) {
	var head [len(rowsHeader) + 4]byte
	start := head[:len(header)+4]
	if _, err := io.ReadFull(r, start); err != nil {
		return 0, cutOff(err)
	}
	if string(start[:len(header)]) != header {
		return 0, badRows("it does not begin as such a file does")
	}
	return binary.BigEndian.Uint32(start[len(header):]), nil
}

// ReadTrie reads the rows of a layer, and returns their trie and how many bytes their bodies have. The errors are those of ReadRows.
func ReadTrie(r io.Reader) (t Trie, size uint64, err error) {
	var rows []Row
	err = ReadRows(r, func(key Digest, body []byte) error {
		rows = append(rows, Row{Key: key, Digest: sha256.Sum256(body)})
		size += uint64(len(body))
		return nil
	})
	if err != nil {
		return Trie{}, 0, err
	}
	return Build(rows), size, nil
}

// WriteOrder writes an order: a signed statement and the layer that it is about.
func WriteOrder(w io.Writer, statement []byte, items []Item) error {
	head := binary.BigEndian.AppendUint32([]byte(orderHeader), uint32(len(statement)))
	if _, err := w.Write(append(head, statement...)); err != nil {
		return err
	}
	return WriteRows(w, len(items), RowsOf(items))
}

// ReadOrder reads the beginning of an order: the signed statement, which is not to be believed yet. What follows in layer is for ReadRows. The errors are
// StateCorrupt, and those of the reader.
func ReadOrder(r io.Reader) (statement []byte, layer io.Reader, err error) {
	in := bufio.NewReader(r)
	if statement, err = readOrder(in); err != nil {
		if e := new(rowsError); errors.As(err, &e) {
			err = &reason.Error{Code: reason.StateCorrupt, Doing: "read an order", Cause: e.cause}
		}
		return nil, nil, err
	}
	return statement, in, nil
}

func readOrder(in *bufio.Reader) ([]byte, error) {
	length, err := readStart(in, orderHeader)
	if err != nil {
		return nil, err
	}
	if length == 0 || length > StatementBytesMax {
		return nil, badRows("its statement has %d bytes", length)
	}
	statement := make([]byte, length)
	if _, err := io.ReadFull(in, statement); err != nil {
		return nil, cutOff(err)
	}
	return statement, nil
}
