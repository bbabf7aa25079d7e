package file

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// largeMax is how large an old content is kept where the new one is not from a declaration: such files may be larger than all that the
// store can hold, and what made one of them can make it again.
const largeMax = 64 << 20

// origin is where the bytes of a file come from that are not in its declaration. They are never in memory as a whole.
type origin struct {
	// path is a file of the host; empty for an object, which is named by the resource's digest.
	path string
	key  string // of the resource, for who gives the object out
	// seen is the source as it was hashed last; settled says that no later change can leave this signature.
	seen    disk.Signature
	settled bool
}

// originOf makes what a declared file comes from; nil where that is the declaration. It fills in what is known of the content.
func (t *Type) originOf(r *resource, d *host.Declared) error {
	f := d.Resource.File
	object := f.Object()
	if p := f.SourcePath(); p != "" {
		r.fill().from = &origin{path: p}
	}
	if object == nil {
		return nil
	}
	digest, err := content.ParseDigest(object.Digest)
	if err != nil {
		return err
	}
	r.fill().from = &origin{key: d.Key}
	r.digest, r.size = digest, object.SizeBytes
	if t.objects != nil {
		t.objects.Use(digest)
		runtime.AddCleanup(r, t.objects.Release, digest)
	}
	return nil
}

// watches names the source.
func (o *origin) watches() []host.Watch {
	if o == nil || o.path == "" {
		return nil
	}
	return []host.Watch{{Kind: host.WatchPath, Name: o.path}}
}

// reread finds out what the source of a resource holds now, if that is a file which is not as it was.
func (l *looker) reread(r *resource) error {
	o := r.rare().from
	if o == nil || o.path == "" {
		return nil
	}
	d, name, err := l.t.root.Parent(o.path)
	if reason.Is(err, reason.ParentMissing) {
		return o.missing(r, nil)
	}
	if err != nil {
		return err
	}
	defer d.Close()
	now, err := d.Stat(name)
	if err != nil {
		return err
	}
	if now.Type() != unix.S_IFREG {
		return o.missing(r, isThere(now.Kind()))
	}
	if now.Signature == o.seen && o.settled && l.depth == host.Shallow {
		return nil
	}
	if err := l.t.trusted(r, d, now); err != nil {
		return err
	}
	if l.hasher == nil {
		l.hasher = disk.NewHasher()
	}
	digest, now, err := l.hasher.File(d, name, now.Size)
	if err != nil {
		return err
	}
	if r.digest != digest || r.size != now.Size {
		r.digest, r.size = digest, now.Size
		r.remember(disk.Signature{}, false)
	}
	o.seen, o.settled = now.Signature, now.Ctime < l.now
	return nil
}

func (o *origin) missing(r *resource, cause error) error {
	return &reason.Error{Code: reason.SourceMissing, Doing: r.doing() + " from " + disk.Shown(o.path), Cause: cause, Hint: "put the file there; what makes it can be named in `require`"}
}

// trusted refuses a source that others may change, or have put there: they could have any file of the host copied.
func (t *Type) trusted(r *resource, d *disk.Dir, now disk.Stat) error {
	dir, err := d.Stat("")
	if err != nil {
		return err
	}
	if st, foreign := disk.Foreign(t.uid, dir, now); foreign {
		return &reason.Error{Code: reason.SourceUntrusted, Doing: r.doing() + " from " + disk.Shown(r.rare().from.path),
			Cause: errors.New("the " + st.Kind() + " belongs to " + t.owners.name(users, st.UID) + " and has mode " + modeText(st.Perm())),
			Hint:  "let the file and its directory belong to root, and nobody else write there"}
	}
	return nil
}

// open opens the bytes of a resource. Whoever reads them from the start to the end finds out if they are others than those of its digest.
func (t *Type) open(r *resource) (*verifying, error) {
	if r.rare().from.path == "" {
		if t.objects == nil {
			return nil, &reason.Error{Code: reason.ObjectMissing, Doing: r.doing(), Cause: errors.New("there is no store of objects")}
		}
		f, err := t.objects.Open(content.Wanted{Digest: r.digest, Size: r.size, Claim: r.rare().from.key})
		return newVerifying(r, f), err
	}
	d, name, err := t.root.Parent(r.rare().from.path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, st, err := d.Open(name)
	if err == nil && st.Signature != r.rare().from.seen {
		f.Close()
		err = disk.Stale("read", r.rare().from.path)
	}
	return newVerifying(r, f), err
}

// verifying is a file that is read once, from its start to its end, and then must have been what its resource says.
type verifying struct {
	r    *resource
	file *os.File
	sum  hash.Hash
	at   int64
}

func newVerifying(r *resource, f *os.File) *verifying {
	return &verifying{r: r, file: f, sum: sha256.New()}
}

// ReadAt reads what comes next. The last piece is only given out if all of them are what was wanted.
func (v *verifying) ReadAt(p []byte, at int64) (int, error) {
	if at == 0 {
		v.at = 0
		v.sum.Reset()
	}
	if at != v.at {
		return 0, &reason.Error{Code: reason.InternalFault, Doing: v.r.doing(), Cause: errors.New("it is not read in order")}
	}
	n, err := v.file.ReadAt(p, at)
	v.sum.Write(p[:n])
	v.at += int64(n)
	if v.at >= v.r.size && content.Digest(v.sum.Sum(nil)) != v.r.digest {
		return 0, &reason.Error{Code: reason.ContentMismatch, Doing: v.r.doing(), Cause: errors.New("what was read is not what was hashed before")}
	}
	if errors.Is(err, io.EOF) && v.at == v.r.size {
		err = nil
	}
	return n, err
}

// Close closes the file.
func (v *verifying) Close() error { return v.file.Close() }
