package disk

import (
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// ACLAttr is the extended attribute that holds an access list, acl(5).
const ACLAttr = "system.posix_acl_access"

// linksMax is how many symlinks a way may have, as in the kernel (path_resolution(7)).
const linksMax = 40

// trust says whose symlinks are followed.
type trust struct{ uid, gid uint32 }

// covers reports whether nobody but root and the agent's user could have put this link into this directory. A sticky
// directory such as /tmp is open to everybody and therefore never covered. Group write is fine for our own groups, unless
// an access list stands behind it: then the group bits are its mask and say nothing of who may write.
func (t trust) covers(dir, link Stat, hasACL func() bool) bool {
	if !t.knows(dir.UID) || !t.knows(link.UID) || dir.Mode&0o002 != 0 {
		return false
	}
	if dir.Mode&0o020 == 0 {
		return true
	}
	return (dir.GID == 0 || dir.GID == t.gid) && !hasACL()
}

func (t trust) knows(uid uint32) bool { return uid == 0 || uid == t.uid }

// place is one directory on the physical way down from the root.
type place struct {
	fd   int
	name string // in the place before
}

// Walker goes down a path component by component. It keeps the directories it came through, so that ".." in a symlink's
// target goes back to where we came from and never above the root, whatever is renamed meanwhile. It is for one walk, in
// one goroutine.
type Walker struct {
	root   *Root
	stack  []place // stack[0] is the root
	links  int
	failed string
	onLink func(dir int, name string) error
}

// Walker returns one that has not begun; Root.Dir is for who only wants to arrive. onLink, if set, is told of each symlink
// before it is followed: the directory that holds it, and its name. An error of it ends the walk and is returned as it is.
// The caller closes the Walker, and with that every descriptor that it has given out.
func (r *Root) Walker(onLink func(dir int, name string) error) *Walker {
	return &Walker{root: r, onLink: onLink}
}

// Walk goes down to the directory at a valid path, see ValidPath. Errors: as of Root.Dir.
func (w *Walker) Walk(p string) error {
	if err := w.push(w.root.fd, "", ""); err != nil {
		return wayFault(p, "", err)
	}
	todo := components(p)
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if name == ".." {
			w.pop()
			continue
		}
		target, err := w.step(p, name)
		if err != nil {
			w.failed = name
			return err
		}
		if target == "" {
			continue
		}
		if strings.HasPrefix(target, "/") {
			w.rewind()
		}
		todo = append(todo, components(target)...)
	}
	return nil
}

// step passes one component: it goes down into a directory, or returns the target of a trusted symlink.
func (w *Walker) step(p, name string) (target string, err error) {
	dir := w.top()
	st, err := StatAt(dir, name)
	if err == nil && !st.Exists() {
		err = unix.ENOENT
	}
	if err != nil {
		return "", wayFault(p, name, err)
	}
	switch st.Type() {
	case unix.S_IFDIR:
		// The kernel refuses the open if it has become something else since.
		if err := w.push(dir, name, name); err != nil {
			return "", wayFault(p, name, err)
		}
		return "", nil
	case unix.S_IFLNK:
		return w.follow(p, name)
	}
	return "", wayFault(p, name, unix.ENOTDIR)
}

// follow reads a symlink that may be trusted. The link is opened first, so that what is judged is what is read.
func (w *Walker) follow(p, name string) (string, error) {
	dir := w.top()
	fd, err := OpenAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", wayFault(p, name, err)
	}
	defer unix.Close(fd)
	link, err := StatAt(fd, "")
	if err != nil {
		return "", wayFault(p, name, err)
	}
	if link.Type() != unix.S_IFLNK {
		return "", wayFault(p, name, unix.EAGAIN)
	}
	holder, err := StatAt(dir, "")
	if err != nil {
		return "", wayFault(p, name, err)
	}
	if w.links++; w.links > linksMax {
		return "", wayFault(p, name, unix.ELOOP)
	}
	if !w.root.trust.covers(holder, link, func() bool { return hasACL(dir) }) {
		return "", &reason.Error{
			Code: reason.UntrustedSymlink, Doing: "open " + Shown(p),
			Cause: errors.New("symlink " + Shown(name) + " belongs to " + idText(link.UID) + " in a directory of " + idText(holder.UID) + " with mode " + modeText(holder.Mode)),
			Hint:  "declare the path that the symlink leads to, or take the right to write beside it from others",
		}
	}
	if w.onLink != nil {
		if err := w.onLink(dir, name); err != nil {
			return "", err
		}
	}
	target, err := readlinkat(fd, "")
	if err != nil {
		return "", wayFault(p, name, err)
	}
	return target, nil
}

// push opens a directory and makes it the top.
func (w *Walker) push(dir int, open, name string) error {
	if open == "" {
		open = "."
	}
	fd, err := OpenAt(dir, open, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	w.stack = append(w.stack, place{fd: fd, name: name})
	return nil
}

// pop goes one directory up; from the root, it stays.
func (w *Walker) pop() {
	if n := len(w.stack); n > 1 {
		unix.Close(w.stack[n-1].fd)
		w.stack = w.stack[:n-1]
	}
}

// rewind goes back to the root.
func (w *Walker) rewind() {
	for len(w.stack) > 1 {
		w.pop()
	}
}

func (w *Walker) top() int { return w.stack[len(w.stack)-1].fd }

// Top is the directory that the walk has come to: the end of the path, or, where the walk has failed, the directory in
// which Failed was looked up. It is -1 where not even the root could be opened.
func (w *Walker) Top() int {
	if len(w.stack) == 0 {
		return -1
	}
	return w.top()
}

// Holder is the directory that holds the Top, and the Top's name in it; -1 where that is the root.
func (w *Walker) Holder() (fd int, name string) {
	n := len(w.stack)
	if n < 2 {
		return -1, ""
	}
	return w.stack[n-2].fd, w.stack[n-1].name
}

// Failed is the component that could not be passed; empty where the walk has arrived.
func (w *Walker) Failed() string { return w.failed }

// takeTop hands the directory that was reached to the caller, who closes it.
func (w *Walker) takeTop() int {
	fd := w.top()
	w.stack = w.stack[:len(w.stack)-1]
	return fd
}

// Close gives the descriptors back.
func (w *Walker) Close() {
	for _, p := range w.stack {
		unix.Close(p.fd)
	}
	w.stack = nil
}

// components returns the names of a path, last first, without the empty ones and ".".
func components(p string) []string {
	var names []string
	for p != "" {
		i := strings.LastIndexByte(p, '/')
		if name := p[i+1:]; name != "" && name != "." {
			names = append(names, name)
		}
		p = p[:max(i, 0)]
	}
	return names
}

func idText(uid uint32) string { return "uid " + strconv.FormatUint(uint64(uid), 10) }

func modeText(mode uint32) string {
	return "0" + strconv.FormatUint(uint64(mode&PermMask), 8)
}

// hasACL reports whether an access list stands behind the mode of an open file; where it cannot be told, yes.
func hasACL(fd int) bool {
	_, err := unix.Getxattr(ProcPath(fd), ACLAttr, nil)
	return err != unix.ENODATA && err != unix.EOPNOTSUPP
}
