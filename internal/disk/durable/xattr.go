package durable

import (
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

// Attribute is an extended attribute that something shall have, or that it shall not have where Value is nil. An access list and a
// label are attributes, too.
type Attribute struct {
	Name  string
	Value []byte
}

const (
	selinuxAttr = "security.selinux"
	userAttrs   = "user."
	// attrListMax and attrValueMax are XATTR_LIST_MAX and XATTR_SIZE_MAX of limits.h.
	attrListMax  = 64 << 10
	attrValueMax = 64 << 10
)

// copyAttributes gives a new file what the old one had beside content, owner and mode: its access list, SELinux label and
// user attributes. security.capability is not among them, because the right was given to the old content and nobody has
// looked at the new one; nor are the signatures of the old content (security.ima, security.evm). from may be an O_PATH
// descriptor.
func copyAttributes(from, to int) error {
	names, err := attributeNames(from)
	if err != nil {
		return err
	}
	acl := false
	for _, name := range names {
		switch {
		case name == disk.ACLAttr:
			acl = true
			err = copyAttribute(from, to, name)
		case name == selinuxAttr:
			// Without the right to set it, the file has the label that the policy gives to new files there.
			if err = copyAttribute(from, to, name); err == unix.EPERM || err == unix.EACCES || err == unix.EOPNOTSUPP {
				err = nil
			}
		case strings.HasPrefix(name, userAttrs):
			err = copyAttribute(from, to, name)
		}
		if err != nil {
			return err
		}
	}
	if acl {
		return nil
	}
	// The directory's default list came with the new file, but the old one had none.
	err = unix.Fremovexattr(to, disk.ACLAttr)
	if err == unix.ENODATA || err == unix.EOPNOTSUPP {
		return nil
	}
	return err
}

func attributeNames(fd int) ([]string, error) {
	p := disk.ProcPath(fd)
	n, err := unix.Listxattr(p, nil)
	if err == unix.EOPNOTSUPP || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	buf := make([]byte, attrListMax)
	if n, err = unix.Listxattr(p, buf); err != nil {
		return nil, err
	}
	return strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 }), nil
}

func copyAttribute(from, to int, name string) error {
	p := disk.ProcPath(from)
	n, err := unix.Getxattr(p, name, nil)
	if err == nil {
		// Somebody may make it longer between the two calls; that is a concurrent edit and seen as ERANGE here.
		value := make([]byte, min(n, attrValueMax))
		if n, err = unix.Getxattr(p, name, value); err == nil {
			return unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
	if err == unix.ENODATA {
		return nil
	}
	return err
}

// setAttributes gives what is open the attributes that are declared. Whoever it belongs to is set before, because that takes a capability
// away, and the mode after, because a list changes it.
func setAttributes(d *disk.Dir, name string, fd int, attributes []Attribute) error {
	p := disk.ProcPath(fd)
	for _, a := range attributes {
		err := disk.Retry(func() error {
			if a.Value == nil {
				return unix.Removexattr(p, a.Name)
			}
			return unix.Setxattr(p, a.Name, a.Value, 0)
		})
		if err == nil || a.Value == nil && (err == unix.ENODATA || err == unix.EOPNOTSUPP) {
			continue
		}
		return attributeFault(d, name, a.Name, err)
	}
	return nil
}

// attributeFault is Dir.Fault for an attribute: there it is another limit that is reached, or something that is not to be had.
func attributeFault(d *disk.Dir, name, attribute string, err error) error {
	op := "set attribute " + disk.Shown(attribute) + " of"
	e := &reason.Error{Doing: op + " " + disk.Shown(d.Join(name)), Cause: err}
	switch err {
	case unix.EOPNOTSUPP:
		e.Code, e.Hint = reason.AttributeUnsupported, "the file system keeps no such attributes: see its mount options, or leave the attribute out"
	case unix.EINVAL, unix.E2BIG, unix.ERANGE, unix.ENOSPC:
		e.Code, e.Hint = reason.AttributeRefused, "the value is none that the kernel takes for it, or there is no room for it: ext4 keeps all attributes of a file in one block"
	default:
		return d.Fault(op, name, err)
	}
	return e
}
