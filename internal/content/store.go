package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	tmpDir     = "tmp"
	corruptDir = "corrupt"
	// quotaDefault is room for the old contents of a host's configuration many times over.
	quotaDefault = 1 << 30
	copyBuffer   = 64 << 10
)

// Options are what a store may be told.
type Options struct {
	// QuotaBytes bounds the sum of all objects, set-aside ones included. Default 1 GiB; negative is an error.
	QuotaBytes int64
}

func (o Options) withDefaults() Options {
	if o.QuotaBytes == 0 {
		o.QuotaBytes = quotaDefault
	}
	return o
}

func (o Options) validate() error {
	if o.QuotaBytes < 0 {
		return &reason.Error{Code: reason.InvalidValue, Doing: "open content store", Hint: "the quota is a positive number of bytes"}
	}
	return nil
}

// Store is a directory of objects.
type Store struct {
	dir   string
	quota int64

	rooted atomic.Bool // the directories of the objects are durable

	mu   sync.Mutex // guards used, and that an object is added or removed as one step
	used int64      // bytes of all objects and of what is being written
}

// Open opens the store in a directory, which it makes with mode 0700 if it is missing; the directory above it must be
// there. It removes what a killed run left and counts what there is.
func Open(dir string, opts Options) (*Store, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Store{dir: filepath.Clean(dir), quota: opts.QuotaBytes}
	for _, d := range []string{"", corruptDir, tmpDir} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, unwritable("open content store", s.dir, err)
		}
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return nil, unwritable("open content store", s.dir, err)
	}
	if err := errors.Join(s.emptyTmp(), s.makeShards()); err != nil {
		return nil, unwritable("open content store", s.dir, err)
	}
	err := s.each(func(_ string, _ Digest, st fs.FileInfo) error {
		s.used += st.Size()
		return nil
	})
	if err != nil {
		return nil, unwritable("open content store", s.dir, err)
	}
	aside, err := dirSize(filepath.Join(s.dir, corruptDir))
	if err != nil {
		return nil, unwritable("open content store", s.dir, err)
	}
	s.used += aside
	return s, nil
}

// makeShards makes the directories of all objects now, so that only the first backup has to wait until they are durable.
func (s *Store) makeShards() error {
	for i := range 1 << (4 * shardLen) {
		err := os.Mkdir(filepath.Join(s.dir, fmt.Sprintf("%0*x", shardLen, i)), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// makeShard makes the directory of an object again, if somebody has taken it away.
func (s *Store) makeShard(object string) error {
	err := os.Mkdir(filepath.Dir(object), 0o700)
	switch {
	case err == nil:
		s.rooted.Store(false)
		return nil
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

func (s *Store) emptyTmp() error {
	tmp := filepath.Join(s.dir, tmpDir)
	left, err := os.ReadDir(tmp)
	for _, e := range left {
		err = errors.Join(err, os.Remove(filepath.Join(tmp, e.Name())))
	}
	return err
}

func dirSize(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	var sum int64
	for _, e := range entries {
		if st, err := e.Info(); err == nil {
			sum += st.Size()
		}
	}
	return sum, err
}

// Size returns the bytes in use.
func (s *Store) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

const (
	// spareBytesMax bounds an old content that somebody else may have written: what people restore are configurations, and a file of gigabytes
	// would push out all the others.
	spareBytesMax = 64 << 20
	// spareShare is the part of the quota, one in spareShare, that may be in use with such a content. Who may write where tako does cannot take
	// the room that everything else needs, without which nothing is repaired.
	spareShare = 4
)

// Spares reports whether there is room for an old content that anybody may have written.
func (s *Store) Spares(size int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return size <= spareBytesMax && s.used+size <= s.quota/spareShare
}

// Takes reports whether there is room for the content of a file: whatever its size where only root and the agent's user may have written it,
// see Spares otherwise.
func (s *Store) Takes(st disk.Stat) bool {
	const others = 0o022
	own := st.UID == 0 || st.UID == uint32(os.Geteuid())
	return own && st.Mode&others == 0 && st.Nlink == 1 || s.Spares(st.Size)
}

// Put stores what r yields and returns its digest and length, durable. What is there already is not written again, but
// verified. More than the quota allows is BackupFailed, and nothing is stored; so is every other trouble with the store. An
// error of r comes back wrapped in it.
func (s *Store) Put(ctx context.Context, r io.Reader) (Digest, int64, error) {
	f, err := os.CreateTemp(filepath.Join(s.dir, tmpDir), "put-")
	if err != nil {
		return Digest{}, 0, unstored(err, "")
	}
	defer f.Close()
	w := intake{store: s, file: f, sum: sha256.New()}
	d, err := w.take(ctx, r)
	if err == nil {
		err = w.settle(d)
	}
	if !w.placed {
		// A temporary that cannot be removed now is removed by the next Open.
		_ = os.Remove(f.Name())
		s.release(w.size)
	}
	if err != nil {
		return Digest{}, 0, err
	}
	return d, w.size, nil
}

// intake is one object on its way in.
type intake struct {
	store   *Store
	file    *os.File
	sum     hash.Hash
	size    int64 // bytes written, which are also reserved
	durable bool
	// placed says that there is an object now, which the bytes reserved are counted to if it is a new one.
	placed bool
}

// take writes to the temporary what r yields.
func (w *intake) take(ctx context.Context, r io.Reader) (Digest, error) {
	buf := make([]byte, copyBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return Digest{}, unstored(err, "")
		}
		n, err := r.Read(buf)
		if n > 0 {
			if err := w.add(buf[:n]); err != nil {
				return Digest{}, err
			}
		}
		if errors.Is(err, io.EOF) {
			return Digest(w.sum.Sum(nil)), nil
		}
		if err != nil {
			return Digest{}, unstored(err, "")
		}
	}
}

func (w *intake) add(b []byte) error {
	if err := w.store.reserve(int64(len(b))); err != nil {
		return err
	}
	w.size += int64(len(b))
	w.sum.Write(b)
	if _, err := w.file.Write(b); err != nil {
		return unstored(err, "free space on the file system of the state directory")
	}
	return nil
}

// settle makes the temporary durable and gives it its place. The fsyncs are made without the lock, so that those of
// several goroutines overlap.
func (w *intake) settle(d Digest) error {
	s := w.store
	if !s.Has(d) {
		if err := w.sync(); err != nil {
			return unstored(err, "")
		}
	}
	if err := w.place(d); err != nil {
		return unstored(err, "")
	}
	// Also when it was there already: whoever placed it may not have come as far as this.
	if err := syncDir(filepath.Dir(s.path(d))); err != nil {
		return unstored(err, "")
	}
	if s.rooted.Load() {
		return nil
	}
	if err := syncDir(s.dir); err != nil {
		return unstored(err, "")
	}
	s.rooted.Store(true)
	return nil
}

// sync makes the temporary durable, once.
func (w *intake) sync() error {
	if w.durable {
		return nil
	}
	err := disk.Sync(w.file)
	w.durable = err == nil
	return err
}

// place renames the temporary to the object, unless a good one is there. The lock keeps two of the same content, and
// Trim, apart.
func (w *intake) place(d Digest) error {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.verify(d)
	if err == nil {
		s.used -= w.size
		w.placed = true
		now := time.Now() // for Trim: it is wanted again
		return errors.Join(os.Chtimes(s.path(d), now, now), os.Remove(w.file.Name()))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err := s.setAside(d); err != nil {
			return err
		}
	}
	// What was taken for a good one may have been corrupt, or trimmed since.
	if err := w.sync(); err != nil {
		return err
	}
	if err := s.makeShard(s.path(d)); err != nil {
		return err
	}
	if err := os.Rename(w.file.Name(), s.path(d)); err != nil {
		return err
	}
	w.placed = true
	return nil
}

// reserve counts bytes that are about to be written.
func (s *Store) reserve(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+n > s.quota {
		return unstored(
			fmt.Errorf("content store %s is full: %d of %d bytes are in use and at least %d more are needed", disk.Shown(s.dir), s.used, s.quota, n),
			"raise the quota of backups, or remove resources that keep old ones",
		)
	}
	s.used += n
	return nil
}

func (s *Store) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// Has reports whether there is an object of this digest, without reading it.
func (s *Store) Has(d Digest) bool {
	st, err := os.Lstat(s.path(d))
	return err == nil && st.Mode().IsRegular()
}

// Get opens an object that it has verified, at its start. The caller closes it. An object that is not there is
// ResourceUnknown; one that is not what its name says is set aside and StateCorrupt.
func (s *Store) Get(d Digest) (*os.File, error) {
	f, err := s.open(d)
	if errors.Is(err, errCorrupt) {
		f, err = s.reopen(d)
	}
	if err == nil {
		return f, nil
	}
	doing := "read object " + d.String()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &reason.Error{Code: reason.ResourceUnknown, Doing: doing, Cause: err}
	}
	if !errors.Is(err, errCorrupt) {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: doing, Cause: err}
	}
	return nil, &reason.Error{
		Code: reason.StateCorrupt, Doing: doing, Cause: err,
		Hint: "it is kept in " + disk.Shown(filepath.Join(s.dir, corruptDir)) + "; check the file system and the device",
	}
}

// ReadAll returns a verified object of at most limit bytes; a larger one is BodyTooLarge.
func (s *Store) ReadAll(d Digest, limit int64) ([]byte, error) {
	f, err := s.Get(d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, &reason.Error{Code: reason.InputOutput, Doing: "read object " + d.String(), Cause: err}
	}
	if int64(len(b)) > limit {
		return nil, &reason.Error{
			Code: reason.BodyTooLarge, Doing: "read object " + d.String(),
			Hint: "it has more than " + strconv.FormatInt(limit, 10) + " bytes",
		}
	}
	return b, nil
}

// each visits all objects. A file that has no object's name is left alone: it is not ours.
func (s *Store) each(visit func(p string, d Digest, st fs.FileInfo) error) error {
	shards, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		if !shard.IsDir() || len(shard.Name()) != shardLen {
			continue
		}
		objects, err := os.ReadDir(filepath.Join(s.dir, shard.Name()))
		if err != nil {
			return err
		}
		for _, o := range objects {
			d, err := ParseDigest(digestPrefix + shard.Name() + o.Name())
			if err != nil {
				continue
			}
			st, err := o.Info()
			if err != nil {
				return err
			}
			if err := visit(filepath.Join(s.dir, shard.Name(), o.Name()), d, st); err != nil {
				return err
			}
		}
	}
	return nil
}

var errCorrupt = errors.New("content does not match its digest")

// open opens an object and verifies it.
func (s *Store) open(d Digest) (*os.File, error) {
	f, err := os.Open(s.path(d))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	_, err = io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, make([]byte, copyBuffer))
	if err == nil && Digest(sum.Sum(nil)) != d {
		err = errCorrupt
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// reopen looks at a corrupt object again, now that nobody can put a good one in its place, and sets it aside.
func (s *Store) reopen(d Digest) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.open(d)
	if errors.Is(err, errCorrupt) {
		err = errors.Join(err, s.setAside(d))
	}
	return f, err
}

func (s *Store) verify(d Digest) error {
	f, err := s.open(d)
	if err != nil {
		return err
	}
	return f.Close()
}

// setAside moves a corrupt object out of the way. A second one of the same digest takes the place of the first.
func (s *Store) setAside(d Digest) error {
	aside := filepath.Join(s.dir, corruptDir, d.hex())
	if st, err := os.Lstat(aside); err == nil {
		s.used -= st.Size()
	}
	return os.Rename(s.path(d), aside)
}

// shardLen is how many digits name the directory of an object: 16 directories keep each small enough, and are soon made.
const shardLen = 1

func (s *Store) path(d Digest) string {
	h := d.hex()
	return filepath.Join(s.dir, h[:shardLen], h[shardLen:])
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Sync(f)
}

func unstored(err error, hint string) error {
	return &reason.Error{Code: reason.BackupFailed, Doing: "store content", Cause: err, Hint: hint}
}

func unwritable(op, dir string, err error) error {
	return &reason.Error{Code: reason.StateUnwritable, Doing: op + " " + disk.Shown(dir), Cause: err, Hint: "the agent's user must own the directory"}
}
