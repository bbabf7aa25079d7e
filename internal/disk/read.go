package disk

import (
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// Open opens a regular file for reading, and looks at what it opened. A symlink, FIFO, socket or device is TypeInTheWay,
// and nothing waits for one. Reading leaves no access time where the kernel lets us. The caller closes the file.
func (d *Dir) Open(name string) (*os.File, Stat, error) {
	fd, st, err := d.openRead(name)
	if err != nil {
		return nil, Stat{}, err
	}
	return os.NewFile(uintptr(fd), d.Join(name)), st, nil
}

// OpenSeen is Open for a caller who has just seen a regular file there, and who compares the Stat with what he saw.
func (d *Dir) OpenSeen(name string) (*os.File, Stat, error) {
	fd, st, err := d.openRegular(name)
	if err != nil {
		return nil, Stat{}, err
	}
	return os.NewFile(uintptr(fd), d.Join(name)), st, nil
}

// ReadFile reads a regular file of at most limit bytes; a larger one is BodyTooLarge.
func (d *Dir) ReadFile(name string, limit int64) ([]byte, Stat, error) {
	f, st, err := d.Open(name)
	if err != nil {
		return nil, Stat{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Stat{}, Fault("read file", d.Join(name), err)
	}
	if int64(len(b)) > limit {
		return nil, Stat{}, &reason.Error{
			Code: reason.BodyTooLarge, Doing: "read file " + Shown(d.Join(name)),
			Hint: "it has more than " + strconv.FormatInt(limit, 10) + " bytes",
		}
	}
	return b, st, nil
}

// Readlink returns the target of a symlink.
func (d *Dir) Readlink(name string) (string, error) {
	target, err := readlinkat(d.fd, name)
	if err == unix.EINVAL {
		return "", &reason.Error{Code: reason.TypeInTheWay, Doing: "read symlink " + Shown(d.Join(name)), Cause: err, Hint: "it is not a symlink"}
	}
	return target, d.Fault("read symlink", name, err)
}

// Attribute returns an extended attribute of an entry, not following a symlink; nil where there is none, or where the file system keeps
// none.
func (d *Dir) Attribute(name, attribute string) ([]byte, error) {
	p := ProcPath(d.fd) + "/" + name
	value := make([]byte, attributeFirst)
	for {
		n := 0
		err := Retry(func() (err error) {
			n, err = unix.Lgetxattr(p, attribute, value)
			return err
		})
		switch {
		case err == nil:
			return value[:n:n], nil
		case err == unix.ERANGE && len(value) < attributeMax:
			value = make([]byte, attributeMax)
		case err == unix.ENODATA, err == unix.EOPNOTSUPP:
			return nil, nil
		case err == unix.ENOENT:
			return nil, Stale("read attribute "+Shown(attribute)+" of", d.Join(name))
		default:
			return nil, d.Fault("read attribute "+Shown(attribute)+" of", name, err)
		}
	}
}

const (
	attributeFirst = 256      // holds an access list of thirty entries, and what people write
	attributeMax   = 64 << 10 // XATTR_SIZE_MAX, limits.h
)

// openRead opens a regular file. The look before the open keeps us from touching a device; the look after it is the one
// that counts, because somebody may have swapped the file in between.
func (d *Dir) openRead(name string) (int, Stat, error) {
	st, err := d.Stat(name)
	if err != nil {
		return -1, Stat{}, err
	}
	if err := d.wantRegular("read file", name, st); err != nil {
		return -1, Stat{}, err
	}
	return d.openRegular(name)
}

// openRegular is openRead after a look.
func (d *Dir) openRegular(name string) (int, Stat, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	fd, err := OpenAt(d.fd, name, flags|unix.O_NOATIME, 0)
	if err == unix.EPERM {
		// O_NOATIME is for the owner of the file and root.
		fd, err = OpenAt(d.fd, name, flags, 0)
	}
	if err != nil {
		return -1, Stat{}, d.Fault("read file", name, err)
	}
	st, err := StatAt(fd, "")
	if err == nil {
		err = d.wantRegular("read file", name, st)
	}
	if err != nil {
		unix.Close(fd)
		return -1, Stat{}, d.Fault("read file", name, err)
	}
	return fd, st, nil
}

// wantRegular refuses what is not a regular file.
func (d *Dir) wantRegular(op, name string, st Stat) error {
	switch st.Type() {
	case unix.S_IFREG:
		return nil
	case 0:
		return &reason.Error{Code: reason.ConcurrentEdit, Doing: op + " " + Shown(d.Join(name)), Cause: unix.ENOENT}
	}
	return &reason.Error{Code: reason.TypeInTheWay, Doing: op + " " + Shown(d.Join(name)), Hint: "it is a " + st.Kind()}
}

// hashBuffer is how much of a file is read at once: large enough that system calls do not count, small enough to keep.
const hashBuffer = 64 << 10

// Hasher hashes files one after the other, without allocating for each. It is not for several goroutines.
type Hasher struct {
	sum hash.Hash
	buf []byte
}

// NewHasher returns a Hasher, which holds 64 KiB.
func NewHasher() *Hasher { return &Hasher{sum: sha256.New(), buf: make([]byte, hashBuffer)} }

// File returns the sha256 of a regular file of at most so many bytes and what it looked like. A file that has more, or changes while it is read, is
// ConcurrentEdit, so that hash and Stat always belong together. No more is read than the file had: whoever may write it could let it grow for ever.
func (h *Hasher) File(d *Dir, name string, most int64) ([sha256.Size]byte, Stat, error) {
	var sum [sha256.Size]byte
	fd, st, err := d.openRead(name)
	if err != nil {
		return sum, Stat{}, err
	}
	defer unix.Close(fd)
	if st.Size > most {
		return sum, Stat{}, Stale("read file", d.Join(name))
	}
	h.sum.Reset()
	for left := st.Size; left >= 0; {
		n := 0
		err := Retry(func() (err error) {
			n, err = unix.Read(fd, h.buf)
			return err
		})
		if err != nil {
			return sum, Stat{}, Fault("read file", d.Join(name), err)
		}
		if n <= 0 {
			break
		}
		h.sum.Write(h.buf[:n])
		left -= int64(n)
	}
	after, err := StatAt(fd, "")
	if err != nil {
		return sum, Stat{}, Fault("read file", d.Join(name), err)
	}
	if after.Signature != st.Signature {
		return sum, Stat{}, Stale("read file", d.Join(name))
	}
	h.sum.Sum(sum[:0])
	return sum, st, nil
}

// Sync makes an open file or directory durable. It is for state of the agent's own; package durable does it itself.
func Sync(f *os.File) error { return Fault("make durable", f.Name(), Fsync(int(f.Fd()))) }
