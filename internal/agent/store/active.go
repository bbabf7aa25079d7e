package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"math"
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

// Ref is an Entry without its body: what a frame says of it.
type Ref struct {
	Claim    declare.Claim    `cbor:"1,keyasint"`
	Title    string           `cbor:"2,keyasint,omitempty"`
	Config   string           `cbor:"3,keyasint,omitempty"`
	Place    string           `cbor:"4,keyasint,omitempty"`
	Digest   converge.Digest  `cbor:"5,keyasint"`
	OnRemove declare.OnRemove `cbor:"6,keyasint,omitempty"`
	After    []declare.Claim  `cbor:"7,keyasint,omitempty"`
}

func (e *Entry) ref() Ref {
	return Ref{Claim: e.Claim, Title: e.Title, Config: e.Config, Place: e.Place, Digest: e.Digest, OnRemove: e.OnRemove, After: e.After}
}

// activeHead is the first frame of the file. For each entry a frame with its Ref and one with its body follow.
type activeHead struct {
	Root  converge.Digest `cbor:"1,keyasint"`
	Count int             `cbor:"2,keyasint"`
	// Without is absent where nothing is left out, so that the file of a host that knows no TTLs is what it was.
	Without converge.Digest `cbor:"3,keyasint,omitzero"`
}

// activeState is the state that is enforced, and the file of the one before it.
type activeState struct {
	mu      sync.RWMutex // guards what follows
	present *layout
	file    *os.File // nil where nothing was ever active
	info    fs.FileInfo
	before  *os.File
}

// layout is where the entries of one active state are in its file. It is all of them that stays in memory: there may be 100,000.
// It is never changed.
type layout struct {
	generation uint32
	root       converge.Digest
	without    converge.Digest // what is left out of it for now; zero: nothing
	places     converge.Digest // of all entries' places
	at         []int64         // where the frames of each entry begin, and behind the last one where they end
}

// Active is the state that was active at one moment. It can be read until the next but one has come.
type Active struct {
	state *activeState
	*layout
}

func (a *activeState) now() Active {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.present == nil {
		return Active{a, &layout{}}
	}
	return Active{a, a.present}
}

// swap makes a state the present one.
func (a *activeState) swap(l *layout, file *os.File, info fs.FileInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.before
	if a.present != nil {
		l.generation = a.present.generation + 1
	}
	a.present, a.file, a.info, a.before = l, file, info, a.file
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

// Len is the number of entries.
func (a Active) Len() int { return max(len(a.at)-1, 0) }

// Root identifies the state as a whole; zero where nothing was active.
func (a Active) Root() converge.Digest { return a.root }

// Without identifies what of the state of its root is left out for now; zero where nothing is.
func (a Active) Without() converge.Digest { return a.without }

// Is reports whether it is the state of a root without that, with each entry declared where places say.
func (a Active) Is(root, without converge.Digest, places iter.Seq[string]) bool {
	return a.root == root && a.without == without && a.places == digestOf(places)
}

// digestOf identifies a list of places.
func digestOf(places iter.Seq[string]) converge.Digest {
	d := newPlaces()
	for place := range places {
		d.add(place)
	}
	return d.sum()
}

// places is a digest of places, one after the other.
type places struct{ hash.Hash }

func newPlaces() places { return places{sha256.New()} }

func (p places) add(place string) {
	_, _ = io.WriteString(p, place) // of a hash it cannot fail
	_, _ = p.Write([]byte{0})
}

func (p places) sum() (d converge.Digest) { return converge.Digest(p.Sum(d[:0])) }

// refGuess is how much is read to have an entry's Ref at once, which nearly always is all of it.
const refGuess = 512

// Ref reads entry i without its body. Errors: StateCorrupt where the disk has lost it.
func (a Active) Ref(i int) (Ref, error) {
	frames, err := a.read(i, refGuess)
	if err == nil && frameLen(frames) > int64(len(frames)) {
		frames, err = a.read(i, frameLen(frames))
	}
	if err != nil {
		return Ref{}, err
	}
	payload, _, ok := cutFrame(frames)
	if !ok {
		return Ref{}, a.corrupt(i, errChecksum)
	}
	var r Ref
	if err := decoding.Unmarshal(payload, &r); err != nil {
		return Ref{}, a.corrupt(i, err)
	}
	return r, nil
}

// Entry reads entry i. Errors: StateCorrupt where the disk has lost it.
func (a Active) Entry(i int) (Entry, error) {
	frames, err := a.read(i, math.MaxInt64)
	if err != nil {
		return Entry{}, err
	}
	payload, rest, ok := cutFrame(frames)
	body, _, whole := cutFrame(rest)
	if !ok || !whole {
		return Entry{}, a.corrupt(i, errChecksum)
	}
	var r Ref
	if err := decoding.Unmarshal(payload, &r); err != nil {
		return Entry{}, a.corrupt(i, err)
	}
	return Entry{r.Claim, r.Title, r.Config, r.Place, r.Digest, r.OnRemove, r.After, body}, nil
}

// Refs reads all entries in the order that they were given, without their bodies. An error ends it.
func (a Active) Refs() iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for i := range a.Len() {
			if r, err := a.Ref(i); !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// read reads what the file has of entry i, at most so many bytes of it.
func (a Active) read(i int, most int64) ([]byte, error) {
	a.state.mu.RLock()
	defer a.state.mu.RUnlock()
	var file *os.File
	switch present := a.state.present.generation; a.generation {
	case present:
		file = a.state.file
	case present - 1:
		file = a.state.before
	}
	if file == nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: a.doing(i), Cause: fmt.Errorf("it is of active state %d, the present one is %d", a.generation, a.state.present.generation)}
	}
	frames := make([]byte, min(a.at[i+1]-a.at[i], most))
	if n, err := file.ReadAt(frames, a.at[i]); err == io.EOF {
		frames = frames[:n]
	} else if err != nil {
		return nil, a.corrupt(i, err)
	}
	return frames, nil
}

func (a Active) doing(i int) string { return fmt.Sprintf("read declaration %d of %d", i+1, a.Len()) }

var errChecksum = errors.New("wrong checksum")

func (a Active) corrupt(i int, cause error) error {
	return &reason.Error{Code: reason.StateCorrupt, Doing: a.doing(i), Cause: cause,
		Hint: "restart the agent: it reads the declarations anew; the disk may be failing"}
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

// activeChunks yields the file of an active state, and notes in its layout where the entries are.
func activeChunks(l *layout, entries []Entry) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		buf := appendFrame(header(activeName), activeHead{l.root, len(entries), l.without})
		at := int64(len(buf))
		for i := range entries {
			if !yield(buf) {
				return
			}
			l.at[i] = at
			buf = appendRaw(appendFrame(buf[:0], entries[i].ref()), entries[i].Body)
			at += int64(len(buf))
		}
		l.at[len(entries)] = at
		yield(buf)
	}
}

// errIncomplete says that a file of an active state does not hold all of it.
var errIncomplete = errors.New("the state is not complete")

// activeReader finds the layout of an active state in the frames of its file.
type activeReader struct {
	head   activeHead
	at     []int64
	end    int64 // of the last frame
	frames int
	places places
}

// take takes the next frame.
func (a *activeReader) take(payload []byte, at int64) error {
	a.frames++
	a.end = at + frameHead + int64(len(payload))
	switch {
	case a.frames == 1:
		return decoding.Unmarshal(payload, &a.head)
	case a.frames%2 == 1:
		return nil // a body
	}
	var r Ref
	if err := decoding.Unmarshal(payload, &r); err != nil {
		return err
	}
	a.places.add(r.Place)
	a.at = append(a.at, at)
	return nil
}

// read reads a whole file. Anything wrong with it is an error: half a state is not enforced.
func (a *activeReader) read(r io.Reader, size int64) (*layout, error) {
	if err := scanFile(r, size, activeName, a.take); err != nil {
		return nil, err
	}
	if a.frames == 0 || a.head.Count != len(a.at) || a.frames != 1+2*a.head.Count {
		return nil, errIncomplete
	}
	at := make([]int64, len(a.at)+1)
	at[copy(at, a.at)] = a.end
	return &layout{root: a.head.Root, without: a.head.Without, places: a.places.sum(), at: at}, nil
}

// loadActive reads the active state, and keeps its file open for the bodies. It says what is wrong with the file,
// fs.ErrNotExist where there is none; then nothing is active.
func (s *Store) loadActive() error {
	f, st, err := openFile(s.root, activeName)
	if err != nil {
		return err
	}
	a := activeReader{places: newPlaces()}
	info, err := f.Stat()
	var l *layout
	if err == nil {
		l, err = a.read(f, st.Size)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.active.swap(l, f, info)
	return nil
}

// Active returns the active state.
func (s *Store) Active() Active { return s.active.now() }

// SetActive makes a complete set of entries the state that is enforced, atomically and durably. What the store remembers
// of resources that are neither in it nor wait to be removed is forgotten: notifications, budgets, originals. Nothing of the
// entries is kept in memory. After an error the old state is the active one; a restart may find the new one.
func (s *Store) SetActive(root converge.Digest, entries []Entry) error {
	return s.SetActiveWithout(root, converge.Digest{}, entries)
}

// SetActiveWithout is SetActive of a state of which something is left out for now, and what that is.
func (s *Store) SetActiveWithout(root, without converge.Digest, entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	declared := newPlaces()
	for i := range entries {
		e := &entries[i]
		if err := tooLarge("store "+e.Title, len(e.Body), declare.BodyBytesMax); err != nil {
			return err
		}
		declared.add(e.Place)
	}
	l := &layout{root: root, without: without, places: declared.sum(), at: make([]int64, len(entries)+1)}
	err := s.presentLocked()
	if err == nil {
		err = s.flushLocked() // what is over must not come back because of the new state
	}
	if err == nil {
		_, err = write(s.root, activeName, activeChunks(l, entries))
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
	s.active.swap(l, f, info)
	if err := s.commitLocked(s.ledger.forget(s.strangersLocked(entries)), false); err != nil {
		s.troubleLocked(reason.Of(err)) // it is forgotten in memory, and the next write of the journal leaves it out
	}
	return nil
}

// strangersLocked returns the claims that the ledger knows something of and that are neither in a state nor to be removed.
func (s *Store) strangersLocked(entries []Entry) map[declare.Claim]bool {
	claims := s.ledger.owners()
	if len(claims) == 0 {
		return nil
	}
	for i := range entries {
		delete(claims, entries[i].Claim)
	}
	for claim := range s.ledger.removals {
		delete(claims, claim)
	}
	return claims
}
