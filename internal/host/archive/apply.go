package archive

import (
	"context"
	"fmt"
	"os"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// leftMax bounds what may stand beside a directory and could not be removed: each is as large as the directory.
const leftMax = 2

// Apply unpacks archives, one after the other.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	t.working.Lock()
	defer t.working.Unlock()
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		results[i] = t.apply(ctx, p.Resource.(*resource), p.State.(step))
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource, s step) host.Result {
	if err := ctx.Err(); err != nil {
		return host.Result{Err: reason.Ended(r.doing(), err)}
	}
	now, err := t.root.Stat(r.path)
	if err == nil && now.Signature != s.found {
		err = disk.Stale("replace directory", r.path)
	}
	if err != nil {
		return host.Result{Err: err}
	}
	if !s.anew {
		return t.attributes(ctx, r, s.found)
	}
	c, err := t.read(r.path)
	if err != nil {
		return host.Result{Err: err}
	}
	if err := t.sweep(ctx, &c); err != nil && len(c.Left) >= leftMax {
		return host.Result{Err: err}
	}
	f, err := t.open(r)
	if err != nil {
		return host.Result{Err: err}
	}
	defer f.Close()
	return t.renew(ctx, r, s.found, &c, f)
}

func (t *Type) attributes(ctx context.Context, r *resource, found disk.Signature) host.Result {
	spec := durable.AttributeSpec{Path: r.path, Mode: int(r.mode()), UID: durable.Keep, GID: durable.Keep, Expect: &found}
	if found.UID != r.uid {
		spec.UID = int(r.uid)
	}
	if found.GID != r.gid {
		spec.GID = int(r.gid)
	}
	sig, err := durable.SetAttributes(ctx, t.root, spec)
	r.seen, r.settled = sig, false
	now, _ := t.root.Stat(r.path)
	return host.Result{Err: err, Changed: err == nil || now.Signature != found}
}

// renew puts a new directory in the place of what was found.
func (t *Type) renew(ctx context.Context, r *resource, found disk.Signature, c *record, f *os.File) host.Result {
	tree, err := durable.BeginTree(ctx, t.root, r.path)
	if err != nil {
		return host.Result{Err: err}
	}
	defer tree.Close()
	var before []made
	if m := c.at(found); m != nil {
		before = []made{*m}
	}
	l := left{Temp: tree.Temp(), Inodes: []durable.Inode{tree.Inode()}}
	if found.Exists() {
		l.Inodes = append(l.Inodes, durable.InodeOf(found))
	}
	c.Made, c.Left = before, append(c.Left, l)
	m, files, err := t.fill(ctx, r, c, tree, f)
	var sig disk.Signature
	if err == nil {
		c.Made = append(before, m)
		if err = t.write(ctx, c); err == nil {
			sig, err = tree.Settle(durable.TreeSpec{Mode: int(r.mode()), UID: own(r.uid, t.uid), GID: own(r.gid, t.gid), Expect: found})
		}
	}
	now, statErr := t.root.Stat(r.path)
	result := host.Result{Err: err, Changed: statErr == nil && durable.InodeOf(now.Signature) == tree.Inode()}
	if c.Made = before; result.Changed {
		c.Made = []made{m}
		result.Note = fmt.Sprintf("%d entries, %d bytes", files, m.Bytes)
	}
	// Also when the context has ended: what is not needed takes room.
	if sweepErr := t.sweep(context.WithoutCancel(ctx), c); sweepErr != nil {
		if len(c.Left) > 0 {
			result.Note += "; the old directory could not be removed, which is tried again: " + sweepErr.Error()
		} else if result.Err == nil {
			result.Err = sweepErr
		}
	}
	if result.Err == nil {
		r.seen, r.settled, r.quick = sig, false, imprint{}
	}
	return result
}

// own is an owner to set: none where it is the agent's own, because setting it may not be permitted.
func own(id, mine uint32) int {
	if id == mine {
		return durable.Keep
	}
	return int(id)
}

// fill unpacks into a tree that was noted before, and takes its imprints.
func (t *Type) fill(ctx context.Context, r *resource, c *record, tree *durable.Tree, f *os.File) (m made, entries int, err error) {
	if err := t.write(ctx, c); err != nil {
		return m, 0, err
	}
	opened, err := disk.StatAt(int(f.Fd()), "")
	if err != nil {
		return m, 0, disk.Fault("read", f.Name(), err)
	}
	if err := content.Spare(disk.ProcPath(tree.FD()), opened.Size); err != nil {
		return m, 0, err
	}
	s := &sink{doing: r.doing(), root: tree.FD(), strip: r.strip, umask: r.umask, uid: own(r.uid, t.uid), gid: own(r.gid, t.gid), bytesMax: r.bytesMax, archive: opened.Size, dirFD: -1}
	defer s.close()
	if err := unpack(ctx, f, opened.Size, s); err != nil {
		return m, 0, err
	}
	if err := t.same(ctx, r, f, opened.Signature); err != nil {
		return m, 0, err
	}
	m = made{Inode: tree.Inode(), Recipe: r.recipe(), Bytes: s.written + s.linked, Digest: r.digest.String()}
	if m.Imprints.Quick, err = imprintOf(ctx, tree.FD(), false, m.Bytes); err == nil {
		m.Imprints.Full, err = imprintOf(ctx, tree.FD(), true, m.Bytes)
	}
	return m, s.entries, disk.Fault("look at what was unpacked to", r.path, err)
}
