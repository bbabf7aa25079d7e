package mount

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/reason"
)

const (
	// fstabBytesMax bounds what is read of fstab: 10,000 lines have 1 MB.
	fstabBytesMax = 8 << 20
	// editTries bounds how often fstab is edited anew because somebody else has written it.
	editTries = 5
)

// fstab is the file that both types edit, and who reads it.
type fstab struct {
	root  *disk.Root
	store *content.Store // or nil
	bus   bus            // nil where there is no systemd
	// Sweeper is for what a killed run has left beside fstab, and beside files that are swapped to.
	*durable.Sweeper

	edit sync.Mutex // held while fstab is edited
}

// text is a file as it was read.
type text struct {
	sig   disk.Signature
	mount bool // it is mounted by itself, as containers have it, and cannot be replaced
	body  string
}

// readFile reads a file; one that is not there is empty.
func (f *fstab) readFile(p string) (*text, error) {
	x := &text{}
	d, name, err := f.root.Parent(p)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil || !st.Exists() {
		return x, err
	}
	b, st, err := d.ReadFile(name, fstabBytesMax)
	if err != nil {
		return nil, err
	}
	x.sig, x.mount, x.body = st.Signature, st.MountRoot, string(b)
	return x, nil
}

// editLines changes lines of fstab, and nothing else of it. change is called again with what is there then when somebody else has written.
func (f *fstab) editLines(ctx context.Context, done *work, change func([]fstabLine) []fstabLine) error {
	f.edit.Lock()
	defer f.edit.Unlock()
	var err error
	for range editTries {
		var old *text
		if old, err = f.readFile(fstabFile); err != nil {
			return err
		}
		body := joinFstab(change(parseFstab(old.body)))
		if body == old.body {
			return nil
		}
		if err = f.Beside(ctx, fstabFile); err != nil {
			return err
		}
		var res durable.WriteResult
		res, err = durable.Write(ctx, f.root, durable.WriteSpec{Path: fstabFile, Content: strings.NewReader(body), Size: int64(len(body)),
			Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep, Expect: &old.sig, InPlace: old.mount, OnBackup: f.store.Keeper(ctx, fstabFile)})
		done.changed, done.stale = done.changed || res.Changed, done.stale || res.Changed
		if !reason.Is(err, reason.ConcurrentEdit) {
			return err
		}
	}
	return err
}

// reload has systemd read fstab, where there is a systemd.
func (f *fstab) reload(ctx context.Context) error {
	if f.bus == nil {
		return nil
	}
	if err := f.bus.Reload(ctx); !reason.Is(err, reason.NoSystemd) {
		return err
	}
	return nil
}

// unsafe says why the way to a path may be another one by the time that a program goes it; "" where only root can change it. The last part
// may be a link where leaf says so.
func (f *fstab) unsafe(p string, leaf bool) (string, error) {
	d, err := f.root.Dir("/")
	if err != nil {
		return "", err
	}
	defer func() { _ = d.Close() }() // nothing was written
	above, err := f.root.Stat("/")
	if err != nil {
		return "", err
	}
	names := strings.Split(strings.TrimPrefix(p, "/"), "/")
	for i, name := range names {
		last := i == len(names)-1
		st, err := d.Stat(name)
		if err != nil {
			return "", err
		}
		where := d.Join(name)
		if why := movable(above, st); why != "" {
			return d.Path() + " " + why, nil
		}
		if st.Type() == unix.S_IFLNK && !(last && leaf) {
			target, err := d.Readlink(name)
			return where + " is a link to " + disk.Shown(target), err
		}
		if last || st.Type() != unix.S_IFDIR {
			return "", nil
		}
		sub, err := d.Sub(name)
		if err != nil {
			return "", err
		}
		_ = d.Close() // nothing was written
		d, above = sub, st
	}
	return "", nil
}

// movable says why somebody other than root may put something else in the place of an entry; "" where nobody may.
func movable(dir, entry disk.Stat) string {
	own := uint32(unix.Geteuid())
	trusted := func(uid uint32) bool { return uid == 0 || uid == own }
	switch {
	case !trusted(dir.UID):
		return "belongs to another user than root"
	case dir.Perm()&0o022 == 0: // with an access list, the bits of the group are what it allows at most
		return ""
	case dir.Perm()&unix.S_ISVTX != 0 && (!entry.Exists() || trusted(entry.UID)):
		return ""
	}
	return "may be written to by others than root"
}

// unsafeError is the error of a path that is unsafe.
func unsafeError(doing, why string) error {
	hint := "use a directory that only root may write to on the whole way: /srv/..., /mnt/..."
	if link, target, ok := strings.Cut(why, " is a link to "); ok {
		hint = "declare the path that " + link + " leads to: " + target
	}
	return &reason.Error{Code: reason.MountPointUnsafe, Doing: doing, Cause: errors.New(why), Hint: hint}
}

// keepsake is the stored form of what was there.
type keepsake struct {
	Was   json.RawMessage `json:"was"`
	Lines []oldLine       `json:"lines"`
}

func marshal(was any, lines []oldLine) ([]byte, error) {
	b, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	return json.Marshal(keepsake{Was: b, Lines: lines})
}

// unmarshal reads what an original has kept.
func unmarshal(doing string, original []byte, was any) ([]oldLine, error) {
	var k keepsake
	err := json.Unmarshal(original, &k)
	if err == nil {
		err = json.Unmarshal(k.Was, was)
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.RestoreLost, Doing: "undo: " + doing, Cause: err}
	}
	return k.Lines, nil
}
