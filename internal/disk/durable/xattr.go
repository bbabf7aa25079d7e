package durable

import (
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
)

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
