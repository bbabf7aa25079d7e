package snapshots

import (
	"cmp"
	"container/list"
	"errors"
	"iter"
	"log/slog"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

const (
	// bytesMax is ours: room for some twenty layers of a million short entries.
	bytesMax = 1 << 30
	// layersMax bounds the files that are open.
	layersMax = 64
	// fileName is that of the file of a layer; the star is what makes it another one than that of the same layer before.
	fileName = "layer-*"
)

// Options are what a Store needs beside its directory.
type Options struct {
	Bytes int64 // that all files together may have; default 1 GiB
	// Room says whether so many bytes more may be written, before they are. Where they may not, all that is kept is let go. Default: always.
	Room    func(bytes int64) error
	Metrics prometheus.Registerer // default: nowhere
	Log     *slog.Logger          // default: nowhere
}

// Part is one part of a snapshot.
type Part struct {
	Frame []byte         // as it goes over the wire
	Last  catalog.Digest // key of its last row
	Next  catalog.Digest // key of the first row behind it
	End   bool           // there is none
}

// Make makes the part that begins with the first row at a key, or behind it. Nobody changes the frame.
type Make func(from catalog.Digest) (Part, error)

// Store is what one server keeps. Use New; a nil Store keeps nothing.
type Store struct {
	dir     string
	opts    Options
	metrics *metrics

	mu     sync.Mutex // guards what follows, and bytes of each layer
	roots  map[catalog.Digest]*list.Element
	order  list.List // of *layer, the one that was asked for last first
	used   int64
	closed bool
}

// New makes a directory, and removes what another process has left there.
func New(dir string, o Options) (*Store, error) {
	o.Bytes = cmp.Or(o.Bytes, bytesMax)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Room == nil {
		o.Room = func(int64) error { return nil }
	}
	s := &Store{dir: dir, opts: o, metrics: newMetrics(), roots: map[catalog.Digest]*list.Element{}}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return nil, &reason.Error{Code: reason.StateUnwritable, Doing: "make directory " + dir, Cause: err}
	}
	if o.Metrics != nil {
		if err := s.metrics.register(o.Metrics); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close lets everything go. Whoever still wants parts makes them. The error is StateUnwritable.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.shrink(0, 0)
	if err := os.RemoveAll(s.dir); err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove directory " + s.dir, Cause: err}
	}
	return nil
}

// Frames are the parts of a layer from a key on: those that are kept, and those that are made by whoever ranges over them. A frame is
// good until the next one. An error is that of making, and the last that it yields.
func (s *Store) Frames(root, from catalog.Digest, maker Make) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var room []byte // for what is read
		for {
			p, err := s.part(root, from, maker, &room)
			if !yield(p.Frame, err) || err != nil || p.End {
				return
			}
			from = p.Next
		}
	}
}

// part is the part at a key.
func (s *Store) part(root, from catalog.Digest, maker Make, room *[]byte) (Part, error) {
	if s == nil {
		return maker(from)
	}
	l := s.find(root)
	if l == nil {
		return s.first(root, from, maker)
	}
	p, at, err := l.read(from, room)
	if at == behind {
		l.making.Lock()
		defer l.making.Unlock()
		p, at, err = l.read(from, room) // somebody may have made it meanwhile
	}
	if err != nil {
		s.drop(l, err)
	}
	if at == here {
		s.metrics.parts.WithLabelValues(fromKept).Inc()
		return p, nil
	}
	p, err = s.make(from, maker)
	if err == nil && at == behind {
		s.add(l, &p)
	}
	return p, err
}

func (s *Store) make(from catalog.Digest, maker Make) (Part, error) {
	p, err := maker(from)
	if err == nil {
		s.metrics.parts.WithLabelValues(fromMade).Inc()
	}
	return p, err
}

// first makes a part of a layer of which nothing is kept, and keeps it where it is the first one of several.
func (s *Store) first(root, from catalog.Digest, maker Make) (Part, error) {
	p, err := s.make(from, maker)
	if err != nil || p.End || from != (catalog.Digest{}) {
		return p, err
	}
	l := &layer{root: root}
	l.making.Lock() // before anybody else knows of it
	defer l.making.Unlock()
	if !s.enter(l) {
		return p, nil // somebody else was first
	}
	if err := l.open(s.dir); err != nil {
		s.drop(l, err)
		return p, nil
	}
	s.add(l, &p)
	return p, nil
}

// find is what is kept of a layer; nil when there is nothing.
func (s *Store) find(root catalog.Digest) *layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.roots[root]
	if e == nil {
		return nil
	}
	s.order.MoveToFront(e)
	return e.Value.(*layer)
}

// enter reports whether a layer is kept from now on.
func (s *Store) enter(l *layer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.roots[l.root] != nil {
		return false
	}
	s.roots[l.root] = s.order.PushFront(l)
	return true
}

// add keeps the next part of a layer. The caller has the lock to make it.
func (s *Store) add(l *layer, p *Part) {
	size := int64(len(p.Frame))
	if err := s.opts.Room(size); err != nil {
		s.drop(l, err)
		s.shrink(0, 0)
		return
	}
	if err := l.append(p); err != nil {
		s.drop(l, err)
		return
	}
	s.mu.Lock()
	if s.keepsLocked(l) {
		l.bytes += size
		s.used += size
	}
	s.mu.Unlock()
	s.shrink(layersMax, s.opts.Bytes)
}

func (s *Store) keepsLocked(l *layer) bool {
	e := s.roots[l.root]
	return e != nil && e.Value == any(l)
}

// shrink lets go what was not asked for longest, until there are at most so many layers and bytes.
func (s *Store) shrink(layers int, bytes int64) {
	var over []*layer
	s.mu.Lock()
	for s.order.Len() > layers || s.used > bytes {
		l := s.order.Back().Value.(*layer)
		s.forgetLocked(l)
		over = append(over, l)
	}
	s.metrics.bytes.Set(float64(s.used))
	s.mu.Unlock()
	for _, l := range over {
		l.letGo()
	}
}

func (s *Store) forgetLocked(l *layer) {
	s.order.Remove(s.roots[l.root])
	delete(s.roots, l.root)
	s.used -= l.bytes
}

// drop lets a layer go of which something cannot be read or written. Whoever wants all of it next has it kept anew.
func (s *Store) drop(l *layer, why error) {
	s.mu.Lock()
	had := s.keepsLocked(l)
	if had {
		s.forgetLocked(l)
	}
	s.mu.Unlock()
	if had {
		s.opts.Log.Warn("a layer is not kept as it goes to hosts, and is made for each", "root", l.root.String(), "err", why)
	}
	l.letGo()
}
