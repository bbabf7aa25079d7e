package facts

import (
	"bytes"
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

// netlinkGroups are the changes that can move an address, the primary interface or the hostname's meaning. An interface that
// is taken down loses its routes without a word about them.
const netlinkGroups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE

// deviceGroup is the multicast group of NETLINK_KOBJECT_UEVENT in which the kernel itself speaks, netlink(7).
const deviceGroup = 1

// What failed to be watched is tried again after retryMin, and then after twice as long each time, up to retryMax: the kernel has limits on what a
// host watches, and somebody may raise them.
const (
	retryMin = 10 * time.Second
	retryMax = 10 * time.Minute
)

// Watch calls sink after addresses, routes, interfaces, disks, the hostname or files of own facts, which may be nil, have changed, at most
// once in 100 ms; Collect then tells what is new, perhaps nothing. Changes from before something is watched are not told: Watch calls sink once at the beginning,
// and whenever it begins to watch something, again or for the first time. What cannot be watched, or not any more, is told to trouble, from several goroutines, and
// is tried again; the rest is watched meanwhile. It blocks until ctx ends. Nothing wakes up while nothing changes.
func Watch(ctx context.Context, own *Own, sink func(), trouble func(error)) {
	changed := make(chan struct{}, 1)
	watches := []watching{watchNetwork, watchHostname, watchDisks}
	if own != nil {
		watches = append(watches, own.await)
	}
	var wg sync.WaitGroup
	for _, w := range watches {
		wg.Go(func() { w.again(ctx, changed, trouble) })
	}
	tell(ctx, changed, sink)
	wg.Wait()
}

// watching notes changes until ctx ends, and one when it has begun. It returns early with why it cannot go on, or with nil where there is nothing to watch.
type watching func(ctx context.Context, changed chan<- struct{}) error

// again watches again after each failure.
func (w watching) again(ctx context.Context, changed chan<- struct{}, trouble func(error)) {
	for delay := retryMin; ; delay = min(2*delay, retryMax) {
		began := time.Now()
		err := w(ctx, changed)
		if err == nil || ctx.Err() != nil {
			return
		}
		trouble(err)
		if time.Since(began) > retryMax {
			delay = retryMin
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

func watchNetwork(ctx context.Context, changed chan<- struct{}) error {
	const doing = "watch network addresses"
	socket, err := openNetlink(doing, unix.NETLINK_ROUTE, netlinkGroups)
	if err != nil {
		return err
	}
	return until(ctx, doing, socket, func() error { return awaitMessages(socket, changed, anything) })
}

func watchDisks(ctx context.Context, changed chan<- struct{}) error {
	const doing = "watch disks"
	socket, err := openNetlink(doing, unix.NETLINK_KOBJECT_UEVENT, deviceGroup)
	if err != nil {
		return nil // A container may have no such socket. It gets no disks either.
	}
	return until(ctx, doing, socket, func() error { return awaitMessages(socket, changed, isOfDisk) })
}

func watchHostname(ctx context.Context, changed chan<- struct{}) error {
	file, err := openPollable("/proc/sys/kernel/hostname")
	if err != nil {
		return err
	}
	name := hostnameIn(file) // before the change that is noted next, so that none is between the two
	return until(ctx, "watch the hostname", file, func() error { return awaitHostname(file, name, changed) })
}

// until waits for changes of an open file, and closes it when ctx ends, which ends the wait, or when the wait has failed.
func until(ctx context.Context, doing string, file *os.File, wait func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		_ = file.Close() // nothing was written
		return &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: err, Hint: "it is tried again; meanwhile changes are found by the audit"}
	case <-ctx.Done():
		_ = file.Close() // wakes its goroutine
		<-ended
		return ctx.Err()
	}
}

func anything([]byte) bool { return true }

// isOfDisk reports whether a message of the kernel about a device is about a whole disk: its lines of KEY=VALUE end with zero bytes.
func isOfDisk(message []byte) bool {
	block, disk := false, false
	for line := range bytes.SplitSeq(message, []byte{0}) {
		block = block || string(line) == "SUBSYSTEM=block"
		disk = disk || string(line) == "DEVTYPE=disk"
	}
	return block && disk
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

// awaitMessages notes each message that matters until the socket is closed or fails, which it returns. A message that was lost because the socket's
// buffer was full (ENOBUFS) is a change too.
func awaitMessages(socket *os.File, changed chan<- struct{}, matters func([]byte) bool) error {
	note(changed)                // what came before the watch
	buffer := make([]byte, 2048) // as large as messages about devices get (UEVENT_BUFFER_SIZE); the kernel throws away the rest of others
	for {
		n, err := socket.Read(buffer)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		if err != nil || matters(buffer[:n]) {
			note(changed)
		}
	}
}

// awaitHostname notes each change of the host's own name from what it was, until the file is closed or fails, which it returns. The kernel reports a change in every UTS name space to
// all who poll, so a container that boots wakes this too: what the file says is compared, which costs one read. A file below /proc/sys
// is always ready to be read; that it has changed shows as a new report by poll only, which the runtime's poller (edge-triggered)
// passes on by calling the function once more.
func awaitHostname(file *os.File, was string, changed chan<- struct{}) error {
	note(changed) // what came before the watch
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	for {
		calls := 0
		err := raw.Read(func(uintptr) bool {
			calls++
			return calls > 1
		})
		if err != nil {
			return err
		}
		if is := hostnameIn(file); is != was {
			was = is
			note(changed)
		}
	}
}

// hostnameIn reads the open file, which is never longer than __NEW_UTS_LEN and a line feed; "" if that is not possible.
func hostnameIn(file *os.File) string {
	var name [65]byte
	n, _ := file.ReadAt(name[:], 0) // io.EOF is what a short file says, and of another error nothing can be done
	return string(name[:n])
}

func openNetlink(doing string, protocol int, groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: doing, Cause: os.NewSyscallError("socket", err)}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
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
