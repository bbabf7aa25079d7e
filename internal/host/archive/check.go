package archive

import (
	"context"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// step is what Apply needs of a plan: its State.
type step struct {
	found disk.Signature // what the check saw
	anew  bool           // the archive has to be unpacked, not only owner and mode of the directory set
}

// Check looks at each directory.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	for i, res := range rs {
		p := &plans[i]
		p.Resource = res
		r := res.(*resource)
		if err := ctx.Err(); err != nil {
			p.Err = reason.Ended("look at "+disk.Shown(r.path), err)
			continue
		}
		p.Err = t.check(ctx, r, depth, p)
	}
	return plans
}

func (t *Type) check(ctx context.Context, r *resource, depth host.Depth, p *host.Plan) error {
	began := disk.Tick()
	if err := t.renumber(ctx, r, depth); err != nil {
		return err
	}
	digest := r.digest
	if err := t.reread(r, depth); err != nil {
		return err
	}
	d, name, err := t.root.Parent(r.path)
	if err != nil {
		return err
	}
	defer d.Close()
	now, err := d.Stat(name)
	if err != nil {
		return err
	}
	remembered := depth == host.Shallow && r.seen.Exists() && now.Signature == r.seen && digest == r.digest
	if remembered && r.settled {
		p.Recognised = true
		return nil
	}
	v := view{Type: t, r: r, dir: d, name: name, now: now}
	if err := v.compare(ctx); err != nil {
		return err
	}
	if len(v.changes) == 0 {
		p.Recognised = remembered
		r.seen, r.settled = now.Signature, now.Ctime < began
		return nil
	}
	r.seen = disk.Signature{}
	p.Changes, p.State = v.changes, step{found: now.Signature, anew: v.anew}
	return nil
}

// view is what stands at the path beside what is declared.
type view struct {
	*Type
	r       *resource
	dir     *disk.Dir
	name    string
	now     disk.Stat
	anew    bool
	changes []host.Change
}

func (v *view) add(field, from, to string) {
	if from != to {
		v.changes = append(v.changes, host.Change{Field: field, From: from, To: to})
	}
}

func (v *view) compare(ctx context.Context) error {
	r := v.r
	switch {
	case !v.now.Exists():
		v.whole("", "absent")
		return nil
	case v.now.MountRoot:
		return &reason.Error{Code: reason.MountPointFile, Doing: r.doing(), Cause: standing(v.now.Kind()), Hint: "unmount it, or unpack into a directory in it"}
	case v.now.Type() != unix.S_IFDIR && !r.force:
		return &reason.Error{Code: reason.TypeInTheWay, Doing: r.doing(), Cause: standing(v.now.Kind()), Hint: "move it away, or declare `force: true`"}
	case v.now.Type() != unix.S_IFDIR:
		v.whole("type", v.now.Kind())
		return nil
	}
	from, err := v.holds(ctx)
	if err != nil {
		return err
	}
	if from != "" {
		v.anew = true
		v.add("content", from, "sha256:"+shortOf(r.digest.String()))
	}
	v.add("mode", modeText(v.now.Perm()), modeText(r.mode()))
	v.add("owner", number(v.now.UID), number(r.uid))
	v.add("group", number(v.now.GID), number(r.gid))
	return nil
}

// whole is the comparison with nothing, or with something of another type.
func (v *view) whole(field, from string) {
	r := v.r
	v.anew = true
	v.add(field, from, "directory")
	v.add("content", "", "sha256:"+shortOf(r.digest.String()))
	v.add("mode", "", modeText(r.mode()))
	v.add("owner", "", number(r.uid))
	v.add("group", "", number(r.gid))
}

// holds says in words what is in the directory; "" where that is what is declared.
func (v *view) holds(ctx context.Context) (string, error) {
	r := v.r
	record, err := v.read(r.path)
	if err != nil {
		return "", err
	}
	m := record.at(v.now.Signature)
	if m == nil {
		return v.foreign()
	}
	whole, err := v.untouched(ctx, m)
	switch {
	case err != nil:
		return "", err
	case !whole:
		return "changed since it was unpacked", nil
	case m.Digest != r.digest.String():
		return "sha256:" + shortOf(m.Digest), nil
	case m.Recipe != r.recipe():
		return "sha256:" + shortOf(m.Digest) + " unpacked otherwise", nil
	}
	return "", nil
}

// foreign is the answer for a directory that was not unpacked here.
func (v *view) foreign() (string, error) {
	sub, err := v.dir.Sub(v.name)
	if err != nil {
		return "", err
	}
	defer sub.Close()
	_, err = sub.Names(0)
	switch {
	case err == nil:
		return "empty", nil
	case !reason.Is(err, reason.BodyTooLarge):
		return "", err
	case !v.r.force:
		return "", &reason.Error{Code: reason.DirectoryNotEmpty, Doing: v.r.doing(), Cause: standing("directory with entries that were not unpacked here"),
			Hint: "move it away, or declare `force: true`: then its entries are lost"}
	}
	return "other entries", nil
}

// untouched reports whether a directory is as it was left, and remembers how it looks where only that has changed.
func (v *view) untouched(ctx context.Context, m *made) (bool, error) {
	fd, err := disk.OpenAt(v.dir.FD(), v.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false, v.dir.Fault("look at what was unpacked to", v.name, err)
	}
	defer unix.Close(fd)
	quick, err := imprintOf(ctx, fd, false, m.Bytes)
	if err != nil {
		return false, v.dir.Fault("look at what was unpacked to", v.name, err)
	}
	if quick == m.Imprints.Quick || quick == v.r.quick && quick != (imprint{}) {
		return true, nil
	}
	full, err := imprintOf(ctx, fd, true, m.Bytes)
	if err != nil || full != m.Imprints.Full {
		return false, v.dir.Fault("look at what was unpacked to", v.name, err)
	}
	v.r.quick = quick
	return true, nil
}

// standing says what stands at a path, as the cause of an error.
type standing string

func (s standing) Error() string { return "a " + string(s) + " is there" }

// shortOf is as much of a digest as people compare by eye.
func shortOf(digest string) string {
	const prefix, digits = len("sha256:"), 8
	return digest[prefix:min(prefix+digits, len(digest))]
}

func number(id uint32) string { return strconv.FormatUint(uint64(id), 10) }
