package disk

import (
	"errors"
	"strconv"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// errnoRow says what an error number of a file operation means to a person.
type errnoRow struct {
	errno unix.Errno
	code  reason.Code
	hint  string
}

// errnoRows is the one place where error numbers become codes. What is not in it is SystemCallFailed.
var errnoRows = [...]errnoRow{
	{unix.ENOSPC, reason.DiskFull, "free space or inodes on the file system that holds it"},
	{unix.EDQUOT, reason.QuotaExceeded, "raise the quota or free space that is counted to the same user, group or project"},
	{unix.EROFS, reason.ReadOnlyFS, "the file system is mounted read-only, or was made so after an error: see the kernel's log"},
	{unix.EACCES, reason.PermissionDenied, "run the agent as root, or give its user the right to the directory"},
	{unix.EPERM, reason.PermissionDenied, "run the agent as root; under root, a security module or a missing capability denies it"},
	{unix.EIO, reason.InputOutput, "the device reports an error: see the kernel's log"},
	{unix.ENAMETOOLONG, reason.NameTooLong, "a name has at most 255 bytes, a path 4,095"},
	{unix.ENOENT, reason.ParentMissing, "declare the directory, or create it"},
	{unix.ENOTDIR, reason.TypeInTheWay, "something else than a directory is on the way"},
	{unix.EISDIR, reason.TypeInTheWay, "a directory is in the way"},
	{unix.EEXIST, reason.ConcurrentEdit, ""},
	{unix.ESTALE, reason.ConcurrentEdit, ""},
	{unix.EAGAIN, reason.ConcurrentEdit, ""},
	{unix.ENOTEMPTY, reason.DirectoryNotEmpty, "remove its entries first"},
	{unix.EBUSY, reason.MountPointFile, "unmount it, or declare `inPlace: true`"},
	{unix.ELOOP, reason.UntrustedSymlink, "a symlink is in the way, or too many of them"},
	{unix.ETXTBSY, reason.SystemCallFailed, "the program is running: leave `inPlace` out, so that the file is replaced"},
	{unix.EMFILE, reason.SystemCallFailed, "raise the limit on open files of the agent (LimitNOFILE=)"},
	{unix.ENFILE, reason.SystemCallFailed, "raise fs.file-max"},
}

// Fault makes a coded error of what a system call said to an operation ("write file") on a path: see errnoRows. An error that
// carries a code already keeps it; nil stays nil.
func Fault(op, p string, err error) error {
	if err == nil {
		return nil
	}
	var have *reason.Error
	if errors.As(err, &have) {
		return err
	}
	e := &reason.Error{Code: reason.SystemCallFailed, Doing: op + " " + Shown(p), Cause: err}
	var no unix.Errno
	if errors.As(err, &no) {
		for _, row := range errnoRows {
			if row.errno == no {
				e.Code, e.Hint = row.code, row.hint
			}
		}
	}
	return e
}

// Fault is the function of that name for an operation on an entry of the directory; the empty name is the directory itself.
// EPERM has two causes that a person must tell apart, so the attributes of both are looked at.
func (d *Dir) Fault(op, name string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) && (Fixed(d.fd, name) || Fixed(d.fd, "")) {
		return &reason.Error{
			Code: reason.Immutable, Doing: op + " " + Shown(d.Join(name)), Cause: err,
			Hint: "lsattr shows it; chattr -i -a takes the attribute away from the file or its directory",
		}
	}
	return Fault(op, d.Join(name), err)
}

// Fixed reports whether an entry of an open directory, or the directory itself for the empty name, is immutable or append-only.
func Fixed(dir int, name string) bool {
	st, err := StatAt(dir, name)
	return err == nil && st.Fixed
}

// wayFault is Fault for a way that could not be gone, with the component that stopped it.
func wayFault(p, name string, err error) error {
	op := "open directory"
	if name != "" {
		err = &stepError{name: name, err: err}
	}
	return Fault(op, p, err)
}

// stepError says at which component a way ended.
type stepError struct {
	name string
	err  error
}

func (e *stepError) Error() string { return Shown(e.name) + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// Stale is the error of an operation on a path that finds that somebody else was here since we looked.
func Stale(op, p string) error {
	return &reason.Error{Code: reason.ConcurrentEdit, Doing: op + " " + Shown(p)}
}

// Shown is a path or name for messages: as it is where that is plain text, otherwise quoted with escapes, so that no name
// can forge lines or hide itself.
func Shown(p string) string {
	if !utf8.ValidString(p) || p == "" {
		return strconv.Quote(p)
	}
	for _, r := range p {
		if !unicode.IsPrint(r) {
			return strconv.Quote(p)
		}
	}
	return p
}
