package repository

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// leave removes a repository, with its keys and what was fetched of it.
func (j *job) leave(ctx context.Context) error {
	gone := j.mentionsOf(j.now.file)
	if j.now.file.sig.Exists() {
		if err := j.drop(ctx, j.file, j.now.file); err != nil {
			return err
		}
	}
	if j.now.key.sig.Exists() && !j.now.keyUsed {
		if err := j.drop(ctx, j.keyFile, j.now.key); err != nil {
			return err
		}
	}
	return j.forget(ctx, gone)
}

// mentionsOf is what the repository's file says, whoever has written it.
func (j *job) mentionsOf(file view) []mention {
	if !file.sig.Exists() {
		return j.own
	}
	return append(j.parse(j.file, file.text), j.own...)
}

func (j *job) drop(ctx context.Context, p string, now view) error {
	err := durable.Remove(ctx, j.root, durable.RemoveSpec{Path: p, Expect: &now.sig, OnBackup: j.keeper(ctx, p)})
	j.changed = j.changed || err == nil
	return err
}

// forget removes what was fetched of places that no file names any more.
func (j *job) forget(ctx context.Context, gone []mention) error {
	if j.sandbox() || len(gone) == 0 {
		return nil
	}
	c := j.newCall()
	others, err := c.mentionsBeside(j.resource)
	if err != nil {
		return err
	}
	now, err := c.view(j.file)
	if err != nil {
		return err
	}
	if now.sig.Exists() { // it was put back, and may name the same places
		others = append(others, j.parse("", now.text)...)
	}
	paths, err := j.leftovers(j.Type, j.name, gone, others)
	if err != nil {
		return err
	}
	return j.removeAll(ctx, paths)
}

// removeAll removes paths in their order.
func (t *Type) removeAll(ctx context.Context, paths []string) error {
	specs := make([]durable.RemoveSpec, len(paths))
	for i, p := range paths {
		specs[i].Path = p
	}
	return errors.Join(durable.RemoveMany(ctx, t.root, specs)...)
}

// below lists what is in a directory, what is deepest first, and the directory itself at last.
func (t *Type) below(dir string, depth int) ([]string, error) {
	if depth == 0 {
		return nil, &reason.Error{Code: reason.DirectoryNotEmpty, Doing: "remove " + disk.Shown(dir), Cause: errors.New("there are directories in it that a package manager does not make")}
	}
	d, err := t.root.Dir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Names(namesMax)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		st, err := d.Stat(name)
		if err != nil {
			return nil, err
		}
		if st.Type() != unix.S_IFDIR {
			all = append(all, d.Join(name))
			continue
		}
		more, err := t.below(d.Join(name), depth-1)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return append(all, dir), nil
}

// original is the stored form of what the files were before tako changed them. Later versions read it too: fields may be added, and none ever
// gets another meaning.
type original struct {
	File *kept `json:"file,omitempty"`
	Key  *kept `json:"key,omitempty"`
}

// kept is a file; nil is none.
type kept struct {
	Text []byte `json:"text"`
	Mode uint32 `json:"mode"` // permissions
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// keptMax bounds the text that is kept: in JSON, both files must be less than the 1 MiB that the agent keeps of a resource.
const keptMax = 300 << 10

func keep(v view) *kept {
	if !v.sig.Exists() {
		return nil
	}
	return &kept{Text: []byte(v.text), Mode: v.sig.Perm(), UID: v.sig.UID, GID: v.sig.GID}
}

// Original describes the files.
func (t *Type) Original(_ context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	s, err := t.newCall().look(r)
	switch {
	case err != nil:
		return nil, err
	case len(s.file.text) > keptMax || len(s.key.text) > keptMax:
		return nil, &reason.Error{Code: reason.BackupFailed, Doing: r.doing(), Cause: errors.New("a file that is there is too large to be kept"), Hint: "look at it, and remove it"}
	}
	return json.Marshal(original{File: keep(s.file), Key: keep(s.key)})
}

// Remove removes the repository, or puts back the files that were there. What they name is fetched by the next update of the package manager.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	if err := ctx.Err(); err != nil {
		return reason.Ended(r.doing(), err)
	}
	r.seen = 0
	var o original
	switch how {
	case declare.OnRemoveDelete:
	case declare.OnRemoveRestore:
		if err := json.Unmarshal(originally, &o); err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore repository " + r.name, Cause: err}
		}
	case declare.OnRemoveKeep:
		return &reason.Error{Code: reason.InternalFault, Doing: "remove repository " + r.name, Cause: errors.New("onRemove is neither delete nor restore")}
	}
	now, err := t.newCall().look(r)
	if err != nil {
		return err
	}
	j := &job{Type: t, resource: r, now: now}
	gone := j.mentionsOf(now.file)
	if err := j.restore(ctx, j.file, now.file, o.File); err != nil {
		return err
	}
	if r.hasKey() && (o.Key != nil || !now.keyUsed) {
		if err := j.restore(ctx, j.keyFile, now.key, o.Key); err != nil {
			return err
		}
	}
	return j.forget(ctx, gone)
}

// restore makes a file as it was.
func (j *job) restore(ctx context.Context, p string, now view, was *kept) error {
	keeper := j.keeper(ctx, p)
	if d := now.digest(); d == j.want.file || d == j.want.key {
		keeper = nil // it is as it was declared
	}
	switch {
	case was == nil && !now.sig.Exists():
		return nil
	case was == nil:
		return durable.Remove(ctx, j.root, durable.RemoveSpec{Path: p, Expect: &now.sig, OnBackup: keeper})
	case now.sig.Exists() && now.text == string(was.Text) && now.sig.Perm() == was.Mode && now.sig.UID == was.UID && now.sig.GID == was.GID:
		return nil
	}
	if err := j.makeDirectory(ctx, path.Dir(p)); err != nil {
		return err
	}
	_, err := durable.Write(ctx, j.root, durable.WriteSpec{
		Path: p, Content: bytes.NewReader(was.Text), Size: int64(len(was.Text)), Mode: int(was.Mode), UID: int(was.UID), GID: int(was.GID), Expect: &now.sig, OnBackup: keeper,
	})
	return err
}
