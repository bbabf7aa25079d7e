package watch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	// writersKept bounds what is remembered: contention is about a few files at a time.
	writersKept = 256
	// writersDirs bounds the marked directories.
	writersDirs = 4096
	// fanotifyBuffer takes about 100 events in one read.
	fanotifyBuffer = 8 << 10
	// statusMax is more than any /proc/PID/status has up to the line we want.
	statusMax = 4 << 10
	// ancestorsMax bounds how far up a process is asked whose child it is: what the agent runs is a few generations below it.
	ancestorsMax = 16

	fanotifyMask = unix.FAN_MODIFY | unix.FAN_ATTRIB | unix.FAN_MOVED_TO | unix.FAN_MOVED_FROM | unix.FAN_CREATE |
		unix.FAN_DELETE | unix.FAN_ONDIR | unix.FAN_EVENT_ON_CHILD
)

// Writer is a process that changed an entry, as far as it could still be seen: a process that has ended already leaves
// its number only.
type Writer struct {
	PID  int
	UID  uint32 // effective; meaningful only where Comm is set
	Comm string // what the kernel calls it, at most 15 bytes
	Exe  string // path of its program; empty where it is not to be had
	At   time.Time
}

// entryKey names an entry of a directory by the directory's path.
type entryKey struct{ dir, name string }

// Writers remembers who changed the entries of directories last. It uses fanotify, which names the process; where that is
// not to be had the agent goes on without. A process that writes through a mapping is not seen.
type Writers struct {
	root   *disk.Root
	wanted func(dir, name string) bool
	self   int
	file   *os.File
	fd     int

	mu   sync.Mutex        // guards all below
	dirs map[string]string // from the kernel's handle of a directory to its path
	last map[entryKey]Writer
}

// NewWriters opens a fanotify group, which needs CAP_SYS_ADMIN. wanted says which entries are of interest; it is called
// from Run's goroutine for each event, and keeps busy neighbours of a managed file cheap.
func NewWriters(root *disk.Root, wanted func(dir, name string) bool) (*Writers, error) {
	// Newer kernels give the group that we want to everybody, but then name no process. A plain group is for the
	// privileged only, so it tells whether names will come.
	probe, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		return nil, disk.Fault("open", "fanotify", err)
	}
	unix.Close(probe)
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_DFID_NAME|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil, disk.Fault("open", "fanotify", err)
	}
	return &Writers{
		root: root, wanted: wanted, self: os.Getpid(), file: os.NewFile(uintptr(fd), "fanotify"), fd: fd,
		dirs: make(map[string]string), last: make(map[entryKey]Writer),
	}, nil
}

// Close gives the group back. Run must have returned.
func (w *Writers) Close() error { return w.file.Close() }

// Add begins to remember who changes the entries of the directory at a path. It is called again when that directory was
// replaced. Some file systems cannot do it; that is an error to pass over.
func (w *Writers) Add(dir string) error {
	d, err := w.root.Dir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	key, err := handleKey(d.FD())
	if err != nil {
		return disk.Fault("watch the writers in", dir, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.dirs) >= writersDirs {
		return &reason.Error{Code: reason.WatchLimit, Doing: "watch the writers in " + disk.Shown(dir)}
	}
	if err := unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_ONLYDIR, fanotifyMask, unix.AT_FDCWD, disk.ProcPath(d.FD())); err != nil {
		return disk.Fault("watch the writers in", dir, err)
	}
	for old, p := range w.dirs {
		if p == dir {
			delete(w.dirs, old)
		}
	}
	w.dirs[key] = dir
	return nil
}

// Remove undoes Add, also for a directory that is gone.
func (w *Writers) Remove(dir string) {
	w.mu.Lock()
	for key, p := range w.dirs {
		if p == dir {
			delete(w.dirs, key)
		}
	}
	w.mu.Unlock()
	if d, err := w.root.Dir(dir); err == nil {
		// It fails only if the directory is another one by now.
		_ = unix.FanotifyMark(w.fd, unix.FAN_MARK_REMOVE, fanotifyMask, unix.AT_FDCWD, disk.ProcPath(d.FD()))
		d.Close()
	}
}

// Last returns who changed an entry last, other than this process and what it runs, if it is remembered.
func (w *Writers) Last(dir, name string) (Writer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v, ok := w.last[entryKey{dir, name}]
	return v, ok
}

// Run reads events until ctx ends, and returns ctx's error then. Idle, it costs nothing.
func (w *Writers) Run(ctx context.Context) error {
	return readEvents(ctx, w.file, fanotifyBuffer, func(b []byte) {
		now := time.Now()
		// A short event can only be the kernel's fault, and a forgotten writer is no harm.
		_ = parseWrites(b, func(v written) { w.note(v, now) })
	})
}

// note remembers one event.
func (w *Writers) note(v written, now time.Time) {
	if v.pid == w.self || v.pid == 0 {
		return
	}
	w.mu.Lock()
	dir, ok := w.dirs[v.dir]
	w.mu.Unlock()
	if !ok || !w.wanted(dir, v.name) {
		return
	}
	who := Writer{PID: v.pid, At: now}
	if parent := who.look(); w.runs(parent) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := entryKey{dir, v.name}
	if _, have := w.last[key]; !have && len(w.last) >= writersKept {
		w.forgetOldestLocked()
	}
	w.last[key] = who
}

func (w *Writers) forgetOldestLocked() {
	var oldest entryKey
	first := true
	for k, v := range w.last {
		if first || v.At.Before(w.last[oldest].At) {
			oldest, first = k, false
		}
	}
	delete(w.last, oldest)
}

// runs reports whether a process is this one or a descendant of it. Where this is the first process, the children of others become its
// own, and it cannot be told.
func (w *Writers) runs(pid int) bool {
	for range ancestorsMax {
		switch {
		case pid <= 1:
			return false
		case pid == w.self:
			return true
		}
		_, pid, _ = parseStatus(readStatus(pid))
	}
	return false
}

// look reads what /proc says about a process, and returns its parent's number. It may have ended, and its number may belong to another
// one soon; at once after the event that is next to impossible.
func (v *Writer) look() (parent int) {
	v.Comm, parent, v.UID = parseStatus(readStatus(v.PID))
	v.Exe, _ = os.Readlink(procDir(v.PID) + "exe")
	return parent
}

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/" }

// readStatus reads the beginning of /proc/PID/status; nothing of a process that has ended.
func readStatus(pid int) []byte {
	f, err := os.Open(procDir(pid) + "status")
	if err != nil {
		return nil
	}
	defer f.Close()
	buf := make([]byte, statusMax)
	n, _ := f.Read(buf)
	return buf[:n]
}

// parseStatus takes the name, the parent and the effective user from /proc/PID/status, see proc_pid_status(5).
func parseStatus(b []byte) (comm string, parent int, uid uint32) {
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("Name:\t")); ok {
			comm = string(bytes.TrimSuffix(v, []byte("\n")))
		}
		if v, ok := bytes.CutPrefix(line, []byte("PPid:\t")); ok {
			parent, _ = strconv.Atoi(string(bytes.TrimSuffix(v, []byte("\n"))))
		}
		if v, ok := bytes.CutPrefix(line, []byte("Uid:\t")); ok {
			if ids := bytes.Fields(v); len(ids) > 1 {
				n, _ := strconv.ParseUint(string(ids[1]), 10, 32)
				uid = uint32(n)
			}
			break
		}
	}
	return comm, parent, uid
}

// written is one fanotify event.
type written struct {
	pid  int
	dir  string // see handleKey
	name string
}

// Sizes of struct fanotify_event_metadata, of its information records' header, and of what stands before the bytes of a
// file handle: the file system's id, the handle's length and type. See fanotify(7).
const (
	fanotifyHeader = 24
	fanotifyRecord = 4
	fanotifyHandle = 16
)

var errShortWrite = errors.New("fanotify: event is cut short")

// parseWrites reads what one read of a fanotify group returned, and calls take for each event that names an entry.
func parseWrites(b []byte, take func(written)) error {
	for len(b) > 0 {
		if len(b) < fanotifyHeader {
			return errShortWrite
		}
		size, head := int(binary.NativeEndian.Uint32(b)), int(binary.NativeEndian.Uint16(b[6:]))
		if size < fanotifyHeader || size > len(b) || head < fanotifyHeader || head > size || b[4] != unix.FANOTIFY_METADATA_VERSION {
			return errShortWrite
		}
		pid := int(int32(binary.NativeEndian.Uint32(b[20:])))
		if err := parseRecords(b[head:size], func(dir, name string) { take(written{pid: pid, dir: dir, name: name}) }); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// parseRecords reads the information records of one event.
func parseRecords(b []byte, take func(dir, name string)) error {
	for len(b) > 0 {
		if len(b) < fanotifyRecord {
			return errShortWrite
		}
		size := int(binary.NativeEndian.Uint16(b[2:]))
		if size < fanotifyRecord || size > len(b) {
			return errShortWrite
		}
		if b[0] == unix.FAN_EVENT_INFO_TYPE_DFID_NAME {
			record := b[fanotifyRecord:size]
			if len(record) < fanotifyHandle {
				return errShortWrite
			}
			end := fanotifyHandle + uint64(binary.NativeEndian.Uint32(record[8:]))
			if end > uint64(len(record)) {
				return errShortWrite
			}
			take(string(record[:end]), cString(record[end:]))
		}
		b = b[size:]
	}
	return nil
}

// handleKey is a directory as fanotify names it: the file system's id and a file handle, byte for byte as in an event.
func handleKey(fd int) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", err
	}
	handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return "", err
	}
	b := make([]byte, 0, fanotifyHandle+handle.Size())
	b = binary.NativeEndian.AppendUint32(b, uint32(fs.Fsid.Val[0]))
	b = binary.NativeEndian.AppendUint32(b, uint32(fs.Fsid.Val[1]))
	b = binary.NativeEndian.AppendUint32(b, uint32(handle.Size()))
	b = binary.NativeEndian.AppendUint32(b, uint32(handle.Type()))
	return string(append(b, handle.Bytes()...)), nil
}
