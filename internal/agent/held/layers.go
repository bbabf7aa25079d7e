package held

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
	"slices"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// rowHead is a key and the length of a body in four bytes, the highest first.
	rowHead = sha256.Size + 4
	// layersOpen is how many layers are known row by row at once: the base and the target of a fetch, and one that is read meanwhile.
	layersOpen = 3
	// readBuffer is what reading a layer costs besides its largest body.
	readBuffer = 64 << 10
)

// layer is a layer whose file was read and verified.
type layer struct {
	root catalog.Digest
	trie catalog.Trie
	file *os.File
	rows []place // sorted by key
}

// place is where a body stands in the file of its layer.
type place struct {
	key, digest catalog.Digest
	at          int64
	length      uint32
}

// layerHeader is what a file of so many rows begins with.
func layerHeader(count int) []byte {
	return binary.BigEndian.AppendUint32(header("layer"), uint32(count))
}

// Trie is part of client.Layers.
func (s *Store) Trie(root catalog.Digest) (catalog.Trie, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.layerLocked(root)
	if l == nil {
		return catalog.Trie{}, false, err
	}
	return l.trie, true, nil
}

// Body is part of client.Layers.
func (s *Store) Body(root, key catalog.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.layerLocked(root)
	if l == nil {
		return nil, err
	}
	i, found := placeOf(l.rows, key)
	if !found {
		return nil, nil
	}
	return s.bodyLocked(l, l.rows[i])
}

func placeOf(rows []place, key catalog.Digest) (at int, found bool) {
	return slices.BinarySearchFunc(rows, key, func(p place, key catalog.Digest) int { return bytes.Compare(p.key[:], key[:]) })
}

// bodyLocked reads one body again. One that has changed since the layer was verified takes the layer with it; then it is nil.
func (s *Store) bodyLocked(l *layer, p place) ([]byte, error) {
	body := make([]byte, p.length)
	_, err := l.file.ReadAt(body, p.at)
	if err == nil && sha256.Sum256(body) == p.digest {
		return body, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("a body in it has changed")
	}
	name := l.root.String()
	s.forgetLocked(name)
	return nil, s.damagedLocked(s.layers, name, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(filepath.Join(s.layers.path, name)), Cause: err})
}

// Rows calls take with each row of a layer in the order of the keys; it may keep the bodies. The error is that of take, or StateCorrupt
// where the layer is not here, or not any more.
func (s *Store) Rows(root catalog.Digest, take func(key catalog.Digest, body []byte) error) error {
	trie, found, err := s.Trie(root)
	if err != nil {
		return err
	}
	if found {
		for row := range trie.From(catalog.Digest{}) {
			body, err := s.Body(root, row.Key)
			if err != nil {
				return err
			}
			if body == nil {
				found = false
				break
			}
			if err := take(row.Key, body); err != nil {
				return err
			}
		}
	}
	if !found {
		return &reason.Error{Code: reason.StateCorrupt, Doing: "read layer " + root.String(), Cause: errors.New("it is not here"),
			Hint: "it is fetched again when a server can be reached"}
	}
	return nil
}

// layerLocked returns a layer, verified; nil where there is none that is what its name says.
func (s *Store) layerLocked(root catalog.Digest) (*layer, error) {
	if i := slices.IndexFunc(s.open, func(l *layer) bool { return l.root == root }); i >= 0 {
		l := s.open[i]
		s.open = append(slices.Delete(s.open, i, i+1), l)
		return l, nil
	}
	name := root.String()
	path := filepath.Join(s.layers.path, name)
	f, err := s.layers.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	l := &layer{root: root, file: f}
	if err := l.read(); err != nil {
		f.Close()
		if err = unreadable(path, err); !reason.Is(err, reason.StateCorrupt) {
			return nil, err
		}
		return nil, s.damagedLocked(s.layers, name, err)
	}
	s.open = append(s.open, l)
	if len(s.open) > layersOpen {
		s.open[0].file.Close() // it was only read
		s.open = slices.Delete(s.open, 0, 1)
	}
	return l, nil
}

// read reads the whole file, and verifies it.
func (l *layer) read() error {
	r := bufio.NewReaderSize(l.file, readBuffer)
	line, err := r.ReadSlice('\n')
	if err != nil || len(line) > headerMax {
		return errors.Join(errors.New("it does not begin with the line of such a file"), systemError(err))
	}
	if err := checkHeader(string(line[:len(line)-1]), "layer"); err != nil {
		return err
	}
	at := int64(len(line))
	var count [4]byte
	if _, err := io.ReadFull(r, count[:]); err != nil {
		return err
	}
	at += int64(len(count))
	n := binary.BigEndian.Uint32(count[:])
	if n > declare.ResourcesMax {
		return fmt.Errorf("it says that it has %d rows", n)
	}
	var buf []byte
	for range n {
		var head [rowHead]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		p := place{key: catalog.Digest(head[:sha256.Size]), at: at + rowHead, length: binary.BigEndian.Uint32(head[sha256.Size:])}
		if p.length > declare.BodyBytesMax {
			return fmt.Errorf("a body in it has %d bytes", p.length)
		}
		buf = slices.Grow(buf[:0], int(p.length))[:p.length]
		if _, err := io.ReadFull(r, buf); err != nil {
			return err
		}
		p.digest = sha256.Sum256(buf)
		if len(l.rows) > 0 && bytes.Compare(l.rows[len(l.rows)-1].key[:], p.key[:]) >= 0 {
			return errors.New("its rows are not in order")
		}
		l.rows = append(l.rows, p)
		at = p.at + int64(p.length)
	}
	rows := make([]catalog.Row, len(l.rows))
	for i, p := range l.rows {
		rows[i] = catalog.Row{Key: p.key, Digest: p.digest}
	}
	if l.trie = catalog.Build(rows); l.trie.Root() != l.root {
		return errors.New("it is not what its name says")
	}
	return nil
}

// systemError is an error of the system; what the end of a file makes of reading is not.
func systemError(err error) error {
	var system *fs.PathError
	if errors.As(err, &system) {
		return err
	}
	return nil
}

// forgetLocked closes a layer, if it is open.
func (s *Store) forgetLocked(name string) {
	s.open = slices.DeleteFunc(s.open, func(l *layer) bool {
		if l.root.String() != name {
			return false
		}
		l.file.Close() // it was only read
		return true
	})
}

func (s *Store) closeLayersLocked() error {
	var errs []error
	for _, l := range s.open {
		errs = append(errs, l.file.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}
