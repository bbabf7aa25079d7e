package bundles

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"tako.dev/tako/internal/bundle"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// The directories beside those of bundles.
const (
	partDir   = "part"
	newestDir = "newest"
	tmpDir    = "tmp"
)

const (
	// quota is ours: room for twenty of the largest.
	quota = 20 << 30
	// partsMax bounds the uploads that were begun and not finished: a person has one, a pipeline a few.
	partsMax = 100
	// partAge is how long one stays that nobody goes on with.
	partAge = 7 * 24 * time.Hour
	// ageMax and ageMin are how long a bundle stays that nothing names, with room enough and without: as objects do.
	ageMax = 30 * 24 * time.Hour
	ageMin = 24 * time.Hour
	// queueMax is how many differences wait to be looked through; each takes seconds.
	queueMax = 16
	// recentFor is how long the trie of a bundle that a difference builds upon stays in memory after the last call: a push asks for it
	// several times within seconds.
	recentFor = time.Minute
	// toldFor is how long it is told why a bundle was refused, where nobody has asked: who pushes asks each second.
	toldFor = 10 * time.Minute
)

// upload is a difference on its way: of these bytes, from one bundle to another.
type upload struct {
	root, base catalog.Digest // base is zero where all entries come
	namespace  string         // empty: of the cluster
	size       int64
	taken      bool // from another server: for what namespace it was pushed is not known here
}

// name is that of the file that it comes in. Two namespaces that push the same push the same bytes.
func (u *upload) name() string {
	base := "all"
	if u.base != (catalog.Digest{}) {
		base = u.base.String()
	}
	return u.root.String() + "-" + base + "-" + strconv.FormatInt(u.size, 10)
}

// job is an upload that is looked through.
type job struct {
	upload
	done  chan struct{} // closed when it is over; what follows is set before
	err   error
	ended time.Time
}

// Store is the bundles of one server. Use New.
type Store struct {
	dir   string
	queue chan *job

	mu      sync.Mutex // guards what follows
	busy    map[string]bool
	jobs    map[string]*job // by name of the upload
	arrived func(catalog.Digest)

	recentMu sync.Mutex // guards recent, also while it is read
	recent   *recent
}

// recent is the bundle whose trie was asked about last.
type recent struct {
	root  catalog.Digest
	nodes *catalog.Nodes
	count int
	used  time.Time
}

// New opens the bundles in a directory, which it makes.
func New(dir string) (*Store, error) {
	s := &Store{dir: filepath.Clean(dir), queue: make(chan *job, queueMax), busy: map[string]bool{}, jobs: map[string]*job{}, arrived: func(catalog.Digest) {}}
	const doing = "open bundles"
	for _, name := range []string{"", partDir, newestDir, tmpDir} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, unstored(doing, err)
		}
	}
	left, err := os.ReadDir(filepath.Join(s.dir, tmpDir))
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, tmpDir, e.Name())))
	}
	if err != nil {
		return nil, unstored(doing, err)
	}
	return s, nil
}

// Tell has a function called with each bundle that has come, from now on. It is called before Run.
func (s *Store) Tell(arrived func(catalog.Digest)) { s.arrived = arrived }

// Open reads a bundle and its trie: about a second for a million entries. The errors are BundleMissing, StateCorrupt and InputOutput.
func (s *Store) Open(root catalog.Digest) (*Bundle, catalog.Trie, error) {
	return open(s.path(root), root)
}

// Has reports whether a bundle is here.
func (s *Store) Has(root catalog.Digest) bool {
	_, err := os.Stat(s.path(root))
	return err == nil
}

func (s *Store) path(root catalog.Digest) string { return filepath.Join(s.dir, root.String()) }

func (s *Store) partPath(u upload) string { return filepath.Join(s.dir, partDir, u.name()) }

// place gives a bundle that was made its place, and notes that it is the newest of its namespace.
func (s *Store) place(doing, made string, u upload) error {
	err := os.Rename(made, s.path(u.root))
	if err != nil && s.Has(u.root) {
		err = os.RemoveAll(made) // the same came another way
	}
	if err == nil {
		err = syncDir(s.dir)
	}
	if err != nil {
		return unstored(doing, err)
	}
	if u.taken {
		return nil
	}
	if err := s.setNewest(u.namespace, u.root); err != nil {
		return unstored(doing, err)
	}
	return nil
}

// newestName is the file for a namespace; that of the cluster is none that a namespace may have.
func newestName(namespace string) string { return cmp.Or(namespace, "-") }

// setNewest is not made durable: who finds an older one pushes a larger difference.
func (s *Store) setNewest(namespace string, root catalog.Digest) error {
	f, err := os.CreateTemp(filepath.Join(s.dir, tmpDir), "newest-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(root.String())
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), filepath.Join(s.dir, newestDir, newestName(namespace)))
}

// newest is the bundle that was pushed last for a namespace, if it is here still.
func (s *Store) newest(namespace string) (catalog.Digest, bool) {
	text, err := os.ReadFile(filepath.Join(s.dir, newestDir, newestName(namespace)))
	if err != nil {
		return catalog.Digest{}, false
	}
	root, ok := catalog.ParseDigest(string(text))
	return root, ok && s.Has(root)
}

// nodesOf are the nodes of a bundle that is here. The errors are those of Open.
func (s *Store) nodesOf(root catalog.Digest) (*recent, error) {
	s.recentMu.Lock()
	defer s.recentMu.Unlock()
	if s.recent == nil || s.recent.root != root {
		s.recent = nil // two at once are not needed
		b, trie, err := s.Open(root)
		if err != nil {
			return nil, err
		}
		s.recent = &recent{root: root, nodes: catalog.NewNodes(trie), count: trie.Len()}
		if err := b.close(); err != nil {
			return nil, unreadable(root, err)
		}
	}
	s.recent.used = time.Now()
	return s.recent, nil
}

// forget lets go what nobody asks about any more.
func (s *Store) forget(now time.Time) {
	s.mu.Lock()
	maps.DeleteFunc(s.jobs, func(_ string, j *job) bool {
		select {
		case <-j.done:
			return now.Sub(j.ended) > toldFor
		default:
			return false
		}
	})
	s.mu.Unlock()
	s.recentMu.Lock()
	defer s.recentMu.Unlock()
	if s.recent != nil && now.Sub(s.recent.used) > recentFor {
		s.recent = nil
	}
}

// kept is one bundle, or a part, on the disk.
type kept struct {
	root  catalog.Digest
	path  string
	bytes int64
	named time.Time // when it came, or was last named
}

// list returns the bundles that are here, the oldest first, and all parts.
func (s *Store) list() (all, parts []kept, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		root, ok := catalog.ParseDigest(e.Name())
		if !ok {
			continue
		}
		k := kept{root: root, path: filepath.Join(s.dir, e.Name())}
		if st, err := e.Info(); err == nil {
			k.named = st.ModTime()
		}
		for _, name := range []string{rowsName, bodiesName} {
			if st, err := os.Stat(filepath.Join(k.path, name)); err == nil {
				k.bytes += st.Size()
			}
		}
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.named.Compare(b.named) })
	coming, err := os.ReadDir(filepath.Join(s.dir, partDir))
	for _, e := range coming {
		if st, err := e.Info(); err == nil {
			parts = append(parts, kept{path: filepath.Join(s.dir, partDir, e.Name()), bytes: st.Size(), named: st.ModTime()})
		}
	}
	return all, parts, err
}

// room says whether an upload may begin, or go on.
func (s *Store) room(u upload) error {
	doing := "store bundle " + bundle.Digest(u.root)
	all, parts, err := s.list()
	if err != nil {
		return unstored(doing, err)
	}
	used := int64(0)
	for _, k := range slices.Concat(all, parts) {
		used += k.bytes
	}
	if len(parts) >= partsMax && !slices.ContainsFunc(parts, func(k kept) bool { return k.path == s.partPath(u) }) {
		return unstored(doing, errors.New("too many uploads were begun and not finished"))
	}
	if used+u.size > quota {
		return unstored(doing, errors.New("the bundles of this server have all the room that they may take"))
	}
	return content.Spare(s.dir, u.size)
}

func unstored(doing string, cause error) error {
	return &reason.Error{Code: reason.ObjectUnstored, Doing: doing, Cause: cause, Hint: "free space on the file system of the server's data directory, or push a smaller bundle"}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(disk.Sync(f), f.Close())
}
