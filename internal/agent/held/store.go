package held

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/layerstore"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
)

// The names in the state directory. Those of files are also the kinds in their headers.
const (
	headsName      = "heads"
	listsName      = "lists"
	layersName     = "layers"
	stageName      = "stage"
	comingName     = "coming"
	statementsName = "statements"
	// startsName is a file without content: its length is how many starts are not in the record.
	startsName = "starts"
)

// troublesMax bounds what is told of damage; the newest count.
const troublesMax = 20

// Store is what was transferred to a host. It is a client.Store.
type Store struct {
	state  string // path of the state directory
	top    *directory
	lists  *directory
	layers *layerstore.Store
	room   func(path string) (room, error) // roomAt, but for tests
	looks  bool                            // it belongs to somebody else: nothing is written

	mu         sync.Mutex // guards what follows, and the files
	record     record
	counted    bool             // something in record that is not durable
	uncounted  bool             // there is a file of starts
	statements []core.Statement // as they are on the disk
	unnoted    error            // why the record could not be written last; nil where it could
	stage      *stage           // nil where nothing is staged
	troubles   []*reason.Error
}

var _ client.Store = (*Store)(nil)

// Open opens what is held in a state directory, which must be there and belong to the caller alone. What is damaged is set aside and
// told of by Troubles. The errors are StateNewer, StateUnwritable and InputOutput.
func Open(stateDir string, now time.Time) (*Store, error) {
	s := &Store{state: stateDir, room: roomAt}
	if err := s.openAll(now); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Inspect opens what is held for looking at it: it writes nothing, and works beside the agent whose it is. Only Catalog, Rows, Own, Contents,
// DataOf, Keys, Proof and Close may be called.
func Inspect(stateDir string) (*Store, error) {
	s := &Store{state: stateDir, room: roomAt, looks: true}
	if err := s.openAll(time.Time{}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) openAll(now time.Time) (err error) {
	if s.top, err = openDirectory(s.state); err != nil {
		return err
	}
	if !s.looks {
		if err := errors.Join(s.readHeads(now), s.readStatements()); err != nil {
			return err
		}
	}
	if s.lists, err = openDirectory(filepath.Join(s.state, listsName)); err != nil {
		return err
	}
	if !s.looks {
		if err := s.lists.sweep(); err != nil {
			return err
		}
	}
	layers := filepath.Join(s.state, layersName)
	if err := makeDirectory(layers); err != nil {
		return err
	}
	s.layers, err = layerstore.Open(layers, layerstore.Options{ReadOnly: s.looks, Room: func(bytes uint64) error { return s.spare(bytes, bytes) }})
	return err
}

// Close closes what is open. No other method may follow.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.endStageLocked()}
	if s.layers != nil {
		errs = append(errs, s.layers.Close())
	}
	if s.counted {
		errs = append(errs, s.changeLocked(s.record))
	}
	for _, d := range []*directory{s.top, s.lists} {
		if d != nil {
			errs = append(errs, d.root.Close())
		}
	}
	return errors.Join(errs...)
}

// Troubles returns what was found damaged, the oldest first, and last why the record cannot be written at the moment.
func (s *Store) Troubles() []*reason.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubleLocked(s.layers.Found()...)
	list := slices.Clone(s.troubles)
	if s.unnoted != nil {
		list = append(list, reason.Of(s.unnoted))
	}
	return list
}

// damagedLocked sets a damaged file aside and tells of it. Whoever reads goes on as if it had not been there.
func (s *Store) damagedLocked(d *directory, name string, err error) error {
	e := reason.Of(err)
	if s.looks {
		return e
	}
	aside := d.setAside(s.state, name, time.Now())
	s.troubleLocked(&reason.Error{Code: reason.StateCorrupt, Doing: e.Doing, Cause: errors.Join(e.Cause, aside),
		Hint: "it is fetched again; what could not be read is kept in " + corruptName + "; the disk may be failing"})
	return aside
}

func (s *Store) troubleLocked(more ...*reason.Error) {
	s.troubles = append(s.troubles, more...)
	if over := len(s.troubles) - troublesMax; over > 0 {
		s.troubles = slices.Clone(s.troubles[over:])
	}
}

// trimLocked removes the lists and layers that nothing refers to any more. recent is how many of the newest lists stay whatever refers
// to them: a fetch may build upon one that is enforced nowhere.
func (s *Store) trimLocked(recent int) error {
	order, err := s.listsLocked()
	if err != nil {
		return err
	}
	wanted := s.record.Life.roots(s.record.Mark.Root)
	if root, ok := headRoot(s.record.EnforcedHead); ok {
		wanted = append(wanted, root)
	}
	layers := map[catalog.Digest]bool{}
	for i, l := range order {
		if i >= recent && !slices.Contains(wanted, l.root) {
			if err := s.lists.remove(l.root.String()); err != nil {
				return err
			}
			continue
		}
		for _, layer := range l.list {
			layers[layer.Root] = true
		}
	}
	return s.layers.Trim(func(root catalog.Digest) bool { return layers[root] })
}

// HasJoined reports whether the host of a state directory belongs to a cluster.
func HasJoined(stateDir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(stateDir, identityName, nodeName))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, &reason.Error{Code: reason.InputOutput, Doing: "look whether this host has joined", Cause: err}
}
