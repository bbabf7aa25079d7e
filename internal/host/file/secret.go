package file

import (
	"path"
	"strings"
	"sync"

	"tako.dev/tako/internal/disk"
)

// stemWhole is what a temporary's name has of the file's name at least where it has not all of it: see disk.TempName.
const stemWhole = 200

// secretPaths are the paths where a secret stands, or may still stand under a declaration that has come since. No old content of
// them is kept: that may be the secret's value before, and on this host its only copy in clear is the file itself.
type secretPaths struct {
	mu    sync.Mutex // guards paths
	paths map[string]bool
}

func (s *secretPaths) add(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[string]bool{}
	}
	s.paths[p] = true
}

// drop notes that a path holds something else now.
func (s *secretPaths) drop(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.paths, p)
}

func (s *secretPaths) has(p string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[p]
}

// hasTemporary reports whether a temporary file may be one of a secret: its name tells of which file it is, cut where that is long.
func (s *secretPaths) hasTemporary(temp string) bool {
	dir, name := path.Split(temp)
	stem := strings.TrimPrefix(name, disk.TempPrefix)
	if at := strings.LastIndexByte(stem, '.'); at >= 0 {
		stem = stem[:at]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.paths {
		at, of := path.Split(p)
		if at == dir && (of == stem || len(stem) >= stemWhole && strings.HasPrefix(of, stem)) {
			return true
		}
	}
	return false
}
