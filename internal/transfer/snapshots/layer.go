package snapshots

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// castagnoli is the polynomial that processors compute.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// layer is what is kept of one: its parts from the first one on.
type layer struct {
	root  catalog.Digest
	bytes int64 // of the parts; guarded by Store.mu

	// making is held by who makes the next part. Whoever holds it may take mu, and Store.mu.
	making sync.Mutex

	mu    sync.Mutex // guards what follows
	file  *os.File   // nil: it is not made yet, or was let go
	parts []place
	size  int64          // of the file
	next  catalog.Digest // key of the first row behind them
	ended bool           // there is none
}

// place is where a part is.
type place struct {
	first, last catalog.Digest // the first row is at this key or behind it, the last one at it
	at          int64
	length      int
	sum         uint32
}

// standing is how a key stands to what is kept.
type standing uint8

const (
	elsewhere standing = iota // within a part, or far behind the last one
	here                      // a part begins there
	behind                    // the next part begins there
)

// open makes the file.
func (l *layer) open(dir string) error {
	f, err := os.CreateTemp(dir, fileName)
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "make a file in " + dir, Cause: err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file = f
	return nil
}

// append adds the part that follows. To a layer that was let go nothing is added. The error is StateUnwritable.
func (l *layer) append(p *Part) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	if _, err := l.file.WriteAt(p.Frame, l.size); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "write " + l.file.Name(), Cause: err}
	}
	l.parts = append(l.parts, place{first: l.next, last: p.Last, at: l.size, length: len(p.Frame), sum: crc32.Checksum(p.Frame, castagnoli)})
	l.size += int64(len(p.Frame))
	l.next, l.ended = p.Next, p.End
	return nil
}

// read reads the part that begins with the first row at a key, or behind it; its frame is in room. The error is StateCorrupt or InputOutput, and
// then the part is elsewhere.
func (l *layer) read(from catalog.Digest, room *[]byte) (Part, standing, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Of all keys between the last row of a part and the first one of the next, the next part is the one that begins there.
	n, _ := slices.BinarySearchFunc(l.parts, from, func(p place, from catalog.Digest) int { return bytes.Compare(p.first[:], from[:]) })
	switch {
	case l.file == nil || n > 0 && bytes.Compare(from[:], l.parts[n-1].last[:]) <= 0:
		return Part{}, elsewhere, nil
	case n == len(l.parts) && (l.ended || bytes.Compare(from[:], l.next[:]) > 0):
		return Part{}, elsewhere, nil
	case n == len(l.parts):
		return Part{}, behind, nil
	}
	at := &l.parts[n]
	p := Part{Last: at.last, Next: l.next, End: l.ended && n+1 == len(l.parts)}
	if n+1 < len(l.parts) {
		p.Next = l.parts[n+1].first
	}
	*room = slices.Grow((*room)[:0], at.length)[:at.length]
	p.Frame = *room
	fault := func(code reason.Code, err error) (Part, standing, error) {
		return Part{}, elsewhere, &reason.Error{Code: code, Doing: "read " + l.file.Name(), Cause: err, Hint: "the disk may be failing"}
	}
	if _, err := l.file.ReadAt(p.Frame, at.at); errors.Is(err, io.EOF) {
		return fault(reason.StateCorrupt, errors.New("it is shorter than what was written"))
	} else if err != nil {
		return fault(reason.InputOutput, err)
	}
	if crc32.Checksum(p.Frame, castagnoli) != at.sum {
		return fault(reason.StateCorrupt, errors.New("what was written there is something else now"))
	}
	return p, here, nil
}

// letGo closes the file and removes it. What could go wrong with that is of no use to anybody: nothing is read of it any more, and the next
// process removes what is left.
func (l *layer) letGo() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	_ = l.file.Close()
	_ = os.Remove(l.file.Name())
	l.file, l.parts = nil, nil
}
