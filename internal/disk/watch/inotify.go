package watch

import (
	"encoding/binary"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// holdMask is what tells that a way is not what it was: an entry of the directory came or went, or the directory did.
	// Attributes are in it because a directory may become accessible.
	holdMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	// entryMask is what tells of every change of an entry. Modify comes with each write, also while the file stays open;
	// close-write comes when a writer through mmap is done, who causes no modify.
	entryMask = holdMask | unix.IN_MODIFY | unix.IN_CLOSE_WRITE
	// addFlags: a watch that two ways share keeps the larger mask; what is unlinked but still open is nobody's entry.
	addFlags = unix.IN_MASK_ADD | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

	// inotifyHeader is the size of struct inotify_event without its name.
	inotifyHeader = 16
	// inotifyBuffer takes about 500 events in one read.
	inotifyBuffer = 16 << 10
)

// notice is one inotify event.
type notice struct {
	wd   int32
	mask uint32
	name string // empty: the directory itself
}

var errShortNotice = errors.New("inotify: event is cut short")

// parseNotices reads what one read of an inotify descriptor returned, and calls take for each event in order.
func parseNotices(b []byte, take func(notice)) error {
	for len(b) > 0 {
		if len(b) < inotifyHeader {
			return errShortNotice
		}
		n := notice{wd: int32(binary.NativeEndian.Uint32(b)), mask: binary.NativeEndian.Uint32(b[4:])}
		size := binary.NativeEndian.Uint32(b[12:])
		b = b[inotifyHeader:]
		if uint64(size) > uint64(len(b)) {
			return errShortNotice
		}
		n.name = cString(b[:size])
		b = b[size:]
		take(n)
	}
	return nil
}

// openInotify opens an inotify descriptor. Reads of the file wait in the runtime's poller; the number is for the calls
// that os.File has not, because its Fd method would make it block.
func openInotify() (*os.File, int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, -1, err
	}
	return os.NewFile(uintptr(fd), "inotify"), fd, nil
}

// limited reports whether the kernel refused a watch or descriptor because of a limit or a missing right, so that the
// caller has to look for himself.
func limited(err error) bool {
	for _, no := range []unix.Errno{unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EACCES, unix.EPERM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
