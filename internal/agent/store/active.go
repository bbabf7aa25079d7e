package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Entry is one resource of the active state.
type Entry struct {
	Claim    declare.Claim
	Title    string
	Config   string // who declares it
	Place    string // where, for people
	Digest   converge.Digest
	OnRemove declare.OnRemove
	After    []declare.Claim // what it comes after, so that removals can go the other way round
	Body     []byte          // the encoded declaration; the store gives it no meaning
}

// Ref is an Entry without its body, which Store.Body reads. It is small: there may be 100,000.
type Ref struct {
	Claim    declare.Claim    `cbor:"1,keyasint"`
	Title    string           `cbor:"2,keyasint,omitempty"`
	Config   string           `cbor:"3,keyasint,omitempty"`
	Place    string           `cbor:"4,keyasint,omitempty"`
	Digest   converge.Digest  `cbor:"5,keyasint"`
	OnRemove declare.OnRemove `cbor:"6,keyasint,omitempty"`
	After    []declare.Claim  `cbor:"7,keyasint,omitempty"`

	offset     int64  // of the body's frame
	length     uint32 // of the body's frame
	generation uint32 // of the active state that it belongs to
}

// activeHead is the first frame of the file. For each entry a frame with its Ref and one with its body follow.
type activeHead struct {
	Root  converge.Digest `cbor:"1,keyasint"`
	Count int             `cbor:"2,keyasint"`
}

// activeState is the state that is enforced, and the file of the one before it.
type activeState struct {
	mu         sync.RWMutex // guards what follows; the slice of refs is replaced, never changed
	root       converge.Digest
	refs       []Ref
	file       *os.File // nil where nothing was ever active
	info       fs.FileInfo
	before     *os.File
	generation uint32
}

func (a *activeState) list() []Ref {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.refs
}

// swap makes a state the present one.
func (a *activeState) swap(root converge.Digest, refs []Ref, file *os.File, info fs.FileInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.before
	a.root, a.refs, a.file, a.info, a.before = root, refs, file, info, a.file
	a.generation++
	if old != nil {
		_ = old.Close() // nothing was written through it
	}
}

func (a *activeState) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{a.file, a.before} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	a.file, a.before = nil, nil
	return errors.Join(errs...)
}

// body reads and verifies one body.
func (a *activeState) body(r Ref) ([]byte, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	doing := "read the declaration of " + r.Title
	var file *os.File
	switch r.generation {
	case a.generation:
		file = a.file
	case a.generation - 1:
		file = a.before
	}
	if file == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: doing, Cause: fmt.Errorf("it is of active state %d, the present one is %d", r.generation, a.generation)}
	}
	frame := make([]byte, r.length)
	if _, err := file.ReadAt(frame, r.offset); err != nil && err != io.EOF {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: err}
	}
	payload, ok := cutFrame(frame)
	if !ok {
		return nil, &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: errors.New("wrong checksum"),
			Hint: "restart the agent: it reads the declarations anew; the disk may be failing"}
	}
	return payload, nil
}

// rewrite puts the file back if it is not at its path any more. Its content is still there as long as it is open.
func (a *activeState) rewrite(root *disk.Root, path string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil || inPlace(path, a.info) {
		return nil
	}
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if err := replace(root, activeName, a.file, info.Size()); err != nil {
		return err
	}
	a.info, err = os.Lstat(path)
	return err
}

// activeChunks yields the file of an active state. refs get the place of their bodies.
func activeChunks(root converge.Digest, entries []Entry, refs []Ref) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := appendFrame(header(activeName), activeHead{root, len(entries)})
		at := int64(len(buf))
		for i := range entries {
			if !yield(buf) {
				return
			}
			buf = appendFrame(buf[:0], &refs[i])
			refs[i].offset, refs[i].length = at+int64(len(buf)), uint32(frameHead+len(entries[i].Body))
			buf = appendRaw(buf, entries[i].Body)
			at += int64(len(buf))
		}
		yield(buf)
	}
}

// errIncomplete says that a file of an active state does not hold all of it.
var errIncomplete = errors.New("the state is not complete")

// activeReader puts an active state together from the frames of its file.
type activeReader struct {
	head       activeHead
	refs       []Ref
	frames     int
	generation uint32
	names      map[string]string // so that what many entries share is there once
}

// take takes the next frame.
func (a *activeReader) take(payload []byte, at int64) error {
	a.frames++
	switch {
	case a.frames == 1:
		return decoding.Unmarshal(payload, &a.head)
	case a.frames%2 == 1:
		last := &a.refs[len(a.refs)-1]
		last.offset, last.length = at, uint32(frameHead+len(payload))
		return nil
	}
	r := Ref{generation: a.generation}
	if err := decoding.Unmarshal(payload, &r); err != nil {
		return err
	}
	a.share(&r)
	a.refs = append(a.refs, r)
	return nil
}

// share replaces the strings that many entries have by one copy each.
func (a *activeReader) share(r *Ref) {
	one := func(s string) string {
		if same, ok := a.names[s]; ok {
			return same
		}
		a.names[s] = s
		return s
	}
	r.Config, r.OnRemove, r.Claim.Kind = one(r.Config), declare.OnRemove(one(string(r.OnRemove))), declare.ClaimKind(one(string(r.Claim.Kind)))
	for i, c := range r.After {
		r.After[i] = declare.Claim{Kind: declare.ClaimKind(one(string(c.Kind))), ID: one(c.ID)}
	}
}

// read reads a whole file. Anything wrong with it is an error: half a state is not enforced.
func (a *activeReader) read(r io.Reader, size int64) error {
	if err := scanFile(r, size, activeName, a.take); err != nil {
		return err
	}
	if a.frames == 0 || a.head.Count != len(a.refs) || a.frames != 1+2*a.head.Count {
		return errIncomplete
	}
	return nil
}

// loadActive reads the active state, and keeps its file open for the bodies. It says what is wrong with the file,
// fs.ErrNotExist where there is none; then nothing is active.
func (s *Store) loadActive() error {
	f, st, err := openFile(s.root, activeName)
	if err != nil {
		return err
	}
	a := activeReader{generation: s.active.generation + 1, names: map[string]string{}}
	info, err := f.Stat()
	if err == nil {
		err = a.read(f, st.Size)
	}
	if err != nil {
		f.Close()
		return err
	}
	refs := make([]Ref, len(a.refs))
	copy(refs, a.refs)
	s.active.swap(a.head.Root, refs, f, info)
	return nil
}

// Root identifies the active state as a whole; zero where nothing is active.
func (s *Store) Root() converge.Digest {
	s.active.mu.RLock()
	defer s.active.mu.RUnlock()
	return s.active.root
}

// Active returns the entries of the active state in the order that they were given. The caller does not change them.
func (s *Store) Active() []Ref { return s.active.list() }

// Body reads the body of an entry of the present or the previous active state. It is StateCorrupt where the disk has lost
// it.
func (s *Store) Body(r Ref) ([]byte, error) { return s.active.body(r) }

// SetActive makes a complete set of entries the state that is enforced, atomically and durably. What the store remembers
// of resources that are neither in it nor wait to be removed is forgotten: notifications, budgets, originals. Strings and
// After of the entries are kept, bodies are not. After an error the old state is the active one; a restart may find the
// new one.
func (s *Store) SetActive(root converge.Digest, entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := make([]Ref, len(entries))
	for i := range entries {
		e := &entries[i]
		if err := tooLarge("store "+e.Title, len(e.Body), declare.BodyBytesMax); err != nil {
			return err
		}
		refs[i] = Ref{Claim: e.Claim, Title: e.Title, Config: e.Config, Place: e.Place, Digest: e.Digest, OnRemove: e.OnRemove,
			After: e.After, generation: s.active.generation + 1}
	}
	err := s.presentLocked()
	if err == nil {
		err = s.flushLocked() // what is over must not come back because of the new state
	}
	if err == nil {
		_, err = write(s.root, activeName, activeChunks(root, entries, refs))
	}
	if err != nil {
		return s.unwritableLocked("write", activeName, err)
	}
	f, err := os.Open(s.path(activeName))
	if err != nil {
		return s.unwritableLocked("open", activeName, err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return s.unwritableLocked("open", activeName, err)
	}
	s.active.swap(root, refs, f, info)
	if err := s.commitLocked(s.ledger.forget(s.strangersLocked()), false); err != nil {
		s.troubleLocked(reason.Of(err)) // it is forgotten in memory, and the next write of the journal leaves it out
	}
	return nil
}

// strangersLocked returns the claims that the ledger knows something of and that are neither active nor to be removed.
func (s *Store) strangersLocked() map[declare.Claim]bool {
	claims := s.ledger.owners()
	if len(claims) == 0 {
		return nil
	}
	for _, ref := range s.active.list() {
		delete(claims, ref.Claim)
	}
	for claim := range s.ledger.removals {
		delete(claims, claim)
	}
	return claims
}
