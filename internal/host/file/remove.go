package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// original is the stored form of what was at a path before tako changed it. Later versions read it too: fields may be added,
// and none ever gets another meaning.
type original struct {
	Type   string         `json:"type"` // nothing, file, directory or symlink
	Mode   string         `json:"mode,omitempty"`
	UID    uint32         `json:"uid,omitempty"`
	GID    uint32         `json:"gid,omitempty"`
	Size   int64          `json:"size,omitempty"`
	Digest content.Digest `json:"digest,omitzero"`
	Target []byte         `json:"target,omitempty"` // bytes, because it need not be UTF-8
	// Attributes are those that the resource declares, as they were.
	Attributes []originalAttribute `json:"attributes,omitempty"`
}

// originalAttribute is the stored form of an attribute; None says that there was none.
type originalAttribute struct {
	Name  string `json:"name"`
	Value []byte `json:"value,omitempty"`
	None  bool   `json:"none,omitempty"`
}

// originalKinds are the types that can be put back, by their names.
var originalKinds = map[string]uint32{"nothing": 0, "file": unix.S_IFREG, "directory": unix.S_IFDIR, "symlink": unix.S_IFLNK}

// Original describes what is at the path. The content of a file is in the content store when it returns.
func (t *Type) Original(ctx context.Context, res host.Resource) ([]byte, error) {
	r := res.(*resource)
	o := original{Type: kindName(0)}
	d, name, err := t.root.Parent(r.path)
	switch {
	case err == nil:
		defer d.Close()
		if o, err = t.originalAt(ctx, r, d, name); err != nil {
			return nil, err
		}
	case !reason.Is(err, reason.ParentMissing):
		return nil, err
	}
	return json.Marshal(o)
}

func (t *Type) originalAt(ctx context.Context, r *resource, d *disk.Dir, name string) (original, error) {
	now, err := d.Stat(name)
	if err != nil {
		return original{}, err
	}
	o := original{Type: now.Kind(), Mode: modeText(now.Perm()), UID: now.UID, GID: now.GID}
	switch now.Type() {
	case 0:
		return original{Type: o.Type}, nil
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		target, err := d.Readlink(name)
		if err != nil {
			return original{}, err
		}
		o.Target = []byte(target)
	case unix.S_IFREG:
		f, st, err := d.Open(name)
		if err != nil {
			return original{}, err
		}
		defer f.Close()
		if t.store != nil && !t.store.Takes(st) {
			return original{}, &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(r.path),
				Cause: errors.New("others than root may have written it, and there is no room for so much of that"),
				Hint:  "look at what is there, and move it away; or declare another `onRemove` than restore, or raise the quota of backups"}
		}
		if o.Digest, err = t.save(ctx, r.path, f, st.Size); err != nil {
			return original{}, err
		}
		o.Size, now = st.Size, st
	default:
		return original{}, r.inTheWay(now, "it could not be put back: declare another `onRemove` than restore, or move it away")
	}
	attributes, err := r.read(d, name, now)
	if err != nil {
		return original{}, err
	}
	for _, a := range attributes {
		o.Attributes = append(o.Attributes, originalAttribute{Name: a.Name, Value: a.Value, None: a.Value == nil})
	}
	after, err := d.Stat(name)
	if err == nil && after.Signature != now.Signature {
		err = &reason.Error{Code: reason.ConcurrentEdit, Doing: "look at " + disk.Shown(r.path)}
	}
	return o, err
}

// attributes are those that were there.
func (o *original) attributes() []durable.Attribute {
	var list []durable.Attribute
	for _, a := range o.Attributes {
		if a.Value == nil && !a.None {
			a.Value = []byte{}
		}
		list = append(list, durable.Attribute{Name: a.Name, Value: a.Value})
	}
	return list
}

// decodeOriginal reads what Original returned.
func decodeOriginal(b []byte) (thing, []durable.Attribute, error) {
	var o original
	if err := json.Unmarshal(b, &o); err != nil {
		return thing{}, nil, err
	}
	t, err := o.thing()
	return t, o.attributes(), err
}

// thing is what was there.
func (o *original) thing() (thing, error) {
	kind, ok := originalKinds[o.Type]
	if !ok || o.Size < 0 {
		return thing{}, errors.New("type or size is none that can be")
	}
	if kind == 0 {
		return thing{}, nil
	}
	perm, err := strconv.ParseUint(o.Mode, 8, 32)
	if err != nil || perm > permMask {
		return thing{}, errors.New("mode is none")
	}
	if kind == unix.S_IFREG && o.Digest.IsZero() || kind == unix.S_IFLNK && len(o.Target) == 0 {
		return thing{}, errors.New("content or target is missing")
	}
	return thing{mode: kind | uint32(perm), uid: o.UID, gid: o.GID, size: o.Size, digest: o.Digest, target: string(o.Target)}, nil
}

// Remove removes what stands at the path, or puts back what stood there before. A content that is not the declared one is
// backed up first.
func (t *Type) Remove(ctx context.Context, res host.Resource, how declare.OnRemove, originally []byte) error {
	r := res.(*resource)
	r.remember(disk.Signature{}, false)
	switch how {
	case declare.OnRemoveDelete:
		return t.delete(ctx, r)
	case declare.OnRemoveRestore:
		before, attributes, err := decodeOriginal(originally)
		if err != nil {
			return &reason.Error{Code: reason.RestoreLost, Doing: "restore " + disk.Shown(r.path), Cause: err}
		}
		if before.kind() == 0 {
			return t.delete(ctx, r)
		}
		return t.restore(ctx, r, before, attributes)
	case declare.OnRemoveKeep:
	}
	return &reason.Error{Code: reason.InternalFault, Doing: "remove " + disk.Shown(r.path), Cause: errors.New("onRemove is neither delete nor restore")}
}

func (t *Type) delete(ctx context.Context, r *resource) error {
	now, err := t.root.Stat(r.path)
	if err != nil || !now.Exists() {
		return err
	}
	if now.Type() != r.kind() {
		return r.notOurs(now)
	}
	j := &job{resource: r, step: step{found: now.Signature}, ours: r.thing, result: &host.Result{}}
	return t.clear(ctx, j)
}

// notOurs is the error for something that stands where a removed resource stood and is not what that was.
func (r *resource) notOurs(now disk.Stat) error {
	return &reason.Error{Code: reason.TypeInTheWay, Doing: "remove " + kindName(r.kind()) + " " + disk.Shown(r.path),
		Cause: isThere(now.Kind()), Hint: "tako did not make it: move it away, or remove it"}
}

// restore makes the thing that was there before, as if it had been declared.
func (t *Type) restore(ctx context.Context, r *resource, before thing, attributes []durable.Attribute) error {
	now, err := t.root.Stat(r.path)
	if err != nil {
		return err
	}
	if kind := now.Type(); kind != 0 && kind != r.kind() && kind != before.kind() {
		return r.notOurs(now)
	}
	back := &resource{path: r.path, thing: before, force: true, inPlace: r.inPlace && before.kind() == unix.S_IFREG, secret: r.secret}
	if len(attributes) > 0 {
		back.fill().extras = &extras{attributes: attributes}
	}
	// Where the content was never ours, it is not now.
	back.onlyNew = r.onlyNew && before.kind() == unix.S_IFREG
	plan := t.Check(ctx, []host.Resource{back}, host.Deep)[0]
	if plan.Err != nil || plan.Empty() {
		return plan.Err
	}
	j := &job{resource: back, step: plan.State.(step), ours: r.thing, result: &host.Result{}}
	t.carryOut(ctx, []*job{j})
	return j.result.Err
}

// Sweep removes the temporary files of a killed run. One of them may be an old file that was on its way into the content
// store; which one cannot be told, so each goes there, but none of a secret: its old files never go that way.
func (t *Type) Sweep(ctx context.Context, dirs []string) error {
	_, err := durable.SweepTemporaries(ctx, t.root, dirs, func(old *os.File, st disk.Stat) error {
		// Whoever may write there can have made it, too.
		if st.Size == 0 || t.secrets.hasTemporary(old.Name()) || t.store != nil && !t.store.Takes(st) {
			return nil
		}
		_, err := t.save(ctx, old.Name(), old, st.Size)
		return err
	})
	return err
}

// Forget drops the old contents that nobody has needed for long. One original that cannot be read may need any of them, so then
// all stay.
func (t *Type) Forget(_ context.Context, originals [][]byte) error {
	var gone error
	if t.objects != nil {
		gone = t.objects.Trim(time.Now())
	}
	return errors.Join(gone, t.forget(originals))
}

func (t *Type) forget(originals [][]byte) error {
	if t.store == nil {
		return nil
	}
	needed := make(map[content.Digest]bool, len(originals))
	for _, b := range originals {
		before, _, err := decodeOriginal(b)
		if err != nil {
			return &reason.Error{Code: reason.StateCorrupt, Doing: "forget old contents", Cause: fmt.Errorf("what was there before a resource: %w", err),
				Hint: "old contents are kept until it can be read"}
		}
		needed[before.digest] = true
	}
	_, _, err := t.store.Trim(time.Now(), func(d content.Digest) bool { return needed[d] })
	return err
}
