package relay

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/relay/core"
)

const (
	// partSuffix ends the names of files that are being written. Those of a process that has died are of no use.
	partSuffix = ".part"
	// nameLength is that of names: 64 hexadecimal digits.
	nameLength = 64
)

// cache is a directory of answers by name. What is read from it is verified by whoever reads it, so that a crash or a disk can spoil an
// answer, and nothing else; what is spoilt is dropped, and is asked for again.
type cache struct {
	dir     string
	log     *slog.Logger
	metrics *metrics

	mu    sync.Mutex // guards shelf, and that a file is kept or let go as one step
	shelf *core.Shelf
}

// openCache opens a directory, with what is in it.
func openCache(dir string, shelf *core.Shelf, m *metrics, log *slog.Logger) (*cache, error) {
	c := &cache{dir: dir, log: log, metrics: m, shelf: shelf}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, c.fault("make", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, c.fault("read", dir, err)
	}
	var kept []fs.FileInfo
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), partSuffix) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, c.fault("remove", e.Name(), err)
			}
			continue
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() && len(e.Name()) == nameLength {
			kept = append(kept, st)
		}
	}
	// What was written last was wanted last, as far as anybody knows.
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, st := range kept {
		c.put(st.Name(), st.Size())
	}
	return c, nil
}

func (c *cache) fault(what, name string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: what + " " + name + " in the relay's cache", Cause: err}
}

func (c *cache) path(name string) string { return filepath.Join(c.dir, name) }

// open opens what is kept under a name; nil when nothing is.
func (c *cache) open(name string) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shelf.Want(name) {
		return nil
	}
	f, err := os.Open(c.path(name))
	if err != nil {
		c.log.Warn("read what the relay has kept", "err", err)
		c.shelf.Drop(name)
		return nil
	}
	return f
}

// create makes a file for what is to be kept under a name. One is written at a time: by the flight of that name.
func (c *cache) create(name string) (*os.File, error) {
	f, err := os.OpenFile(c.path(name)+partSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, c.fault("make", name, err)
	}
	return f, nil
}

// keep keeps a file that was written to its end.
func (c *cache) keep(name string, f *os.File) error {
	err := f.Sync()
	st, statErr := f.Stat()
	if err = errors.Join(err, statErr); err == nil {
		err = os.Rename(f.Name(), c.path(name))
	}
	if err != nil {
		c.abandon(name)
		return c.fault("keep", name, err)
	}
	c.put(name, st.Size())
	return nil
}

// put notes a file that is there, and lets go what has no room any more.
func (c *cache) put(name string, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, old := range c.shelf.Put(name, size) {
		c.removeLocked(old)
		c.metrics.dropped.Inc()
	}
	c.metrics.kept.Set(float64(c.shelf.Used()))
}

func (c *cache) removeLocked(name string) {
	if err := os.Remove(c.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("let go what the relay has kept", "err", err)
	}
}

// abandon removes a file that was not written to its end.
func (c *cache) abandon(name string) {
	if err := os.Remove(c.path(name) + partSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("remove what the relay does not keep", "err", err)
	}
}

// drop lets something go that is spoilt.
func (c *cache) drop(name string, why error) {
	c.log.Warn("what the relay has kept is damaged, and is asked for again", "err", why)
	c.forget(name)
}

// forget lets something go that is not to be given any more.
func (c *cache) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shelf.Drop(name)
	c.removeLocked(name)
	c.metrics.kept.Set(float64(c.shelf.Used()))
}

// read reads something small, which good has to find good; nil when it is not kept.
func (c *cache) read(name string, most int64, good func([]byte) bool) []byte {
	f := c.open(name)
	if f == nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && st.Size() > most {
		err = fmt.Errorf("it has %d bytes", st.Size())
	}
	var data []byte
	if err == nil {
		data = make([]byte, st.Size())
		_, err = f.ReadAt(data, 0)
	}
	if err == nil && !good(data) {
		err = errors.New("it has another hash")
	}
	if err != nil {
		c.drop(name, err)
		return nil
	}
	return data
}

// write keeps something small. Where that does not work it is not kept, and is asked for again.
func (c *cache) write(name string, data []byte) {
	// Two that write the same write the same bytes, each to a file of its own.
	f, err := os.CreateTemp(c.dir, name+"-*"+partSuffix)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), c.path(name))
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}
	if err != nil {
		c.log.Warn("keep an answer", "err", c.fault("write", name, err))
		return
	}
	c.put(name, int64(len(data)))
}
