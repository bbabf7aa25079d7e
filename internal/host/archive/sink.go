package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// ownerMode is what the owner may do with every directory: otherwise nothing could be put into it without root rights.
	ownerMode = 0o700
	setIDs    = 0o6000
	nameMax   = 255  // NAME_MAX
	pathMax   = 4095 // PATH_MAX, limits.h, without its end
	// roomEvery is after how many bytes it is looked whether there is room for more.
	roomEvery = 16 << 20
)

// sink is a directory that something is unpacked into. Nobody else can look into it meanwhile, so what it finds there it has made itself.
type sink struct {
	doing    string
	root     int // descriptor
	strip    int
	umask    uint32
	uid, gid int // -1: the agent's own
	bytesMax int64
	archive  int64 // size

	entries int
	written int64
	linked  int64 // bytes that are there under more than one name, counted once for each further one
	looked  int64 // of written, when it was looked last whether there is room
	buffer  []byte

	// The directory that was used last: entries of one stand together.
	dirPath string
	dirFD   int // -1: none
}

func (s *sink) close() {
	if s.dirFD >= 0 {
		unix.Close(s.dirFD)
		s.dirFD = -1
	}
}

// limit is how many bytes may come out.
func (s *sink) limit() int64 { return min(s.bytesMax, ratioFree+ratioMax*s.archive) }

func (s *sink) refuse(name, why string) error {
	return &reason.Error{Code: reason.ArchiveRefused, Doing: s.doing, Cause: errors.New("entry " + disk.Shown(clip(name)) + ": " + why), Hint: "pack the archive anew without it; nothing was unpacked"}
}

func (s *sink) tooLarge(why string) error {
	return &reason.Error{Code: reason.ArchiveTooLarge, Doing: s.doing, Cause: errors.New(why), Hint: "`sizeBytesMax` allows more bytes, up to 200 times those of the archive; otherwise split it"}
}

func clip(name string) string {
	const most = 200
	if len(name) > most {
		return name[:most] + "..."
	}
	return name
}

// parts cuts a name of the archive into its parts, without those that are stripped; none are left of what is stripped as a whole.
func (s *sink) parts(name string) ([]string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return nil, s.refuse(name, "its name is absolute")
	case strings.Contains(name, "\x00"):
		return nil, s.refuse(name, "its name holds a NUL byte")
	case len(name) > pathMax:
		return nil, s.tooLarge("the name of entry " + disk.Shown(clip(name)) + " is too long")
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return nil, s.refuse(name, "its name goes up")
		case len(part) > nameMax:
			return nil, s.refuse(name, "a part of its name has more than 255 bytes")
		case strings.HasPrefix(part, disk.TempPrefix):
			return nil, s.refuse(name, "names that begin with "+disk.TempPrefix+" are kept for what is being written")
		}
		parts = append(parts, part)
	}
	if len(parts) > partsMax+s.strip {
		return nil, s.tooLarge("entry " + disk.Shown(clip(name)) + " is too deep")
	}
	return parts[min(s.strip, len(parts)):], nil
}

// enter makes the directories that an entry is in, and returns the last one and the entry's name in it; "" where nothing is left of it.
func (s *sink) enter(name string) (dir int, base string, err error) {
	parts, err := s.parts(name)
	if err != nil || len(parts) == 0 {
		return -1, "", err
	}
	if s.entries++; s.entries > entriesMax {
		return -1, "", s.tooLarge(fmt.Sprintf("it has more than %d entries", entriesMax))
	}
	last := len(parts) - 1
	dir, err = s.open(name, parts[:last])
	return dir, parts[last], err
}

// open opens a directory, and makes those that are missing. It belongs to the sink.
func (s *sink) open(name string, parts []string) (int, error) {
	if p := path.Join(parts...); s.dirFD < 0 || p != s.dirPath {
		fd, err := s.descend(name, parts)
		if err != nil {
			return -1, err
		}
		s.close()
		s.dirFD, s.dirPath = fd, p
	}
	return s.dirFD, nil
}

func (s *sink) descend(name string, parts []string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	fd, err := disk.OpenAt(s.root, ".", flags, 0)
	if err != nil {
		return -1, s.fault(name, err)
	}
	for _, part := range parts {
		next, err := disk.OpenAt(fd, part, flags, 0)
		if err == unix.ENOENT {
			if err = s.mkdir(fd, part, 0o777); err == nil {
				// It counts, though the archive does not name it.
				if s.entries++; s.entries > entriesMax {
					err = s.tooLarge(fmt.Sprintf("it has more than %d entries", entriesMax))
				} else {
					next, err = disk.OpenAt(fd, part, flags, 0)
				}
			}
		}
		unix.Close(fd)
		if err == unix.ENOTDIR || err == unix.ELOOP {
			return -1, s.refuse(name, "it is below something that is no directory")
		}
		if err != nil {
			return -1, s.fault(name, err)
		}
		fd = next
	}
	return fd, nil
}

func (s *sink) mkdir(dir int, name string, perm uint32) error {
	if err := unix.Mkdirat(dir, name, ownerMode); err != nil {
		return err
	}
	return s.settleDirectory(dir, name, perm)
}

func (s *sink) settleDirectory(dir int, name string, perm uint32) error {
	fd, err := disk.OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return s.settle(fd, perm&^s.umask|ownerMode)
}

// settle gives something its owner and mode. Nothing gets a bit above 0777.
func (s *sink) settle(fd int, perm uint32) error {
	if s.uid >= 0 || s.gid >= 0 {
		if err := unix.Fchown(fd, s.uid, s.gid); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, perm&0o777)
}

// fault is the error of a system call for an entry.
func (s *sink) fault(name string, err error) error {
	return disk.Fault(s.doing+": entry", clip(name), err)
}

func (s *sink) directory(name string, perm uint32) error {
	dir, base, err := s.enter(name)
	if err != nil || base == "" {
		return err
	}
	err = unix.Mkdirat(dir, base, ownerMode)
	if err == nil || err == unix.EEXIST {
		err = s.settleDirectory(dir, base, perm)
	}
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return s.refuse(name, "it is there twice")
	}
	return s.fault(name, err)
}

func (s *sink) file(ctx context.Context, name string, perm uint32, modified time.Time, r io.Reader) error {
	if perm&setIDs != 0 {
		return s.refuse(name, "it has setuid or setgid")
	}
	dir, base, err := s.enter(name)
	if err != nil || base == "" {
		return err
	}
	fd, err := disk.OpenAt(dir, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err == unix.EEXIST {
		return s.refuse(name, "it is there twice")
	}
	if err != nil {
		return s.fault(name, err)
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if err := s.copy(ctx, name, f, r); err != nil {
		return err
	}
	if err := s.settle(fd, perm&^s.umask); err != nil {
		return s.fault(name, err)
	}
	return s.fault(name, s.date(dir, base, modified))
}

// date gives a file the time that the archive says, where that is one: programs compare it with others.
func (s *sink) date(dir int, name string, modified time.Time) error {
	const last = 1 << 33 // the year 2242: ours, for what a clock that went wrong has written
	seconds := modified.Unix()
	if seconds <= 0 || seconds > last {
		return nil
	}
	at := unix.Timespec{Sec: seconds, Nsec: int64(modified.Nanosecond())}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

// copy writes what comes out of the archive, within the limits.
func (s *sink) copy(ctx context.Context, name string, f *os.File, r io.Reader) error {
	if s.buffer == nil {
		s.buffer = make([]byte, copyBuffer)
	}
	for {
		if err := ctx.Err(); err != nil {
			return reason.Ended(s.doing, err)
		}
		n, readErr := r.Read(s.buffer)
		if s.written += int64(n); s.written > s.limit() {
			return s.tooLarge(fmt.Sprintf("more than %d bytes come out of it", s.limit()))
		}
		if s.written-s.looked >= roomEvery {
			if err := content.Spare(disk.ProcPath(s.root), roomEvery); err != nil {
				return err
			}
			s.looked = s.written
		}
		if _, err := f.Write(s.buffer[:n]); err != nil {
			return s.fault(name, err)
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return readErr
		}
	}
}

// symlink makes a link that leads to somewhere in the directory. Only the first parts of its target may go up: those before the link are
// directories, so that these count as they are written; behind a name that may be a link itself, ".." leads to who knows where.
func (s *sink) symlink(name, target string) error {
	parts, err := s.parts(name)
	if err != nil || len(parts) == 0 {
		return err
	}
	switch {
	case target == "" || len(target) > linkMax || strings.Contains(target, "\x00"):
		return s.refuse(name, "it leads to what is no path")
	case strings.HasPrefix(target, "/"):
		return s.refuse(name, "it leads out, to "+disk.Shown(clip(target)))
	}
	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			down = true
		case down:
			return s.refuse(name, "its target "+disk.Shown(clip(target))+" goes up after a name")
		default:
			up++
		}
	}
	if up >= len(parts) {
		return s.refuse(name, "it leads out, to "+disk.Shown(clip(target)))
	}
	dir, base, err := s.enter(name)
	if err != nil {
		return err
	}
	err = unix.Symlinkat(target, dir, base)
	if err == unix.EEXIST {
		return s.refuse(name, "it is there twice")
	}
	if err == nil && (s.uid >= 0 || s.gid >= 0) {
		err = unix.Fchownat(dir, base, s.uid, s.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
	return s.fault(name, err)
}

// hardLink makes another name for a file that came before.
func (s *sink) hardLink(name, target string) error {
	of, err := s.parts(target)
	if err != nil {
		return err
	}
	if len(of) == 0 {
		return s.refuse(name, "it is a link to what is not unpacked")
	}
	last := len(of) - 1
	from, err := s.find(of[:last])
	if err != nil {
		return s.refuse(name, "it is a link to what did not come before")
	}
	defer unix.Close(from)
	st, err := disk.StatAt(from, of[last])
	if err != nil {
		return s.fault(name, err)
	}
	if st.Type() != unix.S_IFREG {
		return s.refuse(name, "it is a link to what did not come before, or is no file")
	}
	dir, base, err := s.enter(name)
	if err != nil || base == "" {
		return err
	}
	err = unix.Linkat(from, of[last], dir, base, 0)
	if err == unix.EEXIST {
		return s.refuse(name, "it is there twice")
	}
	if s.linked += st.Size; s.linked > s.limit() {
		return s.tooLarge(fmt.Sprintf("more than %d bytes are linked in it", s.limit()))
	}
	return s.fault(name, err)
}

// find opens a directory that is there, following no link. The caller closes it.
func (s *sink) find(parts []string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	fd, err := disk.OpenAt(s.root, ".", flags, 0)
	for _, part := range parts {
		if err != nil {
			return -1, err
		}
		var next int
		next, err = disk.OpenAt(fd, part, flags, 0)
		unix.Close(fd)
		fd = next
	}
	return fd, err
}
