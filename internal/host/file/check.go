package file

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/command/check"
	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// readMax is how much of a content that is not as declared is read for a person: as much as can be declared. What is larger
// differs by its length.
const readMax = declare.BodyBytesMax

// step is what Apply needs of a plan: its State.
type step struct {
	found  disk.Signature      // what the check saw
	anew   bool                // the thing has to be made, not only its owner, mode and attributes set
	differ []durable.Attribute // the attributes that do
	hidden bool                // of what is there nothing may be shown
}

// Check looks at all resources with one walk to each directory.
func (t *Type) Check(ctx context.Context, rs []host.Resource, depth host.Depth) []host.Plan {
	plans := make([]host.Plan, len(rs))
	l := looker{t: t, depth: depth, now: disk.Tick()}
	for members := range byDirectory(rs) {
		l.directory(ctx, members, plans)
	}
	return plans
}

// renumber finds out which numbers the names of an owner and a group have now. A call asks for few names, many times.
func (l *looker) renumber(ctx context.Context, r *resource) error {
	changed, err := r.relist(ctx, l.number)
	if changed {
		r.seen = disk.Signature{}
	}
	if r.rare().names == nil || err != nil {
		return err
	}
	ids, known := l.numbers[*r.rare().names]
	if !known {
		fresh := resource{path: r.path}
		err := l.t.own(ctx, &fresh, r.rare().names.owner, r.rare().names.group)
		ids = numbers{fresh.uid, fresh.gid, err}
		if l.numbers == nil {
			l.numbers = make(map[names]numbers)
		}
		l.numbers[*r.rare().names] = ids
	}
	if ids.err != nil {
		return ids.err
	}
	if r.rare().names.owner != "" && r.uid != ids.uid {
		r.uid, r.seen = ids.uid, disk.Signature{}
	}
	if r.rare().names.group != "" && r.gid != ids.gid {
		r.gid, r.seen = ids.gid, disk.Signature{}
	}
	return nil
}

// numbers are those of a user and a group.
type numbers struct {
	uid, gid uint32
	err      error
}

// member is one resource of a directory and its index in the call.
type member struct {
	*resource
	index int
}

// byDirectory yields the resources of each directory together.
func byDirectory(rs []host.Resource) func(yield func([]member) bool) {
	all := make([]member, len(rs))
	for i, r := range rs {
		all[i] = member{r.(*resource), i}
	}
	dirOf := func(m member) string { return m.path[:strings.LastIndexByte(m.path, '/')] }
	slices.SortStableFunc(all, func(a, b member) int { return strings.Compare(dirOf(a), dirOf(b)) })
	return func(yield func([]member) bool) {
		for len(all) > 0 {
			n := 1
			for n < len(all) && dirOf(all[n]) == dirOf(all[0]) {
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// looker is one call of Check.
type looker struct {
	t     *Type
	depth host.Depth
	// now is the kernel's coarse clock at the start of the call, in nanoseconds since 1970. It gives a change the time of
	// the tick that it falls in, so whoever sees a file whose last change was before now sees every later change in its
	// signature.
	now    int64
	hasher *disk.Hasher // made when the first content is read
	names  map[owner]string
	// numbers are what names mean now, entries what those in access lists do.
	numbers map[names]numbers
	entries map[account]answer
}

// owner is a user or a group.
type owner struct {
	of table
	id uint32
}

// name is an owner's name for a person. A call asks for few of them, many times.
func (l *looker) name(of table, id uint32) string {
	name, ok := l.names[owner{of, id}]
	if !ok {
		if l.names == nil {
			l.names = make(map[owner]string)
		}
		name = l.t.owners.name(of, id)
		l.names[owner{of, id}] = name
	}
	return name
}

// directory checks the resources of one directory.
func (l *looker) directory(ctx context.Context, members []member, plans []host.Plan) {
	dir, _ := split(members[0].path)
	d, err := l.t.root.Dir(dir)
	if err == nil {
		defer d.Close()
	}
	for _, m := range members {
		p := &plans[m.index]
		p.Resource = m.resource
		switch {
		case err != nil:
			p.Err = err
			if l.depth == host.Explain && reason.Is(err, reason.ParentMissing) {
				p.Changes = l.fresh(ctx, m.resource)
			}
		case ctx.Err() != nil:
			p.Err = ended("look at", m.path, ctx.Err())
		default:
			if p.Err = l.renumber(ctx, m.resource); p.Err == nil {
				p.Err = l.reread(m.resource)
			}
			if p.Err == nil {
				l.entry(d, m.resource, p)
			}
		}
	}
}

// fresh is what is to be done for a resource in a directory that is new; nil where that cannot be told.
func (l *looker) fresh(ctx context.Context, r *resource) []host.Change {
	if l.renumber(ctx, r) != nil || l.reread(r) != nil {
		return nil
	}
	c := comparison{looker: l, r: r}
	if c.run() != nil {
		return nil
	}
	return c.changes
}

// entry checks one resource.
func (l *looker) entry(d *disk.Dir, r *resource, p *host.Plan) {
	_, name := split(r.path)
	now, err := d.Stat(name)
	if err != nil {
		p.Err = err
		return
	}
	remembered := l.depth == host.Shallow && r.remembers(now.Signature)
	// What is remembered of a directory is no word on its attributes: see mark.
	if remembered && r.settled && (r.rare().extras == nil || r.kind() != unix.S_IFDIR) {
		p.Recognised = true
		return
	}
	c := comparison{looker: l, dir: d, name: name, r: r, now: now}
	if p.Err = c.run(); p.Err != nil {
		return
	}
	if len(c.changes) == 0 {
		p.Recognised = remembered
		r.remember(c.now.Signature, c.now.Ctime < l.now || r.kind() == unix.S_IFDIR)
		return
	}
	r.remember(disk.Signature{}, false)
	p.Changes = c.changes
	p.State = step{found: c.now.Signature, anew: c.anew, hidden: c.hidden(), differ: c.differ}
}

// comparison is one resource beside what stands at its path.
type comparison struct {
	*looker
	dir     *disk.Dir
	name    string
	r       *resource
	now     disk.Stat
	anew    bool
	differ  []durable.Attribute
	changes []host.Change
}

func (c *comparison) run() error {
	r := c.r
	switch c.now.Type() {
	case 0:
		return c.whole("", "absent")
	case r.kind():
	default:
		if err := c.mayReplace(); err != nil {
			return err
		}
		return c.whole("type", c.now.Kind())
	}
	if err := c.substance(); err != nil {
		return err
	}
	// Who had the file may have it open still, and change what would run with rights that are not his.
	c.anew = c.anew || r.grants() && !r.onlyNew && !c.now.MountRoot && c.now.UID != 0 && c.now.UID != c.t.uid && c.now.UID != r.uid
	if c.anew && r.kind() == unix.S_IFREG && !r.inPlace {
		if c.now.MountRoot {
			return &reason.Error{Code: reason.MountPointFile, Doing: r.doing(), Hint: "declare `inPlace: true`, or unmount it"}
		}
		if c.now.Nlink > 1 {
			c.add("links", strconv.FormatUint(uint64(c.now.Nlink), 10), "1")
		}
	}
	if perm := r.permBeside(c.now.Signature); r.kind() != unix.S_IFLNK && c.now.Perm() != perm {
		c.add("mode", modeText(c.now.Perm()), modeText(perm))
	}
	uid, gid := r.ownersBeside(c.now.Signature)
	if c.now.UID != uid {
		c.add("owner", c.looker.name(users, c.now.UID), c.looker.name(users, uid))
	}
	if c.now.GID != gid {
		c.add("group", c.looker.name(groups, c.now.GID), c.looker.name(groups, gid))
	}
	if err := c.attributes(true); err != nil {
		return err
	}
	if err := c.spareRights(); err != nil {
		return err
	}
	return c.spareLinks()
}

// spareRights refuses to give rights to a content that is left to others, where others than root may have put it there: it would run with
// rights that they do not have.
func (c *comparison) spareRights() error {
	if len(c.changes) == 0 || !c.r.onlyNew || !c.r.grants() {
		return nil
	}
	dir, err := c.dir.Stat("")
	if err != nil {
		return err
	}
	writer := c.t.uid
	if c.r.grantsOwners() {
		writer = c.r.uid
	}
	if _, foreign := disk.Foreign(writer, dir, c.now); !foreign {
		return nil
	}
	return &reason.Error{Code: reason.EntryRefused, Doing: c.r.doing(),
		Cause: errors.New("its content is left to others, and others than root may have put it there: it would run with rights that they do not have"),
		Hint:  "remove it, so that it is made anew; or leave set-id bits and capabilities out, or declare its content"}
}

// spareLinks refuses to change an inode that has other names, where others may have made one of them: they could have any file of the host
// changed, or given to them.
func (c *comparison) spareLinks() error {
	if len(c.changes) == 0 || c.now.Type() != unix.S_IFREG || c.now.Nlink == 1 || c.anew && !c.r.inPlace {
		return nil
	}
	dir, err := c.dir.Stat("")
	if err != nil {
		return err
	}
	if _, foreign := disk.Foreign(c.t.uid, dir); !foreign {
		return nil
	}
	return &reason.Error{Code: reason.EntryRefused, Doing: c.r.doing(),
		Cause: errors.New("it has " + strconv.FormatUint(uint64(c.now.Nlink-1), 10) + " other hard links, which may be anywhere, and others than root may write to its directory"),
		Hint:  "remove the other links: find / -xdev -samefile " + disk.Shown(c.r.path)}
}

func (c *comparison) add(field, from, to string) {
	c.changes = append(c.changes, host.Change{Field: field, From: from, To: to})
}

// mayReplace decides whether something of another type may go.
func (c *comparison) mayReplace() error {
	switch {
	case c.r.inPlace:
		return c.r.inTheWay(c.now, "`inPlace: true` writes into a file only")
	case !c.r.force:
		return c.r.inTheWay(c.now, "move it away, or declare `force: true`")
	case c.now.MountRoot:
		return &reason.Error{Code: reason.MountPointFile, Doing: c.r.doing(), Cause: isThere(c.now.Kind()), Hint: "unmount it"}
	case c.now.Type() != unix.S_IFDIR:
		return nil
	}
	sub, err := c.dir.Sub(c.name)
	if err != nil {
		return err
	}
	defer sub.Close()
	_, err = sub.Names(0)
	if reason.Is(err, reason.BodyTooLarge) {
		return &reason.Error{Code: reason.DirectoryNotEmpty, Doing: c.r.doing(), Cause: isThere(c.now.Kind()), Hint: "move its entries away: `force: true` replaces an empty directory only"}
	}
	return err
}

// whole is the comparison with nothing, or with something of another type: everything has to be made.
func (c *comparison) whole(field, from string) error {
	r := c.r
	c.anew = true
	c.add(field, from, kindName(r.kind()))
	switch r.kind() {
	case unix.S_IFREG:
		if err := c.addContent("", nil); err != nil {
			return err
		}
	case unix.S_IFLNK:
		c.add("target", "", disk.Shown(r.target))
	}
	if r.kind() != unix.S_IFLNK {
		c.add("mode", "", modeText(r.perm()))
	}
	c.add("owner", "", c.looker.name(users, r.uid))
	c.add("group", "", c.looker.name(groups, r.gid))
	return c.attributes(false)
}

// substance compares what only a closer look than stat tells.
func (c *comparison) substance() error {
	switch c.r.kind() {
	case unix.S_IFREG:
		return c.content()
	case unix.S_IFLNK:
		target, err := c.dir.Readlink(c.name)
		if err == nil && target != c.r.target {
			c.anew = true
			c.add("target", disk.Shown(target), disk.Shown(c.r.target))
		}
		return err
	}
	return nil
}

// content compares a file's content.
func (c *comparison) content() error {
	r := c.r
	if r.onlyNew {
		return nil
	}
	if c.now.Size != r.size && c.now.Size > readMax {
		c.anew = true
		return c.addContent(contentText(c.now.Size, content.Digest{}, c.hidden()), nil)
	}
	if c.depth == host.Explain && !c.hidden() && r.rare().from == nil {
		return c.contentInFull()
	}
	if c.hasher == nil {
		c.hasher = disk.NewHasher()
	}
	digest, now, err := c.hasher.File(c.dir, c.name, max(readMax, r.size))
	if err != nil {
		return err
	}
	c.now = now
	if content.Digest(digest) == r.digest && now.Size == r.size {
		return nil
	}
	c.anew = true
	return c.addContent(contentText(now.Size, digest, c.hidden()), nil)
}

// contentInFull compares a content that may be shown, and shows it.
func (c *comparison) contentInFull() error {
	have, now, err := c.dir.ReadFile(c.name, max(readMax, c.r.size))
	if err != nil {
		return err
	}
	c.now = now
	digest := content.DigestOf(have)
	if digest == c.r.digest {
		return nil
	}
	c.anew = true
	return c.addContent(contentText(now.Size, digest, c.hidden()), have)
}

// hidden reports whether a content may not be shown: one that only its owner may read now, or may read when it is declared, or that
// may be a secret.
func (c *comparison) hidden() bool {
	const others = 0o077
	return c.r.private || c.t.secrets.has(c.r.path) || c.now.Type() == unix.S_IFREG && c.now.Mode&others == 0
}

// addContent notes that the content will be the declared one, and what has to accept it before. have is what is there, for
// a diff.
func (c *comparison) addContent(from string, have []byte) error {
	r := c.r
	change := host.Change{Field: "content", From: from, To: contentText(r.size, r.digest, c.hidden())}
	if c.depth == host.Explain && !c.hidden() && r.rare().from == nil && (from == "" || have != nil) {
		text, err := r.declaredContent()
		if err != nil {
			return err
		}
		change.Text = &host.Text{From: have, To: []byte(text)}
	}
	c.changes = append(c.changes, change)
	if len(r.rare().check) > 0 {
		c.add("check", "", "must accept it: "+check.Shown(r.rare().check))
	}
	return nil
}

// ended is the error of what its context has ended.
func ended(op, p string, err error) *reason.Error { return reason.Ended(op+" "+disk.Shown(p), err) }
