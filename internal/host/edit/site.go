package edit

import (
	"slices"
	"sync"

	"tako.dev/tako/internal/disk"
)

const (
	// earlierMax bounds what a site remembers: a plan waits for a few batches of its own lane at most.
	earlierMax = 64
)

// site is a file that is written here.
type site struct {
	mu      sync.Mutex       // held while the file is written; guards the rest
	last    disk.Signature   // what our last write has made
	earlier []disk.Signature // what our writes, one after the other and with nobody else's between, have made it of
}

func (t *Type) site(path string) *site {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sites[path]
	if s == nil {
		s = &site{}
		t.sites[path] = s
	}
	return s
}

// led reports whether nothing but our own writes led from one signature to another.
func (s *site) led(from, to disk.Signature) bool {
	return to.Exists() && to == s.last && slices.Contains(s.earlier, from)
}

// wrote notes a write.
func (s *site) wrote(before, after disk.Signature) {
	if before != s.last {
		s.earlier = nil
	}
	if len(s.earlier) == earlierMax {
		s.earlier = slices.Delete(s.earlier, 0, 1)
	}
	s.earlier, s.last = append(s.earlier, before), after
}
