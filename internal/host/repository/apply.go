package repository

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"tako.dev/tako/declare/openpgp"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// stageDir is where a repository is while it is tried. Package managers read it as users of their own, which may not look into the agent's
// own directory.
const stageDir = "/run/tako-repository"

// keySummary is what stands where the keys are.
func (r *resource) keySummary(v view) string {
	keys, err := openpgp.ParseBinary([]byte(v.text))
	if err != nil {
		keys, err = openpgp.Parse(v.text)
	}
	if err != nil {
		return summary(v)
	}
	return keys.Fingerprints[0]
}

// Apply makes repositories as declared, one after the other.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	for i, p := range plans {
		r := p.Resource.(*resource)
		if err := ctx.Err(); err != nil {
			results[i].Err = reason.Ended(r.doing(), err)
			continue
		}
		was, _ := p.State.(sight)
		results[i] = t.apply(ctx, r, was)
	}
	return results
}

func (t *Type) apply(ctx context.Context, r *resource, was sight) host.Result {
	r.seen = 0
	c := t.newCall()
	now, err := c.look(r)
	var changes []host.Change
	if err == nil {
		changes, err = r.compare(t, now)
	}
	switch {
	case err != nil:
		return host.Result{Err: err}
	case len(changes) == 0:
		return host.Result{} // somebody else has made it so
	case now != was:
		return host.Result{Err: &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing()}}
	}
	job := &job{Type: t, resource: r, now: now}
	if r.absent {
		err = job.leave(ctx)
	} else {
		err = job.enter(ctx)
	}
	if err == nil {
		err = t.settle(r, job.fetched)
	}
	return host.Result{Err: err, Changed: job.changed, Note: strings.Join(job.notes, "; ")}
}

// settle looks at a repository once more, and remembers it.
func (t *Type) settle(r *resource, fetched bool) error {
	before, c := disk.Tick(), t.newCall()
	sum, newest, err := c.signs(r)
	if err != nil {
		return err
	}
	s, err := c.look(r)
	if err != nil {
		return err
	}
	if s.missing && fetched {
		r.listless, s.missing = true, false // it is of a kind that leaves nothing under the names that are looked for
	}
	left, err := r.compare(t, s)
	switch {
	case err != nil:
		return err
	case len(left) > 0:
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: r.doing(), Cause: errors.New("all was done, and " + left[0].Field + " is " + left[0].From + " again")}
	}
	r.seen, r.settled = sum, newest < before
	return nil
}

// job is one repository on its way.
type job struct {
	*Type
	*resource
	now     sight
	changed bool
	fetched bool
	notes   []string
}

// enter fetches a repository, and then writes its files.
func (j *job) enter(ctx context.Context) error {
	body, err := j.body()
	if err != nil {
		return err
	}
	final, err := j.contents(body.Repository, j.keyFile)
	if err != nil {
		return err
	}
	if content.DigestOf(final.file) != j.want.file {
		return &reason.Error{Code: reason.InternalFault, Doing: j.doing(), Cause: errors.New("it is not what was bound")}
	}
	same := j.now.file.sig.Exists() && j.now.file.text == string(final.file) && (final.key == nil || j.now.key.text == string(final.key))
	if !j.sandbox() && (!same || j.now.missing) {
		staged, err := j.contents(body.Repository, j.staged(j.keyFile))
		if err == nil {
			err = j.try(ctx, staged)
		}
		if err != nil {
			return err
		}
	}
	if final.key != nil {
		if err := j.put(ctx, j.keyFile, j.now.key, final.key); err != nil {
			return err
		}
	}
	if err := j.put(ctx, j.file, j.now.file, final.file); err != nil {
		return err
	}
	if j.unchecked != "" {
		j.notes = append(j.notes, "its packages are not all checked: "+j.unchecked)
	}
	if j.now.double != "" {
		j.notes = append(j.notes, j.now.double+" names it too")
	}
	return nil
}

// staged is where a file is while it is tried: in a directory with nothing else in it.
func (r *resource) staged(p string) string { return stageDir + "/" + r.name + "/" + path.Base(p) }

// try has the package manager fetch the repository from files elsewhere, of which nothing is left.
func (j *job) try(ctx context.Context, staged contents) error {
	if os.Geteuid() != 0 {
		return &reason.Error{Code: reason.PermissionDenied, Doing: j.doing(), Hint: "run the agent as root"}
	}
	trusted, err := j.trusted(j.Type, j.name)
	if err == nil {
		err = j.removeAll(ctx, trusted)
	}
	if err != nil {
		return err
	}
	if err := j.makeDirectory(ctx, stageDir+"/"+j.name); err != nil {
		return err
	}
	if err := j.clear(ctx, stageDir+"/"+j.name); err != nil {
		return err
	}
	defer func() {
		for _, p := range []string{j.staged(j.file), j.staged(j.keyFile), stageDir + "/" + j.name} {
			_ = durable.Remove(context.WithoutCancel(ctx), j.root, durable.RemoveSpec{Path: p}) // what is left is overwritten by the next try
		}
	}()
	if staged.key != nil {
		err = j.write(ctx, j.staged(j.keyFile), nil, staged.key, nil)
	}
	if err == nil {
		err = j.write(ctx, j.staged(j.file), nil, staged.file, nil)
	}
	if err != nil {
		return err
	}
	output, err := j.fetch(ctx, j.staged(j.file), j.name)
	if fault := j.fault(j.doing(), output, err); fault != nil {
		return fault
	}
	j.fetched, j.changed = true, j.changed || j.now.missing
	return nil
}

// leftMax bounds what a try leaves in its directory.
const leftMax = 1024

// clear removes what a killed try has left in its directory.
func (t *Type) clear(ctx context.Context, dir string) error {
	d, err := t.root.Dir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	list, err := d.Reopen()
	if err != nil {
		return d.Fault("list directory", "", err)
	}
	defer list.Close()
	names, err := list.Readdirnames(leftMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return d.Fault("list directory", "", err)
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = d.Join(name)
	}
	return t.removeAll(ctx, paths)
}

// Sweep removes what killed runs have left, also where repositories were tried.
func (t *Type) Sweep(ctx context.Context, dirs []string) error {
	dirs = append(slices.Clip(dirs), path.Dir(stageDir))
	if d, err := t.root.Dir(stageDir); err == nil {
		defer d.Close()
		names, _ := d.Names(leftMax) // what cannot be listed is looked at by the next try
		dirs = append(dirs, stageDir)
		for _, name := range names {
			dirs = append(dirs, d.Join(name))
		}
	}
	return t.Sweeper.Sweep(ctx, dirs)
}

// put gives a file its content, owner and mode.
func (j *job) put(ctx context.Context, p string, now view, b []byte) error {
	if now.sig.Exists() && now.text == string(b) && !now.wrong(j.Type) {
		return nil
	}
	if err := j.makeDirectory(ctx, path.Dir(p)); err != nil {
		return err
	}
	if err := j.Beside(ctx, p); err != nil {
		return err
	}
	err := j.write(ctx, p, &now.sig, b, j.keeper(ctx, p))
	j.changed = j.changed || err == nil
	return err
}

func (t *Type) write(ctx context.Context, p string, expect *disk.Signature, b []byte, keep durable.Backup) error {
	uid, gid := t.owner()
	_, err := durable.Write(ctx, t.root, durable.WriteSpec{
		Path: p, Content: bytes.NewReader(b), Size: int64(len(b)), Mode: fileMode, UID: int(uid), GID: int(gid), Expect: expect, OnBackup: keep,
	})
	return err
}

// keeper returns what stores old content.
func (j *job) keeper(ctx context.Context, p string) durable.Backup {
	if j.store == nil {
		return nil
	}
	return func(old *os.File, st disk.Stat) error {
		if st.Size == 0 {
			return nil
		}
		digest, _, err := j.store.Keep(ctx, content.Version{Path: []byte(p), Mode: st.Perm(), UID: st.UID, GID: st.GID}, old)
		if err != nil {
			return &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(p), Cause: err}
		}
		note := "old content of " + path.Base(p) + " kept"
		if st.Perm()&0o077 != 0 {
			note += " as " + digest.String()
		}
		j.notes = append(j.notes, note)
		return nil
	}
}

// makeDirectory makes a directory that is missing, with those above it.
func (t *Type) makeDirectory(ctx context.Context, dir string) error {
	st, err := t.root.Stat(dir)
	if err == nil && st.Exists() || dir == "/" {
		return nil
	}
	if err != nil && !reason.Is(err, reason.ParentMissing) {
		return err
	}
	if err := t.makeDirectory(ctx, path.Dir(dir)); err != nil {
		return err
	}
	if err := t.Beside(ctx, dir); err != nil {
		return err
	}
	_, err = durable.Mkdir(ctx, t.root, durable.MkdirSpec{Path: dir, Mode: dirMode, UID: durable.Keep, GID: durable.Keep})
	if reason.Is(err, reason.ConcurrentEdit) {
		return nil // somebody else has made it
	}
	return err
}
