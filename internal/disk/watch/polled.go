package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// polledEvents bounds what one look at the descriptor takes; there are two files of this kind.
const polledEvents = 8

// Polled tells when one of the kernel's own files may have changed, of those that tell by poll(2): /proc/self/mountinfo, /proc/swaps. It has
// one epoll descriptor, and an open file for each that is watched. Subscribe, then look: what happens after Watch has returned is told.
//
// Its methods may be called from several goroutines, also from the sink of Run.
type Polled struct {
	epoll *os.File
	fd    int

	mu    sync.Mutex // guards what follows
	files map[string]*polledFile
}

// polledFile is one file and who watches it.
type polledFile struct {
	file *os.File // nil where the kernel does not tell
	ids  map[ID]struct{}
}

// NewPolled opens the descriptor.
func NewPolled() (*Polled, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true) // so that the runtime's poller takes it
	}
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "open epoll", Cause: err}
	}
	return &Polled{epoll: os.NewFile(uintptr(fd), "epoll"), fd: fd, files: map[string]*polledFile{}}, nil
}

// Close gives the descriptors back. Run must have returned, and no other method may follow.
func (p *Polled) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := []error{p.epoll.Close()}
	for _, f := range p.files {
		if f.file != nil {
			errs = append(errs, f.file.Close())
		}
	}
	return errors.Join(errs...)
}

// Watch marks id whenever the file may have changed. An error of code WatchLimit says that the kernel does not tell: the id is kept, listed by
// Unwatched, and the caller must look by himself. Adding the same again does nothing.
func (p *Polled) Watch(name string, id ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[name]
	if f == nil {
		f = &polledFile{ids: map[ID]struct{}{}}
		p.files[name] = f
	}
	f.ids[id] = struct{}{}
	if f.file != nil {
		return nil
	}
	if err := p.openLocked(name, f); err != nil {
		return &reason.Error{Code: reason.WatchLimit, Doing: "watch " + name, Cause: err}
	}
	return nil
}

// openLocked opens a file and has it told about. It stays out of the runtime's poller, which would take its events.
func (p *Polled) openLocked(name string, f *polledFile) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Edge-triggered: the kernel says it once for each change, whoever has read by then.
	ev := unix.EpollEvent{Events: unix.EPOLLPRI | unix.EPOLLERR | unix.EPOLLET, Fd: int32(fd)}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	f.file = os.NewFile(uintptr(fd), name)
	return nil
}

// Unwatch undoes Watch. Events that were read before may still come.
func (p *Polled) Unwatch(name string, id ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[name]
	if f == nil {
		return
	}
	if delete(f.ids, id); len(f.ids) > 0 {
		return
	}
	delete(p.files, name)
	if f.file != nil {
		_ = f.file.Close() // nothing was written; the kernel takes it out of the epoll with that
	}
}

// Unwatched lists the IDs that the kernel does not tell about, sorted.
func (p *Polled) Unwatched() []ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idsLocked(func(f *polledFile) bool { return f.file == nil })
}

// Retry tries again to watch what is unwatched. It returns the IDs that are watched now; they must look once more.
func (p *Polled) Retry() []ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := map[*polledFile]bool{}
	for name, f := range p.files {
		if f.file == nil && p.openLocked(name, f) == nil {
			again[f] = true
		}
	}
	return p.idsLocked(func(f *polledFile) bool { return again[f] })
}

func (p *Polled) idsLocked(of func(*polledFile) bool) []ID {
	var ids []ID
	for _, f := range p.files {
		if !of(f) {
			continue
		}
		for id := range f.ids {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Run gives the IDs of what may have changed to sink, from its own goroutine, until ctx ends; it returns ctx's error then. It begins with those
// that are watched by then.
// Run must not be called twice at once.
func (p *Polled) Run(ctx context.Context, sink func([]Event)) error {
	if err := p.epoll.SetReadDeadline(time.Time{}); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for epoll", Cause: err}
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = p.epoll.SetReadDeadline(time.Unix(1, 0)) // it fails only on a closed file, whose wait ends by itself
	})
	defer func() {
		if !stop() {
			<-woken
		}
	}()
	conn, err := p.epoll.SyscallConn()
	if err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for epoll", Cause: err}
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		var told []Event
		told, failed = p.take(int(fd))
		if len(told) > 0 {
			sink(told)
		}
		return failed != nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &reason.Error{Code: reason.SystemCallFailed, Doing: "wait for epoll", Cause: errors.Join(failed, err)}
}

// take empties the descriptor, and returns all that is watched: which file it was is not to be had, because waiting for the descriptor has
// asked the files already, and each says it once only. There are two, and a look at the other costs little.
func (p *Polled) take(fd int) ([]Event, error) {
	events := make([]unix.EpollEvent, polledEvents)
	for {
		n, err := unix.EpollWait(fd, events, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n < len(events) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var told []Event
	for name, f := range p.files {
		if f.file != nil {
			told = append(told, Event{IDs: p.idsLocked(func(of *polledFile) bool { return of == f }), Name: filepath.Base(name)})
		}
	}
	return told, nil
}
