package file

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/acl"
	"tako.dev/tako/internal/disk/durable"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

const (
	labelAttribute      = "security.selinux"
	capabilityAttribute = "security.capability"
	// valueShownMax is how much of an attribute's value a person is shown, in bytes.
	valueShownMax = 64
)

// extras are the attributes of a resource that declares some: extended attributes, access lists, a label. Few do.
type extras struct {
	attributes []durable.Attribute // wanted, as numbers are now; a nil value is none
	// entries and mode are what the access lists are made of again when a name comes to mean another number. No entries is no list that
	// is declared.
	entries   []declare.ACLEntry
	mode      uint32
	directory bool
}

// newExtras makes what is declared ready; nil for nothing. It sets the group's bits of a mode to the mask of the list, as the kernel does.
func (t *Type) newExtras(ctx context.Context, r *resource, xattrs map[string]string, list []string, label string) error {
	if len(xattrs) == 0 && len(list) == 0 && label == "" {
		return nil
	}
	x := &extras{mode: r.perm(), directory: r.kind() == unix.S_IFDIR}
	for name, text := range xattrs {
		value, mistake := declare.ParseXAttrValue(text)
		if mistake != "" {
			return r.invalid(mistake)
		}
		x.attributes = append(x.attributes, durable.Attribute{Name: name, Value: value})
	}
	slices.SortFunc(x.attributes, func(a, b durable.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	if label != "" {
		if !seLinux() {
			return &reason.Error{Code: reason.NoSELinux, Doing: "label " + disk.Shown(r.path), Hint: "leave `selinux` out for this host: its kernel runs without SELinux"}
		}
		x.attributes = append(x.attributes, durable.Attribute{Name: labelAttribute, Value: append([]byte(label), 0)})
	}
	r.fill().extras = x
	if len(list) == 1 && list[0] == declare.ACLNone {
		x.attributes = append(x.attributes, durable.Attribute{Name: acl.Access})
		if x.directory {
			x.attributes = append(x.attributes, durable.Attribute{Name: acl.Default})
		}
		return nil
	}
	for _, text := range list {
		e, mistake := declare.ParseACLEntry(text)
		if mistake != "" {
			return r.invalid(mistake)
		}
		x.entries = append(x.entries, e)
	}
	_, err := r.relist(ctx, t.owners.number)
	return err
}

func (r *resource) invalid(mistake string) error {
	return &reason.Error{Code: reason.InvalidValue, Doing: r.doing(), Cause: mistaken(mistake)}
}

// mistaken says what is wrong with a value, as the cause of an error.
type mistaken string

func (m mistaken) Error() string { return string(m) }

// seLinux reports whether the kernel enforces labels, or could: its file system is there.
func seLinux() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/selinux", &st) == nil && st.Type == unix.SELINUX_MAGIC
}

// numbering tells which number a user or group has.
type numbering func(ctx context.Context, of table, name string) (uint32, error)

// number is owners.number, which asks for a name once in a call.
func (l *looker) number(ctx context.Context, of table, name string) (uint32, error) {
	a, known := l.entries[account{of, name}]
	if !known {
		if l.entries == nil {
			l.entries = make(map[account]answer)
		}
		a.id, a.err = l.t.owners.number(ctx, of, name)
		l.entries[account{of, name}] = a
	}
	return a.id, a.err
}

// account is a name of a user or group.
type account struct {
	of   table
	name string
}

// relist makes the access lists for the numbers that the names have now, and reports whether that changed them.
func (r *resource) relist(ctx context.Context, number numbering) (changed bool, err error) {
	x := r.rare().extras
	if x == nil || len(x.entries) == 0 {
		return false, nil
	}
	named := map[bool][]acl.Entry{} // by whether it is of the default list
	for _, e := range x.entries {
		entry := acl.Entry{Tag: acl.Mask, Perm: e.Perm}
		of := users
		switch e.Tag {
		case declare.ACLUser:
			entry.Tag = acl.User
		case declare.ACLGroup:
			entry.Tag, of = acl.Group, groups
		}
		if entry.Tag != acl.Mask {
			if entry.ID, err = number(ctx, of, e.Name); err != nil {
				return false, err
			}
		}
		named[e.Default] = append(named[e.Default], entry)
	}
	access, list, err := attributeOf(acl.Access, named[false], x.mode)
	if err != nil {
		return false, r.invalid(err.Error())
	}
	fresh := append(slices.DeleteFunc(slices.Clone(x.attributes), isList), access)
	if x.directory {
		inherited, _, err := attributeOf(acl.Default, named[true], x.mode)
		if err != nil {
			return false, r.invalid(err.Error())
		}
		fresh = append(fresh, inherited)
	}
	changed = !slices.EqualFunc(x.attributes, fresh, sameAttribute)
	x.attributes = fresh
	r.mode = r.mode&^0o070 | list.Mode()&0o070
	return changed, nil
}

// attributeOf is the attribute of a list, which is not there where nobody is named.
func attributeOf(name string, named []acl.Entry, mode uint32) (durable.Attribute, acl.List, error) {
	list, err := acl.New(named, mode)
	if err != nil || len(named) == 0 {
		return durable.Attribute{Name: name}, list, err
	}
	return durable.Attribute{Name: name, Value: list.Encode()}, list, nil
}

func isList(a durable.Attribute) bool { return a.Name == acl.Access || a.Name == acl.Default }

func sameAttribute(a, b durable.Attribute) bool {
	return a.Name == b.Name && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
}

// wanted are the attributes that a resource declares.
func (r *resource) wanted() []durable.Attribute {
	if r.rare().extras == nil {
		return nil
	}
	return r.rare().extras.attributes
}

// watches are the files that say which numbers the names in the access lists have.
func (x *extras) watches() (user, group bool) {
	if x == nil {
		return false, false
	}
	for _, e := range x.entries {
		user = user || e.Tag == declare.ACLUser && named(e.Name) != ""
		group = group || e.Tag == declare.ACLGroup && named(e.Name) != ""
	}
	return user, group
}

// attributes compares the declared attributes with those that are there; nothing is there where the thing is made anew.
func (c *comparison) attributes(there bool) error {
	for _, want := range c.r.wanted() {
		have := durable.Attribute{Name: want.Name}
		if there {
			var err error
			if have.Value, err = c.dir.Attribute(c.name, want.Name); err != nil {
				return err
			}
		}
		if equivalent(have, want) {
			continue
		}
		c.differ = append(c.differ, want)
		field, from, to := fieldOf(want.Name), "", c.attributeText(want)
		if there {
			from = c.attributeText(have)
		}
		if there || want.Value != nil {
			c.add(field, from, to)
		}
	}
	return nil
}

// equivalent compares attributes: of an access list what it says beside the mode, which is compared itself; of a label without its end.
func equivalent(have, want durable.Attribute) bool {
	switch want.Name {
	case acl.Access:
		h, errHave := acl.Decode(have.Value)
		w, errWant := acl.Decode(want.Value)
		if (errHave == nil || have.Value == nil) && (errWant == nil || want.Value == nil) {
			return slices.Equal(h.Beside(), w.Beside())
		}
	case labelAttribute:
		return bytes.Equal(bytes.TrimSuffix(have.Value, []byte{0}), bytes.TrimSuffix(want.Value, []byte{0}))
	}
	return sameAttribute(have, want)
}

// fieldOf names an attribute as it is declared.
func fieldOf(name string) string {
	switch name {
	case acl.Access:
		return "acl"
	case acl.Default:
		return "default acl"
	case labelAttribute:
		return "selinux"
	}
	return "xattrs " + disk.Shown(name)
}

// attributeText is an attribute's value for a person.
func (c *comparison) attributeText(a durable.Attribute) string {
	if a.Value == nil {
		return "none"
	}
	if isList(a) {
		list, err := acl.Decode(a.Value)
		if err != nil {
			return "unreadable"
		}
		return list.Text(func(group bool, id uint32) string {
			if group {
				return disk.Shown(c.looker.name(groups, id))
			}
			return disk.Shown(c.looker.name(users, id))
		})
	}
	text := string(bytes.TrimSuffix(a.Value, []byte{0}))
	switch {
	case a.Name == labelAttribute:
		return disk.Shown(text)
	case c.hidden():
		return strconv.Itoa(len(a.Value)) + " B, not shown"
	case len(text) > valueShownMax || !utf8.ValidString(text):
		return strconv.Itoa(len(a.Value)) + " B"
	}
	return disk.Shown(text)
}

// read returns the attributes that a resource declares as they are now, for putting them back. Only files and directories have any.
func (r *resource) read(d *disk.Dir, name string, now disk.Stat) ([]durable.Attribute, error) {
	var list []durable.Attribute
	if now.Type() != unix.S_IFREG && now.Type() != unix.S_IFDIR {
		return nil, nil
	}
	for _, want := range r.wanted() {
		value, err := d.Attribute(name, want.Name)
		if err != nil {
			return nil, err
		}
		list = append(list, durable.Attribute{Name: want.Name, Value: value})
	}
	return list, nil
}

// accountWatches are the files that the names of a resource are looked up in.
func (r *resource) accountWatches() []host.Watch {
	user, group := r.rare().extras.watches()
	if r.rare().names != nil {
		user, group = user || r.rare().names.owner != "", group || r.rare().names.group != ""
	}
	var watches []host.Watch
	if user {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: users.path()})
	}
	if group {
		watches = append(watches, host.Watch{Kind: host.WatchPath, Name: groups.path()})
	}
	return watches
}

// fileOf is the file that a resource is, if it is one: rules of sudo are a file with fixed owner, mode and check.
func fileOf(r *declare.Resource) *declare.File {
	if r.Sudoers != nil {
		return r.Sudoers.AsFile(r.Claim().ID)
	}
	return r.File
}

// sandboxHint says what to do about a check that cannot be run in a sandbox.
func sandboxHint(r *declare.Resource) string {
	if r.Sudoers != nil {
		return "rules of sudo are checked by visudo, which would run outside the sandbox: leave them to the host itself"
	}
	return "leave `check` out: a command would run outside the sandbox"
}
