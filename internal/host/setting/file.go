package setting

import (
	"context"
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

const (
	// textBytesMax bounds what is read of a file: a hosts file that blocks a million names has 30 MB.
	textBytesMax = 32 << 20
	// newDirMode is what directories of settings have.
	newDirMode = 0o755
)

// text is a file as it was read.
type text struct {
	path  string
	sig   disk.Signature
	mount bool // it is mounted by itself, as containers have it, and cannot be replaced
	body  string
}

func (f *text) there() bool { return f.sig.Exists() }

// read reads a file; one that is not there is empty.
func (t *Type) read(p string) (*text, error) {
	f := &text{path: p}
	d, name, err := t.root.Parent(p)
	if reason.Is(err, reason.ParentMissing) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || !st.Exists() {
		return f, err
	}
	b, st, err := d.ReadFile(name, textBytesMax)
	if err != nil {
		return nil, err
	}
	f.sig, f.mount, f.body = st.Signature, st.MountRoot, string(b)
	return f, nil
}

// write gives a file that was read another content. Owner, mode and attributes stay; a new one is the agent's with mode 0644.
func (t *Type) write(ctx context.Context, f *text, body string) (changed bool, err error) {
	if f.there() && f.body == body {
		return false, nil
	}
	if !f.there() {
		if err := t.makeDirectory(ctx, path.Dir(f.path)); err != nil {
			return false, err
		}
	}
	if err := t.Beside(ctx, f.path); err != nil {
		return false, err
	}
	res, err := durable.Write(ctx, t.root, durable.WriteSpec{
		Path: f.path, Content: strings.NewReader(body), Size: int64(len(body)), Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep,
		Expect: &f.sig, InPlace: f.mount, OnBackup: t.store.Keeper(ctx, f.path),
	})
	return res.Changed, err
}

// remove removes a file that was read. One that is mounted by itself is emptied.
func (t *Type) remove(ctx context.Context, f *text) (changed bool, err error) {
	switch {
	case !f.there():
		return false, nil
	case f.mount:
		return t.write(ctx, f, "")
	}
	err = durable.Remove(ctx, t.root, durable.RemoveSpec{Path: f.path, Expect: &f.sig, OnBackup: t.store.Keeper(ctx, f.path)})
	return err == nil, err
}

// put makes a file be as it was: with a body, or not there.
func (t *Type) put(ctx context.Context, p string, body *string) error {
	f, err := t.read(p)
	switch {
	case err != nil:
		return err
	case body == nil:
		_, err = t.remove(ctx, f)
	default:
		_, err = t.write(ctx, f, *body)
	}
	return err
}

// makeDirectory makes a directory that is missing, with those above it.
func (t *Type) makeDirectory(ctx context.Context, dir string) error {
	st, err := t.root.Stat(dir)
	if err != nil || st.Exists() || dir == "/" {
		return err
	}
	if err := t.makeDirectory(ctx, path.Dir(dir)); err != nil {
		return err
	}
	if err := t.Beside(ctx, dir); err != nil {
		return err
	}
	_, err = durable.Mkdir(ctx, t.root, durable.MkdirSpec{Path: dir, Mode: newDirMode, UID: durable.Keep, GID: durable.Keep})
	if reason.Is(err, reason.ConcurrentEdit) {
		return nil // somebody else has made it
	}
	return err
}

// linksMax bounds a way over links, as the kernel does, path_resolution(7).
const linksMax = 40

// follow finds what a path leads to in the root, over links in its last part. It is for directories of root's own.
func (t *Type) follow(p string) (string, disk.Stat, error) {
	for range linksMax {
		st, err := t.root.Stat(p)
		if err != nil || st.Type() != unix.S_IFLNK {
			return p, st, err
		}
		d, name, err := t.root.Parent(p)
		if err != nil {
			return p, st, err
		}
		target, err := d.Readlink(name)
		_ = d.Close() // nothing was written
		if err != nil {
			return p, st, err
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(p), target)
		}
		p = path.Clean(target)
	}
	return p, disk.Stat{}, &reason.Error{Code: reason.UntrustedSymlink, Doing: "follow " + shown(p), Cause: errors.New("too many links")}
}
