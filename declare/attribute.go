package declare

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	// ACLNone is the one entry of a list that says that there is none.
	ACLNone = "none"
	// aclEntriesMax: ext4 keeps a list in one block, which has room for some 500 entries; people write five.
	aclEntriesMax = 64
	// xattrsMax, xattrNameMax and xattrValueMax: a name has at most 255 bytes (XATTR_NAME_MAX), and ext4 keeps all attributes of a file in
	// one block of 4 KiB.
	xattrsMax     = 32
	xattrNameMax  = 255
	xattrValueMax = 4 << 10
	// selinuxBytesMax: a label is four words and some categories.
	selinuxBytesMax = 1000
)

// ACLTag is whom an entry of an access list is about.
type ACLTag byte

// Whom an entry may be about.
const (
	ACLUser  ACLTag = 'u'
	ACLGroup ACLTag = 'g'
	ACLMask  ACLTag = 'm'
)

// ACLEntry is one entry of an access list.
type ACLEntry struct {
	Default bool // it is of the list for what is made in a directory
	Tag     ACLTag
	Name    string // of a user or group, or its number; empty for the mask
	Perm    uint16 // 4 read, 2 write, 1 execute
}

// ParseACLEntry reads an entry, [d:]u:NAME:PERM, [d:]g:NAME:PERM or [d:]m::PERM. mistake says what is wrong with it, or is empty.
func ParseACLEntry(text string) (e ACLEntry, mistake string) {
	rest := text
	for _, prefix := range []string{"d:", "default:"} {
		if after, found := strings.CutPrefix(rest, prefix); found {
			e.Default, rest = true, after
			break
		}
	}
	fields := strings.Split(rest, ":")
	if len(fields) == 2 && (fields[0] == "m" || fields[0] == "mask") {
		fields = []string{fields[0], "", fields[1]}
	}
	if len(fields) != 3 {
		return ACLEntry{}, fmt.Sprintf("%q is not an entry of an access list", clipText(text))
	}
	switch fields[0] {
	case "u", "user":
		e.Tag = ACLUser
	case "g", "group":
		e.Tag = ACLGroup
	case "m", "mask":
		e.Tag = ACLMask
	case "o", "other":
		return ACLEntry{}, "what others may do is said by the mode"
	default:
		return ACLEntry{}, fmt.Sprintf("%q is not whom an entry is about: u, g or m", clipText(fields[0]))
	}
	e.Name = fields[1]
	switch {
	case e.Tag == ACLMask && e.Name != "":
		return ACLEntry{}, "the mask has no name"
	case e.Tag != ACLMask && e.Name == "":
		return ACLEntry{}, "what the owner and the group may do is said by the mode"
	case e.Tag != ACLMask && !isOwner(e.Name):
		return ACLEntry{}, fmt.Sprintf("%q is neither a name nor a number of a user or group", clipText(e.Name))
	}
	perm, ok := parseACLPerm(fields[2])
	if !ok {
		return ACLEntry{}, fmt.Sprintf("%q is not what may be done: of r, w and x each at most once, or -", clipText(fields[2]))
	}
	e.Perm = perm
	return e, ""
}

// parseACLPerm reads r, w and x in any order, with - for what is not allowed.
func parseACLPerm(text string) (uint16, bool) {
	if text == "" || len(text) > 3 {
		return 0, false
	}
	var perm uint16
	for _, letter := range text {
		bit := map[rune]uint16{'r': 4, 'w': 2, 'x': 1}[letter]
		if bit == 0 && letter != '-' || perm&bit != 0 {
			return 0, false
		}
		perm |= bit
	}
	return perm, true
}

// ParseXAttrValue reads the value of an attribute: hexadecimal behind 0x, base64 behind 0s, otherwise the text itself. mistake says what
// is wrong with it, or is empty.
func ParseXAttrValue(text string) (value []byte, mistake string) {
	var err error
	switch {
	case strings.HasPrefix(text, "0x"):
		value, err = hex.DecodeString(text[2:])
	case strings.HasPrefix(text, "0s"):
		value, err = base64.StdEncoding.DecodeString(text[2:])
	default:
		value = []byte(text)
	}
	switch {
	case err != nil:
		return nil, "the value begins with " + text[:2] + ", and is not " + map[string]string{"0x": "hexadecimal", "0s": "base64"}[text[:2]]
	case len(value) > xattrValueMax:
		return nil, fmt.Sprintf("the value has %d bytes, at most %d are allowed", len(value), xattrValueMax)
	case value == nil:
		value = []byte{} // not nil, which is no attribute
	}
	return value, ""
}

// attributes checks extended attributes and a label.
func (v *validator) attributes(parent string, xattrs map[string]string, label string) {
	at := v.path(parent + ".xattrs")
	if v.atMost(at, len(xattrs), xattrsMax, "attributes", "") {
		for _, name := range sortedKeys(xattrs) {
			if message, hint := xattrMistake(name); message != "" {
				v.invalid(keyPath(at, name), message, hint)
			} else if _, message := ParseXAttrValue(xattrs[name]); message != "" {
				v.invalid(keyPath(at, name), message, "a text that begins so is written in base64")
			}
		}
	}
	if strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:-") != "" || label != "" && strings.Count(label, ":") < 2 || len(label) > selinuxBytesMax {
		v.invalid(v.path(parent+".selinux"), fmt.Sprintf("%q is not a label", clipText(label)), "write USER:ROLE:TYPE:LEVEL, for example system_u:object_r:etc_t:s0")
	}
}

// xattrMistake says why an attribute cannot be declared, or is empty.
func xattrMistake(name string) (message, hint string) {
	_, rest, _ := strings.Cut(name, ".")
	switch {
	case name == "security.selinux":
		return "the label has a field of its own", "write selinux: LABEL"
	case strings.HasPrefix(name, "system.posix_acl_"):
		return "the access list has a field of its own", "write acl: [ENTRIES]"
	case name == "security.evm", strings.HasPrefix(name, "system."):
		return fmt.Sprintf("%q is the kernel's own", clipText(name)), ""
	case strings.Contains(name, "\x00"), len(name) > xattrNameMax, rest == "",
		!strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "trusted.") && !strings.HasPrefix(name, "security."):
		return fmt.Sprintf("%q is not a name of an attribute", clipText(name)), "it begins with user., trusted. or security., and has up to 255 bytes"
	}
	return "", ""
}

// accessList checks an access list, and that the mode says everything that the list does not.
func (v *validator) accessList(field string, entries []string, mode ModeRule, directory bool) {
	if len(entries) == 0 || !v.atMost(v.path(field), len(entries), aclEntriesMax, "entries", "make a group of them") {
		return
	}
	if len(entries) == 1 && entries[0] == ACLNone {
		return
	}
	type whom struct {
		isDefault bool
		tag       ACLTag
		name      string
	}
	seen, named := map[whom]bool{}, map[bool]bool{}
	for i, text := range entries {
		at := v.path(indexPath(field, i))
		e, mistake := ParseACLEntry(text)
		if mistake != "" {
			v.invalid(at, mistake, `write for example "u:www-data:r", "g:adm:rw", "m::rw", or the one entry "none"`)
			continue
		}
		if e.Default && !directory {
			v.invalid(at, "a default list is for what is made in a directory", "leave d: out")
		}
		key := whom{e.Default, e.Tag, e.Name}
		if seen[key] {
			v.invalid(at, fmt.Sprintf("%q is in the list twice", clipText(text)), "keep one of them")
		}
		seen[key] = true
		named[e.Default] = named[e.Default] || e.Tag != ACLMask
	}
	for _, isDefault := range []bool{false, true} {
		if seen[whom{isDefault, ACLMask, ""}] && !named[isDefault] {
			v.invalid(v.path(field), "a mask alone bounds nobody", "add whom the list is about")
		}
	}
	if mode.Left()&0o777 != 0 {
		v.invalid(v.path(field), "the mode leaves bits as they are, so it does not say what owner, group and others may do beside the list",
			`write an octal mode, or one with = for each: "u=rw,g=r,o="`)
	}
}
