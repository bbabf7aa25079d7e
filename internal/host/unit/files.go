package unit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

const (
	fileMode = 0o644 // unit files are nobody's secret: systemd shows them to everybody
	dirMode  = 0o755
	// readMax is how much of what is there is compared and kept: more than can be declared.
	readMax = 2 * declare.BodyBytesMax
	// shortDigits is how much of a digest people compare by eye.
	shortDigits = 8
)

// The fields of changes of files.
const (
	fieldContent = "content"
	fieldMode    = "mode"
	fieldOwner   = "owner"
	fieldGroup   = "group"
	fieldReload  = "daemon-reload"
)

// Options are what New and NewTimers need.
type Options struct {
	Root *disk.Root
	// Content takes what is replaced or removed. Nil keeps nothing.
	Content *content.Store
	// StateDir is where files are verified, absolute; there must be nothing else in its directory "units".
	StateDir string
	Bus      *systemd.Bus // nil in a sandbox only
}

// bus is what unit files need of systemd; see systemd.Bus.
type bus interface {
	Unit(ctx context.Context, unit string) (systemd.UnitState, error)
	Reload(ctx context.Context) error
}

var _ bus = (*systemd.Bus)(nil)

// files looks at unit files and changes them.
type files struct {
	root     *disk.Root
	store    *content.Store // may be nil
	bus      bus            // nil in a sandbox
	verifier verifier
	uid, gid uint32 // who unit files belong to: root, or the agent
	*durable.Sweeper
}

func newFiles(o Options) files {
	f := files{root: o.Root, store: o.Content, verifier: verifier{dir: path.Join(o.StateDir, "units")}, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), Sweeper: durable.NewSweeper(o.Root)}
	if o.Bus != nil {
		f.bus = o.Bus
	}
	return f
}

// target is one file of systemd, as it shall be, and what was last found to be so.
type target struct {
	path   string
	label  string // of its fields, where a resource has several files
	unit   string // whose file it is
	dropIn bool
	digest content.Digest // of the content
	size   int
	mode   uint32 // permissions
	uid    uint32
	gid    uint32

	seen    disk.Signature
	settled bool // no later change can leave that signature
}

func (g *target) doing() string { return "write unit file " + disk.Shown(g.path) }

// own gives a file to the owner of unit files.
func (f *files) own(g *target) { g.mode, g.uid, g.gid = fileMode, f.uid, f.gid }

// view is what stands at the path of a target.
type view struct {
	sig     disk.Signature
	text    []byte // of a file
	changes []host.Change
}

// rewrite reports whether the file has to be written, not only given an owner and mode.
func (v *view) rewrite() bool {
	return slices.ContainsFunc(v.changes, isContent)
}

func isContent(c host.Change) bool { return strings.HasSuffix(c.Field, fieldContent) }

// look looks at a file. Where it is what is remembered, and shallow says that this is enough, it is not read.
func (f *files) look(g *target, shallow bool, now int64) (v *view, remembered bool, err error) {
	d, name, err := f.root.Parent(g.path)
	switch {
	case reason.Is(err, reason.ParentMissing):
		return f.compare(g, &view{}), false, nil
	case err != nil:
		return nil, false, err
	}
	defer d.Close()
	st, err := d.Stat(name)
	if err != nil {
		return nil, false, err
	}
	v = &view{sig: st.Signature}
	remembered = shallow && st.Exists() && st.Signature == g.seen
	switch {
	case remembered && g.settled:
		return v, true, nil
	case !st.Exists():
		return f.compare(g, v), false, nil
	case st.Type() != unix.S_IFREG:
		return nil, false, inTheWay(g, d, name, st)
	}
	var after disk.Stat
	if v.text, after, err = d.ReadFile(name, readMax); err != nil {
		return nil, false, err
	}
	v.sig = after.Signature
	f.compare(g, v)
	g.seen, g.settled = disk.Signature{}, false
	if len(v.changes) == 0 {
		g.seen, g.settled = v.sig, v.sig.Ctime < now
	}
	return v, remembered, nil
}

// inTheWay is the error for something that is no file: most often a link that systemctl has made.
func inTheWay(g *target, d *disk.Dir, name string, st disk.Stat) error {
	e := &reason.Error{Code: reason.TypeInTheWay, Doing: g.doing(), Cause: fmt.Errorf("a %s is there", st.Kind()), Hint: "move it away"}
	if st.Type() != unix.S_IFLNK {
		return e
	}
	switch to, err := d.Readlink(name); {
	case err != nil:
	case to == "/dev/null":
		e.Cause, e.Hint = errors.New("the unit is masked"), "`systemctl unmask "+g.unit+"`, if whoever did it agrees"
	default:
		e.Cause = fmt.Errorf("a link to %s is there", disk.Shown(to))
		e.Hint = "it is another name of that unit, or was made by `systemctl link`: `systemctl disable " + path.Base(to) + "` removes it"
	}
	return e
}

// compare notes what differs.
func (f *files) compare(g *target, v *view) *view {
	add := func(field, from, to string) {
		v.changes = append(v.changes, host.Change{Field: strings.TrimSpace(g.label + " " + field), From: from, To: to})
	}
	want := contentText(g.size, g.digest)
	if !v.sig.Exists() {
		add("", "absent", "file")
		add(fieldContent, "", want)
		add(fieldMode, "", modeText(g.mode))
		return v
	}
	if digest := content.DigestOf(v.text); digest != g.digest {
		from := contentText(len(v.text), digest)
		if isPrivate(v.sig) {
			from = fmt.Sprintf("%d B, not shown", len(v.text))
		}
		add(fieldContent, from, want)
	}
	if v.sig.Perm() != g.mode {
		add(fieldMode, modeText(v.sig.Perm()), modeText(g.mode))
	}
	if v.sig.UID != g.uid {
		add(fieldOwner, fmt.Sprint(v.sig.UID), fmt.Sprint(g.uid))
	}
	if v.sig.GID != g.gid {
		add(fieldGroup, fmt.Sprint(v.sig.GID), fmt.Sprint(g.gid))
	}
	return v
}

// isPrivate reports whether only its owner may read a file: then nothing of it is shown, nor a digest, from which a short text can be guessed.
func isPrivate(sig disk.Signature) bool { return sig.Exists() && sig.Perm()&0o077 == 0 }

// contentText tells contents apart in a few words.
func contentText(size int, digest content.Digest) string {
	return fmt.Sprintf("%d B %s", size, digest.String()[:len("sha256:")+shortDigits])
}

func modeText(mode uint32) string { return fmt.Sprintf("%04o", mode) }

// stale reports whether systemd has not read a file that is in order. Of a template that cannot be said: what is asked of systemd is an
// instance, and whoever acts on one has systemd read what has changed.
func (f *files) stale(ctx context.Context, g *target) (bool, error) {
	if f.bus == nil || isTemplate(g.unit) {
		return false, nil
	}
	s, err := f.bus.Unit(ctx, g.unit)
	switch {
	case reason.Is(err, reason.NoSystemd):
		return false, nil // nobody is there to read it
	case err != nil:
		return false, err
	}
	return s.NeedDaemonReload || s.NotFound() && !g.dropIn, nil
}

// reload has systemd read what has changed, where there is one.
func (f *files) reload(ctx context.Context) error {
	if f.bus == nil {
		return nil
	}
	if err := f.bus.Reload(ctx); !reason.Is(err, reason.NoSystemd) {
		return err
	}
	return nil
}

func isTemplate(unit string) bool {
	return strings.HasSuffix(strings.TrimSuffix(unit, path.Ext(unit)), "@")
}

// draft is a file on its way: a target and its text.
type draft struct {
	*target
	text  string
	was   disk.Signature
	whole bool // its content is written; otherwise only owner and mode are set

	changed bool
	notes   []string
	err     error
}

// verify gives an error to each draft whose text systemd does not accept.
func (f *files) verify(ctx context.Context, drafts []*draft) {
	if f.root.Path() != "/" {
		return
	}
	f.verifier.verify(ctx, slices.DeleteFunc(slices.Clone(drafts), func(d *draft) bool { return !d.whole }))
}

// writeAll writes the drafts that have no error. It does not have systemd read them.
func (f *files) writeAll(ctx context.Context, drafts []*draft) {
	var whole []*draft
	for _, d := range drafts {
		if d.whole {
			whole = append(whole, d)
		} else if d.err == nil {
			f.setAttributes(ctx, d)
		}
	}
	var specs []durable.WriteSpec
	var writing []*draft
	for _, d := range whole {
		if d.err == nil {
			d.err = f.makeHolder(ctx, d.target)
		}
		if d.err != nil {
			continue
		}
		writing = append(writing, d)
		specs = append(specs, durable.WriteSpec{Path: d.path, Content: strings.NewReader(d.text), Size: int64(len(d.text)), Mode: int(d.mode), UID: int(d.uid), GID: int(d.gid),
			Expect: &d.was, OnBackup: f.keeper(ctx, d)})
	}
	for i, res := range durable.WriteAll(ctx, f.root, specs) {
		d := writing[i]
		d.changed, d.err = res.Changed, res.Err
		if res.Err == nil {
			d.seen, d.settled = res.Signature, false
		}
	}
}

func (f *files) setAttributes(ctx context.Context, d *draft) {
	sig, err := durable.SetAttributes(ctx, f.root, durable.AttributeSpec{Path: d.path, Mode: int(d.mode), UID: int(d.uid), GID: int(d.gid), Expect: &d.was})
	if d.changed, d.err = err == nil, err; err == nil {
		d.seen, d.settled = sig, false
	}
}

// makeHolder makes the directory of a drop-in, or of a sandbox's unit files, where it is missing.
func (f *files) makeHolder(ctx context.Context, g *target) error {
	var missing []string
	for dir := path.Dir(g.path); dir != "/"; dir = path.Dir(dir) {
		st, err := f.root.Stat(dir)
		if err == nil && st.Exists() {
			break
		}
		if err != nil && !reason.Is(err, reason.ParentMissing) {
			return err
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := f.Beside(ctx, missing[i]); err != nil {
			return err
		}
		_, err := durable.Mkdir(ctx, f.root, durable.MkdirSpec{Path: missing[i], Mode: dirMode, UID: int(f.uid), GID: int(f.gid)})
		if err != nil && !reason.Is(err, reason.ConcurrentEdit) { // another one has just made it
			return err
		}
	}
	return nil
}

// keeper returns what stores the old text of a draft.
func (f *files) keeper(ctx context.Context, d *draft) durable.Backup {
	if f.store == nil {
		return nil
	}
	return func(old *os.File, st disk.Stat) error {
		if st.Size == 0 {
			return nil
		}
		digest, _, err := f.store.Keep(ctx, content.Version{Path: []byte(d.path), Mode: st.Perm(), UID: st.UID, GID: st.GID}, old)
		if err != nil {
			return &reason.Error{Code: reason.BackupFailed, Doing: "back up " + disk.Shown(d.path), Cause: err}
		}
		if isPrivate(st.Signature) {
			d.notes = append(d.notes, "old content kept")
		} else {
			d.notes = append(d.notes, "old content kept as "+digest.String())
		}
		return nil
	}
}

// remove removes a file, if there is one, and the directory of a drop-in that is empty then.
func (f *files) remove(ctx context.Context, g *target) (changed bool, err error) {
	g.seen = disk.Signature{}
	st, err := f.root.Stat(g.path)
	switch {
	case reason.Is(err, reason.ParentMissing), err == nil && !st.Exists():
		return false, nil
	case err != nil:
		return false, err
	case st.Type() != unix.S_IFREG:
		return false, &reason.Error{Code: reason.TypeInTheWay, Doing: "remove unit file " + disk.Shown(g.path), Cause: fmt.Errorf("a %s is there", st.Kind()),
			Hint: "tako did not make it: move it away, or remove it"}
	}
	d := &draft{target: g}
	var keep durable.Backup
	if v, _, err := f.look(g, false, 0); err != nil || v.rewrite() {
		keep = f.keeper(ctx, d) // it is not what was declared
	}
	if err := durable.Remove(ctx, f.root, durable.RemoveSpec{Path: g.path, Expect: &st.Signature, OnBackup: keep}); err != nil {
		return false, err
	}
	g.seen = disk.Signature{}
	if g.dropIn {
		err := durable.Remove(ctx, f.root, durable.RemoveSpec{Path: path.Dir(g.path)})
		if err != nil && !reason.Is(err, reason.DirectoryNotEmpty) {
			return true, err
		}
	}
	return true, nil
}

// original is the stored form of what a unit file was before tako changed it. Later versions read it too: fields may be added, and none ever
// gets another meaning.
type original struct {
	There bool   `json:"there"`
	Text  []byte `json:"text,omitempty"`
	Mode  uint32 `json:"mode,omitempty"` // permissions
	UID   uint32 `json:"uid,omitempty"`
	GID   uint32 `json:"gid,omitempty"`
}

// keptMax bounds the text that is kept: in JSON, it must be less than the 1 MiB that the agent keeps of a resource.
const keptMax = 300 << 10

func (f *files) original(g *target) (original, error) {
	v, _, err := f.look(g, false, 0)
	switch {
	case err != nil:
		return original{}, err
	case len(v.text) > keptMax:
		return original{}, &reason.Error{Code: reason.BackupFailed, Doing: g.doing(), Cause: errors.New("the file that is there is too large to be kept"), Hint: "look at it, and remove it"}
	}
	return original{There: v.sig.Exists(), Text: v.text, Mode: v.sig.Perm(), UID: v.sig.UID, GID: v.sig.GID}, nil
}

// restore puts back what was there.
func (f *files) restore(ctx context.Context, g *target, o original) (changed bool, err error) {
	if !o.There {
		return f.remove(ctx, g)
	}
	back := &target{path: g.path, label: g.label, unit: g.unit, dropIn: g.dropIn, digest: content.DigestOf(o.Text), size: len(o.Text), mode: o.Mode, uid: o.UID, gid: o.GID}
	g.seen = disk.Signature{}
	v, _, err := f.look(back, false, 0)
	if err != nil || len(v.changes) == 0 {
		return false, err
	}
	if err := f.makeHolder(ctx, back); err != nil {
		return false, err
	}
	spec := durable.WriteSpec{Path: back.path, Content: strings.NewReader(string(o.Text)), Size: int64(len(o.Text)), Mode: int(o.Mode), UID: int(o.UID), GID: int(o.GID), Expect: &v.sig}
	if content.DigestOf(v.text) != g.digest {
		spec.OnBackup = f.keeper(ctx, &draft{target: back}) // it is not what was declared
	}
	res, err := durable.Write(ctx, f.root, spec)
	return res.Changed, err
}
