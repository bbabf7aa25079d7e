package core

import "container/list"

// Shelf says what is kept of a bounded number of bytes: what was wanted last. It is not safe for concurrent use. Use NewShelf.
type Shelf struct {
	most, used int64
	items      map[string]*list.Element // of *item
	order      list.List                // what was wanted last comes first
}

type item struct {
	name string
	size int64
}

// NewShelf makes an empty shelf for so many bytes.
func NewShelf(most int64) *Shelf { return &Shelf{most: most, items: map[string]*list.Element{}} }

// Used is how many bytes are kept.
func (s *Shelf) Used() int64 { return s.used }

// Put notes that something is kept, or has another size, as what was wanted last, and returns what is to be let go.
func (s *Shelf) Put(name string, size int64) (drop []string) {
	if e := s.items[name]; e != nil {
		i := e.Value.(*item)
		s.used += size - i.size
		i.size = size
		s.order.MoveToFront(e)
	} else {
		s.items[name] = s.order.PushFront(&item{name: name, size: size})
		s.used += size
	}
	return s.trim()
}

// Want notes that something is wanted; false when it is not kept.
func (s *Shelf) Want(name string) bool {
	e := s.items[name]
	if e == nil {
		return false
	}
	s.order.MoveToFront(e)
	return true
}

// Drop notes that something is not there any more.
func (s *Shelf) Drop(name string) {
	if e := s.items[name]; e != nil {
		s.used -= s.order.Remove(e).(*item).size
		delete(s.items, name)
	}
}

// trim lets go what was not wanted for the longest time, until the rest fits. What was wanted last stays, however large it is: whoever has
// brought it wants to give it out.
func (s *Shelf) trim() (drop []string) {
	for s.used > s.most && s.order.Len() > 1 {
		last := s.order.Back().Value.(*item).name
		drop = append(drop, last)
		s.Drop(last)
	}
	return drop
}
