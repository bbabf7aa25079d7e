// Package acl writes and reads POSIX access lists in the form that the kernel keeps them in, acl(5) and linux/posix_acl_xattr.h: a version,
// then eight bytes for each entry. It is pure and owns no goroutine.
package acl

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The attributes that a list is in: that of a file, and that for what is made in a directory.
const (
	Access  = "system.posix_acl_access"
	Default = "system.posix_acl_default"
)

// Tag is whom an entry is about. Their order is that of a list.
type Tag uint16

// The tags, as the kernel counts them.
const (
	Owner    Tag = 0x01
	User     Tag = 0x02
	OwnGroup Tag = 0x04
	Group    Tag = 0x08
	Mask     Tag = 0x10
	Others   Tag = 0x20
)

const (
	undefined = 0xffffffff // the number of an entry that has none
	version   = 2
	headBytes = 4
	itemBytes = 8
	permMax   = 7
)

// Entry is one entry.
type Entry struct {
	Tag  Tag
	ID   uint32 // of a User or Group, else 0
	Perm uint16 // 4 read, 2 write, 1 execute
}

// List is a list in its order: by tag, then by number.
type List []Entry

// New makes the list of named entries, of which at most one is a Mask, and of the owner's, group's and others' rights of a mode. Without a
// Mask it is what all but the owner and others may do together, as setfacl(1) has it. Nobody and no group may be named twice.
func New(named []Entry, mode uint32) (List, error) {
	list := List{{Owner, 0, uint16(mode >> 6 & permMax)}, {OwnGroup, 0, uint16(mode >> 3 & permMax)}, {Others, 0, uint16(mode & permMax)}}
	mask := Entry{Mask, 0, list[1].Perm}
	masked := false
	for _, e := range named {
		if e.Tag == Mask {
			mask, masked = e, true
			continue
		}
		list = append(list, e)
	}
	if !masked {
		for _, e := range named {
			mask.Perm |= e.Perm
		}
	}
	list = append(list, mask)
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID)) })
	return list, list.valid()
}

var errForm = errors.New("it is not an access list")

// valid checks what the kernel does: each of owner, group and others once, a mask where somebody is named, and the order.
func (l List) valid() error {
	count := map[Tag]int{}
	for i, e := range l {
		if e.Perm > permMax || e.ID == undefined {
			return errForm
		}
		switch e.Tag {
		case User, Group:
		case Owner, OwnGroup, Mask, Others:
			if e.ID != 0 {
				return errForm
			}
		default:
			return errForm
		}
		if i > 0 && cmp.Or(cmp.Compare(l[i-1].Tag, e.Tag), cmp.Compare(l[i-1].ID, e.ID)) >= 0 {
			return fmt.Errorf("%s is in it twice, or in a wrong place", e.whom(strconv.Itoa(int(e.ID))))
		}
		count[e.Tag]++
	}
	if count[Owner] != 1 || count[OwnGroup] != 1 || count[Others] != 1 || count[Mask] == 0 && count[User]+count[Group] > 0 {
		return errForm
	}
	return nil
}

// Encode returns the kernel's form.
func (l List) Encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, headBytes+len(l)*itemBytes), version)
	for _, e := range l {
		id := e.ID
		if e.Tag != User && e.Tag != Group {
			id = undefined
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(e.Tag))
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return b
}

// Decode reads the kernel's form.
func Decode(b []byte) (List, error) {
	if len(b) < headBytes || binary.LittleEndian.Uint32(b) != version || (len(b)-headBytes)%itemBytes != 0 {
		return nil, errForm
	}
	l := make(List, 0, (len(b)-headBytes)/itemBytes)
	for at := headBytes; at < len(b); at += itemBytes {
		e := Entry{Tag(binary.LittleEndian.Uint16(b[at:])), binary.LittleEndian.Uint32(b[at+4:]), binary.LittleEndian.Uint16(b[at+2:])}
		if e.Tag != User && e.Tag != Group {
			if e.ID != undefined {
				return nil, errForm
			}
			e.ID = 0
		}
		l = append(l, e)
	}
	return l, l.valid()
}

// Minimal reports whether the list says no more than a mode does.
func (l List) Minimal() bool { return len(l) <= 3 }

// Mode are the permissions of a file that has the list, as stat(2) tells them: the group's are the mask.
func (l List) Mode() uint32 {
	var mode uint32
	group := OwnGroup
	if !l.Minimal() {
		group = Mask
	}
	for _, e := range l {
		switch e.Tag {
		case Owner:
			mode |= uint32(e.Perm) << 6
		case group:
			mode |= uint32(e.Perm) << 3
		case Others:
			mode |= uint32(e.Perm)
		}
	}
	return mode
}

// Beside is what the list says beside the mode: who is named, and what the group itself may do.
func (l List) Beside() List {
	if l.Minimal() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(l), func(e Entry) bool { return e.Tag == Owner || e.Tag == Others || e.Tag == Mask })
}

// Text is the list for a person, as getfacl(1) has it on one line. name gives the name of a user or group.
func (l List) Text(name func(group bool, id uint32) string) string {
	words := make([]string, len(l))
	for i, e := range l {
		whom := ""
		if e.Tag == User || e.Tag == Group {
			whom = name(e.Tag == Group, e.ID)
		}
		words[i] = e.whom(whom) + ":" + permText(e.Perm)
	}
	return strings.Join(words, ",")
}

// whom is an entry without what may be done.
func (e Entry) whom(name string) string {
	switch e.Tag {
	case Owner:
		return "u:"
	case User:
		return "u:" + name
	case OwnGroup:
		return "g:"
	case Group:
		return "g:" + name
	case Mask:
		return "m:"
	}
	return "o:"
}

func permText(perm uint16) string {
	b := []byte("---")
	for i, letter := range []byte("rwx") {
		if perm&(4>>i) != 0 {
			b[i] = letter
		}
	}
	return string(b)
}
