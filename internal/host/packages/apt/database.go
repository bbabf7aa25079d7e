package apt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"tako.dev/tako/internal/reason"
)

// database is dpkg's, as far as anybody has asked for it. One parse serves everybody until the files change. Its methods may
// be called from several goroutines.
type database struct {
	dir string

	mu     sync.Mutex // guards what follows
	at     stamp
	known  map[string]entry // for the names that were asked for
	others others
}

// others is what counts of packages that nobody asked for too.
type others struct {
	unfinished []string // dpkg has not finished with them
	held       []string // they are marked to stay as they are; sorted
}

// stamp is what tells one state of the database's files from another. dpkg replaces its status file, and writes what it is
// about to do into files below updates.
type stamp struct{ status, updates fileStamp }

type fileStamp struct {
	dev, ino     uint64
	ctime, bytes int64
}

// snapshot is what the database says at one moment.
type snapshot struct {
	entries []entry // entries[i] belongs to names[i]
	others
	// journal says that dpkg was stopped in between, or is at work: what it did is not in its status file yet.
	journal bool
}

func newDatabase(dir string) *database { return &database{dir: dir} }

// look returns the entries of packages, read anew if fresh or if the files have changed.
func (d *database) look(names []string, fresh bool) (snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, err := d.stamp()
	if err != nil {
		return snapshot{}, d.unreadable(err)
	}
	if fresh || now != d.at || !d.knowsLocked(names) {
		all := names
		if now == d.at {
			all = d.withKnownLocked(names)
		}
		if err := d.readLocked(all); err != nil {
			return snapshot{}, d.unreadable(err)
		}
	}
	s := snapshot{entries: make([]entry, len(names)), others: d.others}
	for i, name := range names {
		s.entries[i] = d.known[name]
	}
	journal, err := d.journal()
	if err != nil {
		return snapshot{}, d.unreadable(err)
	}
	s.journal = len(journal) > 0
	return s, nil
}

func (d *database) unreadable(err error) error {
	return &reason.Error{Code: reason.InputOutput, Cause: fmt.Errorf("read %s: %w", d.dir, err)}
}

func (d *database) knowsLocked(names []string) bool {
	for _, name := range names {
		if _, ok := d.known[name]; !ok {
			return false
		}
	}
	return true
}

// withKnownLocked adds the names that are known to those asked for, so that two who ask in turn do not drive one another
// out.
func (d *database) withKnownLocked(names []string) []string {
	all := append(make([]string, 0, len(names)+len(d.known)), names...)
	for name := range d.known {
		all = append(all, name)
	}
	return all
}

// readAttempts is how often the database is read when dpkg moves its files while it is read.
const readAttempts = 5

// readLocked reads all files. The stamp is taken before, so a change in between shows the next time.
func (d *database) readLocked(names []string) error {
	var err error
	for range readAttempts {
		var at stamp
		if at, err = d.stamp(); err != nil {
			return err
		}
		known := make(map[string]entry, len(names))
		for _, name := range names {
			known[name] = entry{}
		}
		var o others
		if o, err = d.parse(known); err == nil {
			d.at, d.known, d.others = at, known, o
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// parse fills in the entries of the names in known, and returns what counts of others.
func (d *database) parse(known map[string]entry) (others, error) {
	files := []string{filepath.Join(d.dir, "status")}
	journal, err := d.journal()
	if err != nil {
		return others{}, err
	}
	files = append(files, journal...)
	native, err := d.native()
	if err != nil {
		return others{}, err
	}
	open, held := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		err := parseFile(file, known, func(s stanza) {
			if native != "" && s.architecture != native && s.architecture != "all" {
				return // one for another architecture, installed beside it
			}
			if _, ok := known[s.name]; ok {
				known[s.name] = s.entry
			}
			open[s.name], held[s.name] = !s.finished(), s.held && !s.state.absent()
		})
		if err != nil {
			return others{}, err
		}
	}
	return others{unfinished: marked(open), held: marked(held)}, nil
}

// marked lists the names that are true, sorted.
func marked(names map[string]bool) []string {
	var list []string
	for name, is := range names {
		if is {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func parseFile(file string, known map[string]entry, yield func(stanza)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file of the journal may finish what the status file left open, so every stanza of it counts.
	all := filepath.Base(file) != "status"
	return parseStatus(f, func(name []byte) bool { _, ok := known[string(name)]; return ok || all }, yield)
}

// journal lists the files that dpkg has not merged into its status file yet, in the order in which they apply. Their names
// are numbers.
func (d *database) journal() ([]string, error) {
	dir := filepath.Join(d.dir, "updates")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []string
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") == "" {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// nativeMax bounds the list of architectures: a few words.
const nativeMax = 4 << 10

// native is the host's own architecture, "" where there is only that: dpkg lists architectures as soon as there are others.
func (d *database) native() (string, error) {
	f, err := os.Open(filepath.Join(d.dir, "arch"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, nativeMax))
	first, _, _ := bytes.Cut(b, []byte("\n"))
	return strings.TrimSpace(string(first)), err
}

func (d *database) stamp() (stamp, error) {
	status, err := stampOf(filepath.Join(d.dir, "status"))
	if err != nil {
		return stamp{}, err
	}
	updates, err := stampOf(filepath.Join(d.dir, "updates"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return stamp{status, updates}, err
}

func stampOf(file string) (fileStamp, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return fileStamp{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fileStamp{}, errors.ErrUnsupported
	}
	return fileStamp{dev: st.Dev, ino: st.Ino, ctime: st.Ctim.Nano(), bytes: fi.Size()}, nil
}
