package all

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

// Restorer puts old contents back, for a person who asks for it. It may work beside an agent.
type Restorer struct {
	root  *disk.Root
	store *content.Store
}

// OpenRestorer opens what puts old contents back on a host, also beside an agent that keeps it.
func OpenRestorer(o Options) (*Restorer, error) {
	store, err := content.Beside(filepath.Join(o.StateDir, "content"))
	if err != nil {
		return nil, err
	}
	root, err := disk.OpenRoot(o.Root)
	if err != nil {
		return nil, err
	}
	return &Restorer{root: root, store: store}, nil
}

// Close gives the root back.
func (r *Restorer) Close() error { return r.root.Close() }

// Versions lists what has stood at a path and is still kept, the newest first.
func (r *Restorer) Versions(path string) ([]content.Version, error) {
	if err := disk.ValidPath(path); err != nil {
		return nil, err
	}
	return r.store.Versions(path)
}

// Kept returns the version of a digest that is kept, wherever it stood: only its content is known then.
func (r *Restorer) Kept(digest string) (content.Version, bool) {
	d, err := content.ParseDigest(digest)
	if err != nil || !r.store.Has(d) {
		return content.Version{}, false
	}
	return content.Version{Digest: d, Mode: modePrivate, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, true
}

// modePrivate is the mode of a content of which no other is known.
const modePrivate = 0o600

// Differs reports whether a version is another content than what is at a path now.
func (r *Restorer) Differs(path string, v content.Version) (bool, error) {
	d, name, err := r.root.Parent(path)
	if reason.Is(err, reason.ParentMissing) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	now, err := d.Stat(name)
	if err != nil || now.Type() != unix.S_IFREG {
		return true, err
	}
	sum, _, err := disk.NewHasher().File(d, name, now.Size)
	return content.Digest(sum) != v.Digest, err
}

// Restore puts a version back at a path. A file that is there keeps its owner and mode; where nothing is, the version's come back, too. keep
// says that the content which is there now is not lost: it is kept, unless only its owner may read it. note says what became of it.
func (r *Restorer) Restore(ctx context.Context, path string, v content.Version, keep bool) (note string, err error) {
	doing := "restore " + disk.Shown(path)
	now, err := r.root.Stat(path)
	if err != nil {
		return "", err
	}
	if now.Exists() && now.Type() != unix.S_IFREG {
		return "", &reason.Error{Code: reason.TypeInTheWay, Doing: doing, Cause: errors.New("a " + now.Kind() + " is there"), Hint: "move it away first"}
	}
	f, err := r.store.Get(v.Digest)
	if err != nil {
		return "", &reason.Error{Code: reason.RestoreLost, Doing: doing, Cause: err}
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return "", disk.Fault("read", f.Name(), err)
	}
	spec := durable.WriteSpec{Path: path, Content: f, Size: size, Mode: int(v.Mode), UID: int(v.UID), GID: int(v.GID), Expect: &now.Signature}
	if now.Exists() {
		spec.Mode, spec.UID, spec.GID = int(now.Perm()), int(now.UID), int(now.GID)
	} else if os.Geteuid() != 0 {
		spec.UID, spec.GID = durable.Keep, durable.Keep
	}
	if keep {
		spec.OnBackup = func(old *os.File, st disk.Stat) error {
			note, err = r.keep(ctx, path, old, st)
			return err
		}
	}
	return note, durable.WriteAll(ctx, r.root, []durable.WriteSpec{spec})[0].Err
}

// keep keeps what is there now.
func (r *Restorer) keep(ctx context.Context, path string, old *os.File, st disk.Stat) (note string, err error) {
	const others = 0o077
	switch {
	case st.Size == 0:
		return "", nil
	case st.Mode&others == 0:
		return "what was there is not kept, because only its owner may read it", nil
	}
	digest, _, err := r.store.Keep(ctx, content.Version{Path: []byte(path), Mode: st.Perm(), UID: st.UID, GID: st.GID}, old)
	if err != nil {
		return "", &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(path), Cause: err}
	}
	return fmt.Sprintf("what was there is kept as %s", digest), nil
}
