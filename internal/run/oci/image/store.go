package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// idleMax is how many images that nobody runs from are kept: who rolls back has the one from before, and somebody who is started again
	// by another instance does not unpack it anew.
	idleMax = 4
	// prefix is that of the name of an image's directory, before its digest.
	prefix   = "sha256-"
	ownMode  = 0o700 // programs in it may be what nobody else is to execute
	useMode  = 0o600
	rootName = "root"
)

// Options of a Store.
type Options struct {
	// Dir is where everything is kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// BytesMax is what an image may unpack to. Default 64 GiB.
	BytesMax int64
}

// Image is an image that is unpacked.
type Image struct {
	Digest Digest
	Root   string // its root directory; nobody may change anything in it
	Config Config
}

// ReadFile reads a regular file of the image, links in its path resolved within it.
func (i Image) ReadFile(name string, most int64) ([]byte, error) {
	r, err := openRoot(i.Root)
	if err != nil {
		return nil, err
	}
	defer r.close() // nothing was written
	fd, err := r.within(name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() > most) {
		err = fmt.Errorf("%s of the image is no regular file of at most %d bytes", name, most)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// Store has images, each unpacked once. Its methods may be called from any goroutine; no other program may use the directory meanwhile.
type Store struct {
	dir  string
	most int64
	one  chan struct{} // held by who unpacks: a disk does one at a time best

	mu     sync.Mutex        // guards what follows, and what is in images
	uses   map[string]Digest // by whom
	active map[string]int    // who is just using Take
}

// NewStore opens a store. What a program that was killed has left half done is taken away, and the uses of whom nobody knows.
func NewStore(o Options, known func(holder string) bool) (*Store, error) {
	s := &Store{dir: o.Dir, most: cmp.Or(o.BytesMax, bytesMax), one: make(chan struct{}, 1), uses: map[string]Digest{}, active: map[string]int{}}
	if !filepath.IsAbs(o.Dir) {
		return nil, &reason.Error{Code: reason.InvalidValue, Doing: "open the store of images", Cause: errors.New("it needs an absolute directory")}
	}
	if err := os.RemoveAll(s.temporary()); err != nil {
		return nil, disk.Fault("empty", s.temporary(), err)
	}
	for _, dir := range []string{s.dir, s.images(), s.temporary(), s.use("")} {
		if err := os.MkdirAll(dir, ownMode); err != nil {
			return nil, disk.Fault("make", dir, err)
		}
	}
	holders, err := os.ReadDir(s.use(""))
	if err != nil {
		return nil, disk.Fault("list", s.use(""), err)
	}
	for _, h := range holders {
		text, err := os.ReadFile(s.use(h.Name()))
		if err == nil && known(h.Name()) {
			if d, err := parseDigest("sha256:" + string(text)); err == nil {
				s.uses[h.Name()] = d
				continue
			}
		}
		if err := os.Remove(s.use(h.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, disk.Fault("remove", s.use(h.Name()), err)
		}
	}
	return s, nil
}

func (s *Store) images() string           { return filepath.Join(s.dir, "images") }
func (s *Store) temporary() string        { return filepath.Join(s.dir, "temporary") }
func (s *Store) use(holder string) string { return filepath.Join(s.dir, "uses", holder) }
func (s *Store) place(d Digest) string    { return filepath.Join(s.images(), prefix+string(d)) }

// Take reads a layout, unpacks its image if that is not there yet, and keeps it for a holder, until that is forgotten. While fn runs nobody
// forgets the holder. The errors are ImageRefused, those of a disk, and that of ctx.
func (s *Store) Take(ctx context.Context, path, holder string, fn func(Image) error) error {
	l, err := open(path)
	if err != nil {
		return err
	}
	defer l.files.Close() // it was read only
	if err := s.hold(holder, l.digest); err != nil {
		return err
	}
	defer s.letGo(holder)
	if err := s.provide(ctx, l); err != nil {
		return err
	}
	return fn(Image{Digest: l.digest, Root: filepath.Join(s.place(l.digest), rootName), Config: l.document.Config})
}

func (s *Store) hold(holder string, d Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.WriteFile(s.use(holder), []byte(d), useMode); err != nil {
		return disk.Fault("write", s.use(holder), err)
	}
	s.uses[holder] = d
	s.active[holder]++
	return nil
}

func (s *Store) letGo(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active[holder]--; s.active[holder] == 0 {
		delete(s.active, holder)
	}
}

// provide unpacks an image that is not there.
func (s *Store) provide(ctx context.Context, l *layout) error {
	if _, err := os.Lstat(s.place(l.digest)); err == nil { // before somebody is waited for who unpacks another one
		return nil
	}
	select {
	case s.one <- struct{}{}:
		defer func() { <-s.one }()
	case <-ctx.Done():
		return reason.Ended("unpack the image "+l.path, ctx.Err())
	}
	if _, err := os.Lstat(s.place(l.digest)); err == nil {
		return nil
	}
	temp, err := os.MkdirTemp(s.temporary(), string(l.digest[:12])+"-")
	if err != nil {
		return disk.Fault("make a directory in", s.temporary(), err)
	}
	// Packed it is smaller than that, mostly: what cannot fit in any case is not begun with.
	if err = content.Spare(s.temporary(), l.size()); err == nil {
		err = s.unpack(ctx, l, temp)
	}
	if err != nil {
		_ = os.RemoveAll(temp) // what is left of it goes when a store is opened
	}
	if reason.Is(err, reason.DiskFull) {
		return errors.Join(err, s.makeRoom())
	}
	return err
}

// makeRoom takes away the images that nobody runs from: who needs room comes again.
func (s *Store) makeRoom() error {
	s.mu.Lock()
	gone, err := s.collectLocked(0)
	s.mu.Unlock()
	for _, dir := range gone {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

func (s *Store) unpack(ctx context.Context, l *layout, temp string) error {
	dir := filepath.Join(temp, rootName)
	if err := os.Mkdir(dir, dirMode); err != nil {
		return disk.Fault("make", dir, err)
	}
	if err := l.unpack(ctx, dir, s.most); err != nil {
		if ctx.Err() != nil {
			return reason.Ended("unpack the image "+l.path, ctx.Err())
		}
		if coded := (*reason.Error)(nil); errors.As(err, &coded) {
			return err
		}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS) {
			return disk.Fault("unpack an image to", dir, err)
		}
		return refused(l.path, err)
	}
	// A crash must not leave a name in place and lose what it names. One call for all files is faster than one for each.
	if err := syncAll(temp); err != nil {
		return disk.Fault("make durable", temp, err)
	}
	if err := os.Rename(temp, s.place(l.digest)); err != nil {
		return disk.Fault("put in place", s.place(l.digest), err)
	}
	return nil
}

// syncAll makes the file system of a directory durable.
func syncAll(dir string) error {
	fd, err := disk.OpenAt(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// Forget ends what a holder keeps, unless it is just using Take. Images that nobody runs from are taken away, but for the few that were used last.
func (s *Store) Forget(holder string) error {
	gone, err := s.drop(holder)
	for _, dir := range gone {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return disk.Fault("take away images of", holder, err)
	}
	return nil
}

// drop moves away what is to be taken away.
func (s *Store) drop(holder string) (gone []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.uses[holder]
	if !ok || s.active[holder] > 0 {
		return nil, nil
	}
	if err := os.Remove(s.use(holder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	delete(s.uses, holder)
	now := time.Now()
	if err := os.Chtimes(s.place(d), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return s.collectLocked(idleMax)
}

// collectLocked moves away the images that nobody runs from, but for so many that were used last.
func (s *Store) collectLocked(idle int) (gone []string, err error) {
	entries, err := os.ReadDir(s.images())
	if err != nil {
		return nil, err
	}
	var there []kept
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			there = append(there, kept{Digest(strings.TrimPrefix(e.Name(), prefix)), st.ModTime()})
		}
	}
	used := map[Digest]bool{}
	for _, d := range s.uses {
		used[d] = true
	}
	for _, d := range garbage(there, used, idle) {
		temp, err := os.MkdirTemp(s.temporary(), "gone-")
		if err != nil {
			return gone, err
		}
		gone = append(gone, temp)
		if err := os.Rename(s.place(d), filepath.Join(temp, rootName)); err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// kept is an image that is there, and when it was used last, if it is not used now.
type kept struct {
	digest Digest
	used   time.Time
}

// garbage are the images that are taken away: of those that nobody runs from all but so many of the newest.
func garbage(there []kept, used map[Digest]bool, most int) (gone []Digest) {
	idle := slices.DeleteFunc(slices.Clone(there), func(k kept) bool { return used[k.digest] })
	slices.SortFunc(idle, func(a, b kept) int {
		return cmp.Or(b.used.Compare(a.used), strings.Compare(string(a.digest), string(b.digest)))
	})
	for _, k := range idle[min(most, len(idle)):] {
		gone = append(gone, k.digest)
	}
	return gone
}
