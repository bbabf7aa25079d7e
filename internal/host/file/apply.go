package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/command/check"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// writeBytesMax bounds the contents that one batch of files holds in memory.
const writeBytesMax = 4 << 20

// Apply makes things as declared: files in batches, everything else one by one.
func (t *Type) Apply(ctx context.Context, plans []host.Plan) []host.Result {
	results := make([]host.Result, len(plans))
	jobs := make([]*job, len(plans))
	for i, p := range plans {
		jobs[i] = &job{resource: p.Resource.(*resource), step: p.State.(step), result: &results[i]}
	}
	t.carryOut(ctx, jobs)
	return results
}

func (t *Type) carryOut(ctx context.Context, jobs []*job) {
	var files []*job
	bytes := int64(0)
	for _, j := range jobs {
		if !j.anew || j.kind() != unix.S_IFREG {
			t.applyOne(ctx, j)
			continue
		}
		if bytes += j.size; bytes > writeBytesMax {
			t.writeFiles(ctx, files)
			files, bytes = nil, j.size
		}
		files = append(files, j)
	}
	t.writeFiles(ctx, files)
}

// job is one plan on its way.
type job struct {
	*resource
	step
	result *host.Result
	notes  []string
	// ours is a content that needs no backup, because it was declared. Only a removal finds one.
	ours thing
}

// note adds something that a person should know.
func (j *job) note(s string) { j.notes = append(j.notes, s) }

// finish fills in the result. sig is the new state where that is known.
func (j *job) finish(sig disk.Signature, changed bool, err error) {
	j.result.Err = err
	j.result.Changed = j.result.Changed || changed
	j.result.Note = strings.Join(j.notes, "; ")
	if err == nil {
		// Its own change is the last one in this tick of the clock, and somebody else may have changed it again before it was looked at.
		j.remember(sig, false)
	}
}

// keepsNothing reports whether the old content of a job may be a secret, and notes that it is not kept.
func (t *Type) keepsNothing(j *job) bool {
	if !j.secret && !t.secrets.has(j.path) {
		return false
	}
	j.note("old content not kept, because it may be a secret")
	return true
}

// applyOne carries out what is not a file's content.
func (t *Type) applyOne(ctx context.Context, j *job) {
	var sig disk.Signature
	err := ctx.Err()
	switch {
	case err != nil:
		err = ended("make", j.path, err)
	case !j.anew:
		t.refind(j)
		sig, err = durable.SetAttributes(ctx, t.root, j.attributes())
	case j.kind() == unix.S_IFDIR:
		if err = t.clear(ctx, j); err == nil {
			sig, err = durable.Mkdir(ctx, t.root, durable.MkdirSpec{Path: j.path, Mode: int(j.perm()), UID: int(j.uid), GID: int(j.gid), Attributes: j.wanted()})
		}
	default:
		sig, err = t.symlink(ctx, j)
	}
	j.finish(sig, err == nil || t.touched(j, err), err)
}

// refind takes in what has become of a directory's entries since the check, which is no concern of ours.
func (t *Type) refind(j *job) {
	if j.kind() != unix.S_IFDIR {
		return
	}
	if now, err := t.root.Stat(j.path); err == nil && mark(now.Signature) == mark(j.found) {
		j.found = now.Signature
	}
}

// attributes are owner, mode and attributes that differ; what does not is left alone, because setting it may not be permitted.
func (j *job) attributes() durable.AttributeSpec {
	spec := durable.AttributeSpec{Path: j.path, Mode: durable.Keep, UID: durable.Keep, GID: durable.Keep, Expect: &j.found}
	if j.kind() != unix.S_IFLNK {
		// Also where only the owner changes: that takes setuid away.
		spec.Mode = int(j.permBeside(j.found))
	}
	spec.Attributes = j.differ
	uid, gid := j.ownersBeside(j.found)
	if j.found.UID != uid {
		spec.UID = int(uid)
	}
	if j.found.GID != gid {
		spec.GID = int(gid)
	}
	if spec.UID != durable.Keep || spec.GID != durable.Keep {
		// So does it take a capability away.
		spec.Attributes = j.wanted()
	}
	return spec
}

// touched reports whether an operation that ended with an error has changed something before that.
func (t *Type) touched(j *job, err error) bool {
	if reason.Is(err, reason.ConcurrentEdit) {
		return false // it was somebody else
	}
	now, err := t.root.Stat(j.path)
	return err == nil && mark(now.Signature) != mark(j.found)
}

// symlink makes a symlink, also in the place of something else.
func (t *Type) symlink(ctx context.Context, j *job) (disk.Signature, error) {
	switch j.found.Type() {
	case unix.S_IFDIR:
		if err := t.clear(ctx, j); err != nil {
			return disk.Signature{}, err
		}
	case unix.S_IFREG:
		if err := t.keepAt(ctx, j); err != nil {
			return disk.Signature{}, err
		}
	}
	uid, gid := j.ownersBeside(j.found)
	return durable.Symlink(ctx, t.root, durable.SymlinkSpec{
		Path: j.path, Target: j.target, UID: int(uid), GID: int(gid), Expect: &j.found, Force: j.force,
	})
}

// clear removes what is in the way, after a backup. Where nothing was, nothing may be now.
func (t *Type) clear(ctx context.Context, j *job) error {
	if !j.found.Exists() {
		now, err := t.root.Stat(j.path)
		if err == nil && now.Exists() {
			err = &reason.Error{Code: reason.ConcurrentEdit, Doing: j.doing(), Cause: isThere(now.Kind())}
		}
		return err
	}
	err := durable.Remove(ctx, t.root, durable.RemoveSpec{Path: j.path, Expect: &j.found, OnBackup: t.keeper(ctx, j)})
	if err != nil {
		return err
	}
	j.found = disk.Signature{}
	j.result.Changed = true
	return nil
}

// writeFiles makes contents as declared.
func (t *Type) writeFiles(ctx context.Context, jobs []*job) {
	specs := make([]durable.WriteSpec, 0, len(jobs))
	writing := make([]*job, 0, len(jobs))
	for _, j := range jobs {
		spec, done, err := t.writeSpec(ctx, j)
		if err == nil {
			defer done()
			if j.found.Type() == unix.S_IFDIR {
				err = t.clear(ctx, j)
			}
		}
		if err != nil {
			j.finish(disk.Signature{}, false, err)
			continue
		}
		specs, writing = append(specs, spec), append(writing, j)
	}
	for i, res := range durable.WriteAll(ctx, t.root, specs) {
		j := writing[i]
		if res.BrokeHardLink {
			j.note("its other hard links still have the old content")
		}
		j.finish(res.Signature, res.Changed, res.Err)
		if res.Err == nil && !j.secret {
			t.secrets.drop(j.path)
		}
	}
}

// writeSpec says how a file is written; done is called when it has been.
func (t *Type) writeSpec(ctx context.Context, j *job) (spec durable.WriteSpec, done func(), err error) {
	uid, gid := j.ownersBeside(j.found)
	spec = durable.WriteSpec{
		Path: j.path, Size: j.size, Mode: int(j.permBeside(j.found)), UID: int(uid), GID: int(gid), Attributes: j.wanted(),
		Expect: &j.found, Force: j.force, InPlace: j.inPlace, OnBackup: t.keeper(ctx, j),
	}
	if j.body == nil {
		f, err := t.store.Get(j.digest)
		if err != nil {
			return spec, nil, &reason.Error{Code: reason.RestoreLost, Doing: "restore file " + disk.Shown(j.path), Cause: err,
				Hint: "put it back by hand, then stop declaring it with `onRemove: restore`"}
		}
		spec.Content = f
		return spec, func() { f.Close() }, nil
	}
	if j.rare().from != nil {
		return t.writeFrom(spec, j)
	}
	text, err := j.declaredContent()
	if err != nil {
		return spec, nil, err
	}
	spec.Content = strings.NewReader(text)
	if j.rare().check != nil {
		spec.Check = func(ctx context.Context, temp string) error { return t.checkContent(ctx, j, text, temp) }
	}
	return spec, func() {}, nil
}

// writeFrom says how a file is written whose content is not declared. What a check rejects is not kept: it is where it came from.
func (t *Type) writeFrom(spec durable.WriteSpec, j *job) (durable.WriteSpec, func(), error) {
	v, err := t.open(j.resource)
	if err != nil {
		return spec, nil, err
	}
	spec.Content = v
	if j.rare().check != nil {
		spec.Check = j.ask
	}
	return spec, func() { v.Close() }, nil
}

// checkContent asks the check command. What it rejects is kept for a person to look at; of a private content neither that
// nor what the command says of it.
func (t *Type) checkContent(ctx context.Context, j *job, text, temp string) error {
	err := j.ask(ctx, temp)
	var failed *reason.Error
	if !errors.As(err, &failed) || j.private || failed.Code != reason.CheckRejected || t.store == nil {
		return err
	}
	if digest, _, err := t.store.Put(ctx, strings.NewReader(text)); err == nil {
		failed.Hint = "the rejected content is kept as " + digest.String()
	}
	return failed
}

// ask asks the check command about the content of a file.
func (j *job) ask(ctx context.Context, temp string) error {
	return check.Run(ctx, check.Question{Command: j.rare().check, Path: j.path, Content: temp, Private: j.private})
}

// keeper returns what stores the old content of a job before it goes.
func (t *Type) keeper(ctx context.Context, j *job) durable.Backup {
	return func(old *os.File, st disk.Stat) error { return t.keep(ctx, j, old, st) }
}

// keep stores an old content, unless it is empty or what was declared.
func (t *Type) keep(ctx context.Context, j *job, old *os.File, st disk.Stat) error {
	if st.Size == 0 {
		return nil
	}
	if same, err := isContent(old, st, &j.ours); same || err != nil || t.keepsNothing(j) {
		return err
	}
	if j.rare().from != nil && st.Size > largeMax {
		j.note("old content not kept, because it has more than " + strconv.Itoa(largeMax>>20) + " MiB")
		return nil
	}
	if t.store != nil && !t.store.Takes(st) {
		j.note("old content not kept, because there is no room for what others than root may have written")
		return nil
	}
	digest, err := t.save(ctx, j.path, old, st.Size)
	if err != nil {
		return err
	}
	if j.hidden {
		j.note("old content kept")
		return nil
	}
	j.note("old content kept as " + digest.String())
	return nil
}

// isContent reports whether a file has a known content, and leaves it at its start.
func isContent(f *os.File, st disk.Stat, known *thing) (bool, error) {
	if known.digest.IsZero() || st.Size != known.size {
		return false, nil
	}
	sum := sha256.New()
	_, err := io.Copy(sum, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return false, &reason.Error{Code: reason.InputOutput, Doing: "read file " + disk.Shown(f.Name()), Cause: err}
	}
	return content.Digest(sum.Sum(nil)) == known.digest, nil
}

// keepAt is keep for a file that something else than a file is about to replace.
func (t *Type) keepAt(ctx context.Context, j *job) error {
	d, name, err := t.root.Parent(j.path)
	if err != nil {
		return err
	}
	defer d.Close()
	f, st, err := d.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.keep(ctx, j, f, st)
}

// save puts a content into the content store, as much of it as there was: who has it open may go on writing.
func (t *Type) save(ctx context.Context, p string, old *os.File, size int64) (content.Digest, error) {
	fault := &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(p)}
	if t.store == nil {
		fault.Hint = "there is no content store"
		return content.Digest{}, fault
	}
	digest, _, err := t.store.Keep(ctx, versionOf(p, old), io.LimitReader(old, size))
	if err == nil {
		return digest, nil
	}
	fault.Cause = err
	var why *reason.Error
	if errors.As(err, &why) {
		fault.Cause, fault.Hint = why.Cause, why.Hint
	}
	return content.Digest{}, fault
}
