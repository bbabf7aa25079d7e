package layerstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Options are what a Store needs beside its directory.
type Options struct {
	// ReadOnly leaves everything as it is: somebody else may be writing. What is damaged is an error then.
	ReadOnly bool
	// Room says whether so many bytes more may be written, before they are. Nil: always.
	Room func(bytes uint64) error
}

// Store is the layers of a directory. Use Open.
type Store struct {
	path string
	dir  *os.Root
	opts Options

	// work is held by who verifies, writes or removes: one at a time. Whoever holds it may take mu.
	work sync.Mutex
	mu   sync.Mutex // guards what follows, and the handles of all files

	files   map[catalog.Digest]*file  // whose heads were read
	layers  map[catalog.Digest]*layer // that were verified
	lost    map[catalog.Digest]bool   // that were found damaged, and whose files others build upon
	handles []*file                   // that are open
	turn    uint64
	found   []*reason.Error // damage that was not told of yet
}

// foundMax bounds the damage that nobody has asked for yet; the newest counts.
const foundMax = 20

// chainMax bounds the files that a layer is read of. Each difference is more than twice as large as the one after it, so this many come to
// more than any layer has.
const chainMax = 24

// Open opens the layers of a directory, which is there. What is no layer is removed, and told of by Found. The errors are those of the disk.
func Open(path string, o Options) (*Store, error) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, unwritable("open", path, err)
	}
	s := &Store{path: path, dir: dir, opts: o, files: map[catalog.Digest]*file{}, layers: map[catalog.Digest]*layer{}, lost: map[catalog.Digest]bool{}}
	if err := s.look(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// look reads the heads of all files: they say which of them others build upon.
func (s *Store) look() error {
	names, err := s.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		root, ok := catalog.ParseDigest(name)
		if !ok {
			if disk.IsTemporary(name) && !s.opts.ReadOnly { // of who was killed
				if err := s.remove(name); err != nil {
					return err
				}
			}
			continue
		}
		if _, err := s.file(root); err != nil && !isCorrupt(err) && !reason.Is(err, reason.StateNewer) && !reason.Is(err, reason.InputOutput) {
			return err // who needs what cannot be read finds out then
		}
	}
	return nil
}

// Close closes all files. No other method may follow.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for len(s.handles) > 0 {
		errs = append(errs, s.closeLocked(s.handles[0]))
	}
	return errors.Join(append(errs, s.dir.Close())...)
}

func (s *Store) closeLocked(f *file) error {
	if f.handle == nil {
		return nil
	}
	err := f.handle.Close()
	f.handle = nil
	s.handles = slices.DeleteFunc(s.handles, func(h *file) bool { return h == f })
	return err
}

// Found returns the damage that was found since it was called last, the oldest first.
func (s *Store) Found() []*reason.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.found
	s.found = nil
	return found
}

func (s *Store) tell(e *reason.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, e)
	if over := len(s.found) - foundMax; over > 0 {
		s.found = slices.Clone(s.found[over:])
	}
}

// Trie is the trie of a layer that is here, all of which was verified since the start; false when it is not. Its leaves are read when they
// are needed. A layer that is damaged is told of by Found and is not here, but its Remains may be. The errors are StateNewer, those of the
// disk, and in a Store that is ReadOnly StateCorrupt.
func (s *Store) Trie(root catalog.Digest) (catalog.Trie, bool, error) {
	l, err := s.layer(root)
	if l == nil {
		return catalog.Trie{}, false, err
	}
	return l.trie, true, nil
}

// Remains is what is left of a layer that was damaged: a layer of another root, which Put takes as a base.
func (s *Store) Remains(root catalog.Digest) (catalog.Trie, bool, error) {
	s.mu.Lock()
	var left *file
	for _, f := range s.files {
		if f.of == root {
			left = f
		}
	}
	s.mu.Unlock()
	if left == nil {
		return catalog.Trie{}, false, nil
	}
	return s.Trie(left.root)
}

// Body is what stands at a key of a layer; nil where nothing does, or where the layer is not here. The errors are those of Trie, and
// StateCorrupt.
func (s *Store) Body(root, key catalog.Digest) ([]byte, error) {
	l, err := s.layer(root)
	if l == nil {
		return nil, err
	}
	return l.body(key)
}

// Size is how many bytes the files take that a layer is read of; 0 where it is not here.
func (s *Store) Size(root catalog.Digest) (n uint64) {
	chain, err := s.chain(root)
	if err != nil {
		return 0 // whoever reads it says why
	}
	for _, f := range chain {
		n += uint64(f.length)
	}
	return n
}

// Trim removes the layers that keep does not want, but for what others build upon, and for the remains of what it wants and is not here.
func (s *Store) Trim(keep func(root catalog.Digest) bool) error {
	s.work.Lock()
	defer s.work.Unlock()
	names, err := s.names()
	if err != nil {
		return err
	}
	stays := s.needed(keep)
	for _, name := range names {
		root, ok := catalog.ParseDigest(name)
		if ok && (stays[root] || keep(root)) {
			continue
		}
		if ok {
			s.forget(root)
		}
		if err := s.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// needed are the files that layers are read of that are wanted.
func (s *Store) needed(keep func(root catalog.Digest) bool) map[catalog.Digest]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	stays := map[catalog.Digest]bool{}
	for root, f := range s.files {
		lost := f.of != catalog.Digest{} && (s.files[f.of] == nil || s.lost[f.of]) && keep(f.of)
		if !keep(root) && !lost {
			continue
		}
		for n := 0; f != nil && n < chainMax; n++ {
			stays[f.root] = true
			f = s.files[f.base]
		}
	}
	return stays
}

// file is the file of a root; nil where there is none. One that cannot be a layer is removed.
func (s *Store) file(root catalog.Digest) (*file, error) {
	s.mu.Lock()
	f := s.files[root]
	s.mu.Unlock()
	if f != nil {
		return f, nil
	}
	f = &file{head: head{root: root}}
	b := make([]byte, headBytes)
	n, err := s.read(f, b, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	h, bad := decodeHead(b[:n])
	switch {
	case errors.Is(bad, errNewer):
		err = bad
	case err != nil && n < headBytes && !isEnd(err):
	case bad != nil:
		err = bad
	case h.root != root:
		err = errors.New("it is of another layer than its name says")
	default:
		err = nil
	}
	if err != nil {
		s.mu.Lock()
		gone := s.closeLocked(f)
		s.mu.Unlock()
		if err = s.unreadable(root, err); isCorrupt(err) {
			return nil, s.giveUp(root, reason.Of(err))
		}
		return nil, errors.Join(err, gone)
	}
	s.mu.Lock()
	f.head, s.files[root] = h, f
	s.mu.Unlock()
	return f, nil
}

// giveUp removes a file that is damaged, and tells of it. Its layer is as if it had never been here. A file that others build upon stays:
// most of it is as it was.
func (s *Store) giveUp(root catalog.Digest, e *reason.Error) error {
	if s.opts.ReadOnly {
		return e
	}
	var err error
	if !s.setLost(root) {
		s.forget(root)
		err = s.remove(root.String())
	}
	s.tell(&reason.Error{Code: e.Code, Doing: e.Doing, Cause: errors.Join(e.Cause, err), Hint: hintDamage})
	return err
}

const hintDamage = "what is missing is fetched again; the disk may be failing"

// setLost notes that a layer is not here although its file is, if others build upon that.
func (s *Store) setLost(root catalog.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		if !f.whole() && f.base == root && s.files[root] != nil {
			s.lost[root] = true
			delete(s.layers, root)
			return true
		}
	}
	return false
}

// forget forgets the file of a root.
func (s *Store) forget(root catalog.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[root]; f != nil {
		_ = s.closeLocked(f) // it was only read
		s.doubtLocked(f)
	}
	delete(s.files, root)
	delete(s.lost, root)
}

// doubt makes the layers unverified that are read of a file.
func (s *Store) doubt(f *file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubtLocked(f)
}

func (s *Store) doubtLocked(f *file) {
	for root, l := range s.layers {
		if slices.Contains(l.chain, f) {
			delete(s.layers, root)
		}
	}
}

func (s *Store) names() ([]string, error) {
	f, err := s.dir.Open(".")
	if err != nil {
		return nil, unwritable("open", s.path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: "list " + disk.Shown(s.path), Cause: err}
	}
	slices.Sort(names)
	return names, nil
}

// remove removes a file, if it is there.
func (s *Store) remove(name string) error {
	if err := s.dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return unwritable("remove", filepath.Join(s.path, name), err)
	}
	return nil
}

func isCorrupt(err error) bool { return reason.Is(err, reason.StateCorrupt) }

// unreadable is the error of reading a file.
func (s *Store) unreadable(root catalog.Digest, err error) error {
	var have *reason.Error
	if errors.As(err, &have) {
		return err
	}
	e := &reason.Error{Code: reason.StateCorrupt, Doing: "read " + disk.Shown(filepath.Join(s.path, root.String())), Cause: err}
	var system *fs.PathError
	switch {
	case errors.Is(err, errNewer):
		e.Code, e.Hint = reason.StateNewer, "run the newer version again"
	case errors.As(err, &system):
		e.Code = reason.InputOutput
	}
	return e
}

// unwritable is the error of writing; nil stays nil, and an error with a code stays what it is.
func unwritable(what, path string, err error) error {
	var have *reason.Error
	if err == nil || errors.As(err, &have) {
		return err
	}
	return &reason.Error{Code: reason.StateUnwritable, Doing: what + " " + disk.Shown(path), Cause: err,
		Hint: "it needs to be writable, with room for a copy of what is in it"}
}
