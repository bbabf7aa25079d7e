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

// Watch calls sink after addresses, routes, interfaces, disks, the hostname or files of own facts, which may be nil, have changed, at most
// once in 100 ms; Collect then tells what is new, perhaps nothing. Changes from before Watch has begun are not told: Watch calls sink once at the beginning. It
// blocks until ctx ends and returns nil then. Nothing wakes up while nothing changes.
func Watch(ctx context.Context, own *Own, sink func()) error {
	network, err := openNetlink("watch network addresses", unix.NETLINK_ROUTE, netlinkGroups)
	if err != nil {
		return err
	}
	hostname, err := openPollable("/proc/sys/kernel/hostname")
	if err != nil {
		_ = network.Close() // nothing was written
		return err
	}
	open := []*os.File{network, hostname}
	changed := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { awaitMessages(network, changed, anything) })
	name := hostnameIn(hostname) // before sink is called first, so that no change is between the two
	wg.Go(func() { awaitHostname(hostname, name, changed) })
	// A container may have no such socket. It gets no disks either.
	if devices, err := openNetlink("watch disks", unix.NETLINK_KOBJECT_UEVENT, deviceGroup); err == nil {
		open = append(open, devices)
		wg.Go(func() { awaitMessages(devices, changed, isOfDisk) })
	}
	if own != nil {
		wg.Go(func() { own.await(ctx, changed) })
	}
	tell(ctx, changed, sink)
	for _, f := range open {
		_ = f.Close() // wakes its goroutine
	}
	wg.Wait()
	return nil
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

// awaitMessages notes each message that matters until the socket is closed. A message that was lost because the socket's
// buffer was full (ENOBUFS) is a change too.
func awaitMessages(socket *os.File, changed chan<- struct{}, matters func([]byte) bool) {
	buffer := make([]byte, 2048) // as large as messages about devices get (UEVENT_BUFFER_SIZE); the kernel throws away the rest of others
	for {
		n, err := socket.Read(buffer)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		if err != nil || matters(buffer[:n]) {
			note(changed)
		}
	}
}

// awaitHostname notes each change of the host's own name from what it was, until the file is closed. The kernel reports a change in every UTS name space to
// all who poll, so a container that boots wakes this too: what the file says is compared, which costs one read. A file below /proc/sys
// is always ready to be read; that it has changed shows as a new report by poll only, which the runtime's poller (edge-triggered)
// passes on by calling the function once more.
func awaitHostname(file *os.File, was string, changed chan<- struct{}) {
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
