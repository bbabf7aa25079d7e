package bundles

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// What is read at once of the two files, once it is seen that one row is asked for after the other.
const (
	rowsAhead   = 64 << 10
	bodiesAhead = 256 << 10
)

// Reader is Body for one who asks for many bodies in the order of their keys, as a host does that gets all of them: that is the order in which
// they stand in the files, so they are read in large pieces, and not each by itself. It is not for several goroutines.
func (b *Bundle) Reader() func(catalog.Digest) ([]byte, bool) {
	r := &reader{bundle: b, rows: window{file: b.rows, ahead: rowsAhead}, bodies: window{file: b.bodies, ahead: bodiesAhead}}
	return r.body
}

type reader struct {
	bundle       *Bundle
	next         int  // the row after the last one that was asked for
	steady       bool // that one was the one after the one before
	rows, bodies window
}

func (r *reader) body(digest catalog.Digest) ([]byte, bool) {
	if r.steady {
		if body, found := r.following(digest); found {
			r.next++
			return body, true
		}
	}
	body, number, found := r.bundle.find(digest)
	if found {
		r.steady, r.next = number == r.next, number+1
	}
	return body, found
}

// following is the body of the next row, if it has that digest.
func (r *reader) following(digest catalog.Digest) ([]byte, bool) {
	raw, there := r.rows.read(placeOf(r.next), rowBytes)
	if !there {
		return nil, false
	}
	is := parseRow(raw)
	if is.Digest != digest || is.length > declare.BodyBytesMax {
		return nil, false
	}
	body, there := r.bodies.read(int64(is.at), int(is.length))
	return body, there && sha256.Sum256(body) == digest
}

// window is a piece of a file. What was read stays as it is when it moves on: bodies are handed out of it.
type window struct {
	file  *os.File
	ahead int
	at    int64
	data  []byte
}

// read is a part of the file; false where that cannot be read.
func (w *window) read(at int64, length int) ([]byte, bool) {
	if from := at - w.at; from >= 0 && from+int64(length) <= int64(len(w.data)) {
		return w.data[from : from+int64(length) : from+int64(length)], true
	}
	data := make([]byte, max(w.ahead, length))
	n, err := w.file.ReadAt(data, at)
	if n < length || err != nil && !errors.Is(err, io.EOF) {
		return nil, false
	}
	w.at, w.data = at, data[:n]
	return data[:length:length], true
}
