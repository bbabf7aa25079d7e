package shim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
)

const (
	// eventsAtOnce is how many descriptors are told of in one look.
	eventsAtOnce = 64
	// inotifyBuffer holds many events: each is 16 bytes and a name of up to 150.
	inotifyBuffer = 16 << 10
)

// events are what the kernel tells of shims: what they put into the directory of statuses, and that they have ended.
type events struct {
	epoll   *os.File
	fd      int
	inotify int

	mu    sync.Mutex // guards what follows
	shims map[int]run.ID
	ids   map[run.ID]int // the descriptor that was followed last
}

func newEvents(dir string) (*events, error) {
	fail := func(err error) (*events, error) {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "watch " + dir, Cause: err}
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that the runtime's poller takes it
	}
	if err != nil {
		return fail(err)
	}
	inotify, err := watchDir(dir)
	if err != nil {
		return fail(errors.Join(err, unix.Close(fd)))
	}
	e := &events{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, inotify: inotify, shims: map[int]run.ID{}, ids: map[run.ID]int{}}
	if err := e.add(inotify); err != nil {
		return fail(errors.Join(err, e.close()))
	}
	return e, nil
}

func (e *events) add(fd int) error {
	return unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

func (e *events) close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := []error{e.epoll.Close(), unix.Close(e.inotify)}
	for fd := range e.shims {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// follow tells of the end of a shim, whose descriptor it takes.
func (e *events) follow(id run.ID, pidfd int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.add(pidfd) != nil { // the kernel has no memory for it: the end is seen when somebody looks
		_ = unix.Close(pidfd)
		return
	}
	e.shims[pidfd], e.ids[id] = id, pidfd
}

// followed reports whether the end of a shim of an attempt is told of.
func (e *events) followed(id run.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.ids[id]
	return ok
}

// ended takes out a shim that has ended, and reaps it where it is a child of this process.
func (e *events) ended(pidfd int) (run.ID, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.shims[pidfd]
	if ok {
		delete(e.shims, pidfd)
		if e.ids[id] == pidfd {
			delete(e.ids, id)
		}
		_ = unix.Waitid(unix.P_PIDFD, pidfd, nil, unix.WEXITED|unix.WNOHANG, nil) // ECHILD: another agent has started it
		_ = unix.Close(pidfd)
	}
	return id, ok
}

// take is what has changed since it was called last. all: it is not known what.
func (e *events) take() (ids []run.ID, all bool, err error) {
	told := make([]unix.EpollEvent, eventsAtOnce)
	n, err := unix.EpollWait(e.fd, told, 0)
	if errors.Is(err, unix.EINTR) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, t := range told[:n] {
		if int(t.Fd) == e.inotify {
			some, lost, err := readNames(e.inotify)
			if err != nil {
				return nil, false, err
			}
			ids, all = append(ids, some...), all || lost
		} else if id, ok := e.ended(int(t.Fd)); ok {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, run.ID.Compare)
	return slices.Compact(ids), all, nil
}

// readNames reads events of inotify(7). lost: there were more than the kernel keeps.
func readNames(fd int) (ids []run.ID, lost bool, err error) {
	buffer := make([]byte, inotifyBuffer)
	for {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) || n == 0 {
			return ids, lost, nil
		}
		if err != nil {
			return ids, lost, err
		}
		some, over := parseNames(buffer[:n])
		ids, lost = append(ids, some...), lost || over
	}
}

// parseNames takes apart what inotify has to say.
func parseNames(b []byte) (ids []run.ID, lost bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b)-unix.SizeofInotifyEvent {
			return ids, true
		}
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], []byte{0})
		b = b[unix.SizeofInotifyEvent+size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			lost = true
		} else if id, ok := nameOf(string(name)); ok {
			ids = append(ids, id)
		}
	}
	return ids, lost
}

// watchDir tells by a descriptor what is put into a directory.
func watchDir(dir string) (int, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1, err
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Run tells sink of every attempt, and then of what changes.
func (r *Shims) Run(ctx context.Context, sink func(run.Status)) error {
	if err := r.events.epoll.SetReadDeadline(time.Time{}); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for what is run", Cause: err}
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = r.events.epoll.SetReadDeadline(time.Unix(1, 0)) // it fails only on a closed file, whose wait ends by itself
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	conn, err := r.events.epoll.SyscallConn()
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for what is run", Cause: err}
	}
	teller := teller{r: r, told: map[run.ID]run.Status{}, sink: sink}
	failed := teller.all(ctx)
	if failed == nil {
		err = conn.Read(func(uintptr) bool {
			failed = teller.some(ctx)
			return failed != nil || ctx.Err() != nil
		})
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(failed, err)
}

// teller knows what was told.
type teller struct {
	r    *Shims
	told map[run.ID]run.Status
	sink func(run.Status)
}

// all tells of every attempt that is not as it was told.
func (t *teller) all(ctx context.Context) error {
	list, err := t.r.List(ctx)
	if err != nil {
		return err
	}
	there := make(map[run.ID]run.Status, len(list))
	for _, s := range list {
		there[s.ID] = t.told[s.ID]
		if err := t.follow(s); err != nil {
			return err
		}
	}
	t.told = there // what was removed is forgotten
	for _, s := range list {
		t.tell(s)
	}
	return nil
}

// some tells of what the kernel says has changed, until it says nothing more.
func (t *teller) some(ctx context.Context) error {
	for ctx.Err() == nil {
		ids, all, err := t.r.events.take()
		if err != nil {
			return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for what is run", Cause: err}
		}
		if all {
			if err := t.all(ctx); err != nil {
				return err
			}
		}
		if len(ids) == 0 && !all {
			return nil
		}
		for _, id := range ids {
			s, there, err := t.r.look(id)
			if err != nil {
				return err
			}
			if !there {
				delete(t.told, id)
				continue
			}
			t.tell(s)
		}
	}
	return nil
}

func (t *teller) tell(s run.Status) {
	if t.told[s.ID] == s {
		return
	}
	t.told[s.ID] = s
	t.sink(s)
	if s.Phase == run.Ended {
		// It does not change any more. What is remembered is what may yet be told twice.
		delete(t.told, s.ID)
	}
}

// follow has the end of a shim told of that another agent has started. That one may have been killed when something was asked, and the bell had
// not rung yet.
func (t *teller) follow(s run.Status) error {
	if s.Phase == run.Ended || t.r.events.followed(s.ID) {
		return nil
	}
	var b begun
	if ok, err := t.r.tree.get(s.ID, begunFile, &b); err != nil || !ok {
		return err
	}
	fd, err := unix.PidfdOpen(b.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it ends just now, which the directory tells
	}
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "follow the process that minds " + s.ID.String(), Cause: err}
	}
	if is, ok := readStat(b.PID); !ok || is.since != b.Since {
		return unix.Close(fd)
	}
	t.r.events.follow(s.ID, fd)
	return t.r.ring(s.ID)
}
