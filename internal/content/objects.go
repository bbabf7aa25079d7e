package content

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	// objectsQuota is room for the largest object four times over.
	objectsQuota = 4 << 30
	partDir      = "part"
	// partAge is how long a part that nobody has gone on with stays.
	partAge = 7 * 24 * time.Hour
	// comingAgain is when to look again for what is being fetched. Nothing is looked at where nothing is.
	comingAgain = 2 * time.Second
	// wantedMax bounds what is asked for at once: ours, far above what one state has anew.
	wantedMax = 1000
)

// Wanted is an object that a host needs and does not have.
type Wanted struct {
	Digest Digest
	Size   int64
	// Claim is the resource that it is for, as text: whoever gives it out looks there whether the host may have it.
	Claim string
}

// Objects are the large contents that a host's declarations name: a store of its own, so that the old contents of files have theirs. Who
// needs one that is not here asks for it by Open; who fetches them (Wanted, Part, Add) is another's business. Its methods may be called from
// several goroutines.
type Objects struct {
	store *Store

	mu      sync.Mutex // guards what follows
	used    map[Digest]int
	wanted  map[Digest]*want
	fetched bool          // somebody fetches
	news    chan struct{} // has something when wanted has; room for one
}

// want is what is asked for, and why it did not come.
type want struct {
	Wanted
	err   *reason.Error
	after time.Duration
}

// OpenObjects opens the objects in a directory, see Open.
func OpenObjects(dir string, opts Options) (*Objects, error) {
	opts.QuotaBytes = cmp.Or(opts.QuotaBytes, objectsQuota)
	s, err := Open(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(s.dir, partDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, unwritable("open objects", s.dir, err)
	}
	return &Objects{store: s, used: map[Digest]int{}, wanted: map[Digest]*want{}, news: make(chan struct{}, 1)}, nil
}

// Use notes that something is made of an object, which is kept until release is called.
func (o *Objects) Use(d Digest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used[d]++
}

// Release undoes one Use.
func (o *Objects) Release(d Digest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.used[d]--; o.used[d] <= 0 {
		delete(o.used, d)
		delete(o.wanted, d)
	}
}

// Has reports whether an object is here.
func (o *Objects) Has(d Digest) bool { return o.store.Has(d) }

// Open opens an object that it has verified, at its start. The caller closes it. One that is not here is asked for, and is ObjectComing;
// ObjectMissing where nobody fetches, or nobody has it. One of another size is ContentMismatch.
func (o *Objects) Open(w Wanted) (*os.File, error) {
	f, err := o.store.Get(w.Digest)
	switch {
	case err == nil:
		return f, sized(f, w)
	case reason.Is(err, reason.ResourceUnknown), reason.Is(err, reason.StateCorrupt):
		return nil, o.ask(w) // what was damaged is fetched anew
	}
	return nil, err
}

// sized refuses an object of another size, and closes it.
func sized(f *os.File, w Wanted) error {
	st, err := f.Stat()
	if err == nil && st.Size() == w.Size {
		return nil
	}
	f.Close()
	if err != nil {
		return &reason.Error{Code: reason.InputOutput, Doing: "read object " + w.Digest.String(), Cause: err}
	}
	return wrongSize(w, st.Size())
}

func (o *Objects) ask(w Wanted) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	doing := "fetch object " + w.Digest.String()
	if !o.fetched {
		return &reason.Error{Code: reason.ObjectMissing, Doing: doing, Cause: errors.New("this host has no server to fetch it from"), Hint: "write `path` instead of `object`"}
	}
	have := o.wanted[w.Digest]
	if have == nil {
		if len(o.wanted) >= wantedMax {
			return &reason.Error{Code: reason.ObjectComing, Doing: doing, Cause: errors.New("many others come first"), After: comingAgain}
		}
		have = &want{Wanted: w}
		o.wanted[w.Digest] = have
		select {
		case o.news <- struct{}{}:
		default:
		}
	}
	if have.err == nil {
		return &reason.Error{Code: reason.ObjectComing, Doing: doing, After: comingAgain}
	}
	e := *have.err
	if e.Entry().Outcome != reason.Failed {
		e.Code = reason.ObjectComing
	}
	e.After = max(comingAgain, have.after)
	return &e
}

// Fetched says that somebody fetches from now on, and returns what has something when there may be more in Wanted.
func (o *Objects) Fetched() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fetched = true
	return o.news
}

// Wanted returns what is asked for, in no order.
func (o *Objects) Wanted() []Wanted {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]Wanted, 0, len(o.wanted))
	for _, w := range o.wanted {
		list = append(list, w.Wanted)
	}
	return list
}

// Failed notes why an object did not come, and when it will be tried again.
func (o *Objects) Failed(d Digest, err *reason.Error, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.wanted[d]; w != nil {
		w.err, w.after = err, after
	}
}

// Part opens what has come of an object so far, for appending; at is its length. The caller closes it.
func (o *Objects) Part(d Digest) (f *os.File, at int64, err error) {
	f, err = os.OpenFile(o.partPath(d), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		at, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, 0, ofObject(d, unstored(err, ""))
	}
	return f, at, nil
}

// Room says whether there is room for so many bytes more: below the quota, and on the disk.
func (o *Objects) Room(w Wanted) error {
	s := o.store
	if err := s.reserve(w.Size); err != nil {
		return ofObject(w.Digest, err)
	}
	s.release(w.Size)
	return Spare(s.dir, w.Size)
}

// Add makes what has come an object, if it is all of it, see Store.Adopt. It is not asked for any more then.
func (o *Objects) Add(ctx context.Context, w Wanted) error {
	if err := o.store.Adopt(ctx, o.partPath(w.Digest), w.Digest, w.Size); err != nil {
		return ofObject(w.Digest, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.wanted, w.Digest)
	return nil
}

// Discard throws away what has come of an object.
func (o *Objects) Discard(d Digest) error {
	if err := os.Remove(o.partPath(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return ofObject(d, unstored(err, ""))
	}
	return nil
}

// Trim removes what nothing is made of any more, see Store.Trim, and parts that nobody has gone on with.
func (o *Objects) Trim(now time.Time) error {
	_, _, err := o.store.Trim(now, func(d Digest) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.used[d] > 0
	})
	parts, listErr := os.ReadDir(filepath.Join(o.store.dir, partDir))
	err = errors.Join(err, listErr)
	for _, p := range parts {
		if st, statErr := p.Info(); statErr == nil && now.Sub(st.ModTime()) > partAge {
			err = errors.Join(err, os.Remove(filepath.Join(o.store.dir, partDir, p.Name())))
		}
	}
	return err
}

// Used lists what something is made of.
func (o *Objects) Used() []Digest {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]Digest, 0, len(o.used))
	for d := range o.used {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Digest) int { return slices.Compare(a[:], b[:]) })
	return list
}

func (o *Objects) partPath(d Digest) string { return filepath.Join(o.store.dir, partDir, d.hex()) }

// ofObject is an error of the store as one of an object.
func ofObject(d Digest, err error) error {
	e := *reason.Of(err)
	if e.Code == reason.BackupFailed {
		e.Code, e.Doing, e.Hint = reason.ObjectUnstored, "store object "+d.String(), "free space on the file system of the state directory"
	}
	return &e
}

func wrongSize(w Wanted, got int64) error {
	return &reason.Error{Code: reason.ContentMismatch, Doing: "read object " + w.Digest.String(), Cause: sizeError{got: got, want: w.Size}, Hint: "correct `sizeBytes`"}
}

// Look opens an object without reading it: for who hands it on to somebody who verifies it. The caller closes it. One that is not here is
// ObjectMissing.
func (o *Objects) Look(d Digest) (*os.File, error) {
	f, err := os.Open(o.store.path(d))
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, &reason.Error{Code: reason.ObjectMissing, Doing: "open object " + d.String(), Hint: "put it there: tako content put FILE"}
	}
	return nil, &reason.Error{Code: reason.InputOutput, Doing: "open object " + d.String(), Cause: err}
}

// Keep says what is used, all of it, in place of Use and Release: from now on an object is as old as the time since it was in such a set.
func (o *Objects) Keep(used map[Digest]bool, now time.Time) error {
	o.mu.Lock()
	o.used = make(map[Digest]int, len(used))
	for d := range used {
		o.used[d] = 1
	}
	o.mu.Unlock()
	var errs []error
	for d := range used {
		if err := os.Chtimes(o.store.path(d), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, &reason.Error{Code: reason.InputOutput, Doing: "keep object " + d.String(), Cause: err})
		}
	}
	return errors.Join(errs...)
}

// Size is how many bytes all objects have.
func (o *Objects) Size() int64 { return o.store.Size() }
