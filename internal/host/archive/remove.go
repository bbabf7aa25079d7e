package archive

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// original is the stored form of what was at a path before tako changed it. Later versions read it too.
type original struct {
	Type string `json:"type"` // nothing, or directory: an empty one
	Mode string `json:"mode,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
}

const (
	nothing   = "nothing"
	directory = "directory"
)

// Original describes what is at the path: nothing, or an empty directory. Whatever else is there could not be put back.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	now, err := t.root.Stat(r.path)
	if err != nil {
		return nil, err
	}
	c, err := t.read(r.path)
	if err != nil {
		return nil, err
	}
	if !now.Exists() || c.at(now.Signature) != nil {
		return json.Marshal(original{Type: nothing})
	}
	empty, err := t.empty(r, now)
	if err != nil {
		return nil, err
	}
	if !empty {
		return nil, &reason.Error{Code: reason.DirectoryNotEmpty, Doing: r.doing(), Cause: standing(now.Kind()),
			Hint: "it could not be put back: declare another `onRemove` than restore, or move it away"}
	}
	return json.Marshal(original{Type: directory, Mode: modeText(now.Perm()), UID: now.UID, GID: now.GID})
}

// empty reports whether what stands at the path is an empty directory.
func (t *Type) empty(r *resource, now disk.Stat) (bool, error) {
	if now.Type() != unix.S_IFDIR {
		return false, nil
	}
	d, err := t.root.Dir(r.path)
	if err != nil {
		return false, err
	}
	defer d.Close()
	_, err = d.Names(0)
	if reason.Is(err, reason.BodyTooLarge) {
		return false, nil
	}
	return err == nil, err
}

// Remove removes the directory with all that was unpacked, and puts back an empty one where one was. One in which something has changed
// since is left alone.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	r.seen = disk.Signature{}
	before := original{Type: nothing}
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		if err := json.Unmarshal(originally, &before); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore " + disk.Shown(r.path), Cause: err}
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove " + disk.Shown(r.path), Cause: errors.New("onRemove is neither delete nor restore")}
	}
	if err := ctx.Err(); err != nil {
		return reason.Ended("remove "+disk.Shown(r.path), err)
	}
	t.working.Lock()
	defer t.working.Unlock()
	if err := t.delete(ctx, r, before); err != nil || before.Type != directory {
		return err
	}
	return t.restore(ctx, r, before)
}

// delete removes the directory. An empty one that is to be there stays.
func (t *Type) delete(ctx context.Context, r *resource, before original) error {
	c, err := t.read(r.path)
	if err != nil {
		return err
	}
	if err := t.sweep(ctx, &c); err != nil {
		return err
	}
	now, err := t.root.Stat(r.path)
	if err != nil || !now.Exists() {
		return err
	}
	doing := "remove what was unpacked to " + disk.Shown(r.path)
	m := c.at(now.Signature)
	if m == nil {
		empty, err := t.empty(r, now)
		switch {
		case err != nil:
			return err
		case !empty:
			return &reason.Error{Code: reason.TypeInTheWay, Doing: doing, Cause: standing(now.Kind() + " that was not unpacked here"), Hint: "move it away, or remove it"}
		case before.Type == directory:
			return nil
		}
		return durable.Remove(ctx, t.root, durable.RemoveSpec{Path: r.path, Expect: &now.Signature})
	}
	d, name, err := t.root.Parent(r.path)
	if err != nil {
		return err
	}
	defer d.Close()
	v := view{Type: t, r: r, dir: d, name: name, now: now}
	whole, err := v.untouched(ctx, m)
	if err != nil {
		return err
	}
	if !whole {
		return &reason.Error{Code: reason.DirectoryNotEmpty, Doing: doing, Cause: errors.New("something in it has changed since it was unpacked"), Hint: "look what is still needed, and remove the rest"}
	}
	return t.discard(ctx, r, now.Signature, &c)
}

// discard sets the directory aside in one step, and removes it then.
func (t *Type) discard(ctx context.Context, r *resource, now disk.Signature, c *record) error {
	_, name := disk.Split(r.path)
	l := left{Temp: disk.TempName(name), Inodes: []durable.Inode{durable.InodeOf(now)}}
	c.Left = append(c.Left, l)
	if err := t.write(ctx, c); err != nil {
		return err
	}
	if err := durable.SetAside(ctx, t.root, r.path, l.Temp, now); err != nil {
		return err
	}
	c.Made = nil
	return t.sweep(context.WithoutCancel(ctx), c)
}

// restore makes the empty directory that was there before.
func (t *Type) restore(ctx context.Context, r *resource, before original) error {
	perm, err := strconv.ParseUint(before.Mode, 8, 32)
	if err != nil || perm > disk.PermMask {
		return &reason.Error{Code: reason.RestoreLost, Doing: "restore " + disk.Shown(r.path), Cause: errors.New("its mode is none")}
	}
	now, err := t.root.Stat(r.path)
	if err != nil || now.Exists() {
		return err
	}
	_, err = durable.Mkdir(ctx, t.root, durable.MkdirSpec{Path: r.path, Mode: int(perm), UID: own(before.UID, t.uid), GID: own(before.GID, t.gid)})
	return err
}
