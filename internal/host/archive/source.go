package archive

import (
	"context"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// reread finds out what the archive holds now, if that is a file which is not as it was.
func (t *Type) reread(r *resource, depth host.Depth) error {
	if r.source == "" {
		return nil
	}
	d, name, err := t.root.Parent(r.source)
	if reason.Is(err, reason.ParentMissing) {
		return r.missing(nil)
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
		return r.missing(errors.New("a " + now.Kind() + " is there"))
	}
	if depth == host.Shallow && now.Signature == r.sourceSeen {
		return nil
	}
	if err := t.trusted(r, d, now); err != nil {
		return err
	}
	if now.Signature == r.sourceSeen {
		return nil // nobody else can change it, and a change shows in its signature
	}
	began := disk.Tick()
	digest, now, err := disk.NewHasher().File(d, name, now.Size)
	if err != nil {
		return err
	}
	r.digest, r.size, r.sourceSeen = digest, now.Size, now.Signature
	if now.Ctime >= began {
		// Another change may come in this tick of the clock, and leave the same signature: it is hashed once more.
		r.sourceSeen = disk.Signature{}
	}
	return nil
}

func (r *resource) missing(cause error) error {
	return &reason.Error{Code: reason.SourceMissing, Doing: r.doing() + " from " + disk.Shown(r.source), Cause: cause, Hint: "put the file there; what makes it can be named in `require`"}
}

// trusted refuses an archive that others may change, or have put there: they could have any file of the host copied.
func (t *Type) trusted(r *resource, d *disk.Dir, now disk.Stat) error {
	dir, err := d.Stat("")
	if err != nil {
		return err
	}
	if st, foreign := disk.Foreign(t.uid, dir, now); foreign {
		return &reason.Error{Code: reason.SourceUntrusted, Doing: r.doing() + " from " + disk.Shown(r.source),
			Cause: errors.New("the " + st.Kind() + " belongs to uid " + strconv.FormatUint(uint64(st.UID), 10) + " and has mode " + modeText(st.Perm())),
			Hint:  "let the file and its directory belong to root, and nobody else write there"}
	}
	return nil
}

// open opens the archive as it was looked at.
func (t *Type) open(r *resource) (*os.File, error) {
	if r.source == "" {
		if t.objects == nil {
			return nil, &reason.Error{Code: reason.ObjectMissing, Doing: r.doing(), Cause: errors.New("there is no store of objects")}
		}
		return t.objects.Open(content.Wanted{Digest: r.digest, Size: r.size, Claim: r.key})
	}
	d, name, err := t.root.Parent(r.source)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	f, _, err := d.Open(name)
	return f, err
}

// same makes sure that what was unpacked is what was hashed. An object was verified when it was opened.
func (t *Type) same(ctx context.Context, r *resource, f *os.File, opened disk.Signature) error {
	if r.source == "" {
		return nil
	}
	st, err := disk.StatAt(int(f.Fd()), "")
	if err == nil && st.Signature != opened {
		err = disk.Stale("read", r.source)
	}
	if err != nil || r.sourceSeen == opened {
		return err
	}
	// It was hashed in the tick in which it had changed.
	sum, _, err := content.SumOf(ctx, f)
	if err == nil && sum != r.digest {
		err = disk.Stale("read", r.source)
	}
	return err
}

// modeText writes permissions as people declare them.
func modeText(perm uint32) string {
	s := strconv.FormatUint(uint64(perm&disk.PermMask), 8)
	for len(s) < 4 {
		s = "0" + s
	}
	return s
}
