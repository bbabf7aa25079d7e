package mount

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

const (
	// listBytesMax bounds what is read of a list: 100,000 mounts have 20 MB.
	listBytesMax = 64 << 20
	// listTries bounds how often a list is read that changes meanwhile: whoever changes it also causes an event.
	listTries = 8
)

// kernelList is one of the kernel's lists that tell by poll(2) when they have changed.
type kernelList struct {
	name string

	mu   sync.Mutex // guards what follows
	file *os.File   // stays out of the runtime's poller, which would take its events
	fd   int
	turn uint64 // counts the changes
}

// look returns a number that is another one when the list has changed; 0 where the kernel does not tell. It costs one system call.
func (k *kernelList) look() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.file == nil {
		fd, err := unix.Open(k.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0
		}
		k.file, k.fd, k.turn = os.NewFile(uintptr(fd), k.name), fd, 1
		return k.turn
	}
	fds := []unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLPRI}}
	if n, err := unix.Poll(fds, 0); err != nil || n > 0 && fds[0].Revents&(unix.POLLPRI|unix.POLLERR) != 0 {
		k.turn++
	}
	return k.turn
}

// read reads the list as it was at one moment, and the turn of that.
func (k *kernelList) read() (body string, turn uint64, err error) {
	turn = k.look()
	for range listTries {
		f, err := os.Open(k.name)
		if err != nil {
			return "", 0, k.fault(err)
		}
		b, err := io.ReadAll(io.LimitReader(f, listBytesMax))
		_ = f.Close() // nothing was written
		if err != nil {
			return "", 0, k.fault(err)
		}
		body = string(b)
		now := k.look()
		if now == turn {
			return body, turn, nil
		}
		turn = now
	}
	return body, 0, nil // it goes on changing, and each change is told
}

func (k *kernelList) fault(err error) error {
	return &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + k.name, Cause: err}
}
