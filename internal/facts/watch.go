package facts

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/reason"
)

// burst is how long changes are collected before they are told: an interface that comes up changes addresses and routes
// several times within a few milliseconds.
const burst = 100 * time.Millisecond

// netlinkGroups are the changes that can move an address, the primary interface or the hostname's meaning.
const netlinkGroups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// Watch calls sink after addresses, routes or the hostname have changed, at most once in 100 ms; Collect then tells what
// is new, perhaps nothing. Changes from before Watch has begun are not told: Watch calls sink once at the beginning. It
// blocks until ctx ends and returns nil then. Nothing wakes up while nothing changes.
func Watch(ctx context.Context, sink func()) error {
	network, err := openNetlink()
	if err != nil {
		return err
	}
	hostname, err := openPollable("/proc/sys/kernel/hostname")
	if err != nil {
		_ = network.Close() // nothing was written
		return err
	}
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { awaitMessages(network, changed) })
	wg.Go(func() { awaitPolls(hostname, changed) })
	tell(ctx, changed, sink)
	_ = network.Close() // wakes the goroutines
	_ = hostname.Close()
	wg.Wait()
	return nil
}

// tell calls sink for changes, bursts as one, until ctx ends.
func tell(ctx context.Context, changed <-chan struct{}, sink func()) {
	for {
		sink()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(burst):
		}
		select {
		case <-changed: // belongs to the burst
		default:
		}
	}
}

func note(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // noted already
	}
}

// awaitMessages notes each message until the socket is closed. What a message says does not matter, and a message that was
// lost because the socket's buffer was full (ENOBUFS) is a change too.
func awaitMessages(socket *os.File, changed chan<- struct{}) {
	buffer := make([]byte, 512) // the rest of a longer message is thrown away by the kernel
	for {
		_, err := socket.Read(buffer)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		note(changed)
	}
}

// awaitPolls notes each time that the kernel reports the file as changed, until it is closed. A file below /proc/sys is
// always ready to be read; that it has changed shows as a new report by poll only, which the runtime's poller
// (edge-triggered) passes on by calling the function once more.
func awaitPolls(file *os.File, changed chan<- struct{}) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	for {
		calls := 0
		err := raw.Read(func(uintptr) bool {
			calls++
			return calls > 1
		})
		if err != nil {
			return
		}
		note(changed)
	}
}

func openNetlink() (*os.File, error) {
	const doing = "watch network addresses"
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: os.NewSyscallError("socket", err)}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: netlinkGroups}); err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: os.NewSyscallError("bind", err)}
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// openPollable opens a file so that the runtime's poller watches it, which os.Open does not do for regular files.
func openPollable(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "watch " + path, Cause: os.NewSyscallError("open", err)}
	}
	return os.NewFile(uintptr(fd), path), nil
}
