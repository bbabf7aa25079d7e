package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// pin makes a network namespace with nothing in it but a loopback interface that is up, and pins it to a file: as long as something is mounted
// there, it is there.
func pin(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	made := make(chan error, 1)
	go func() { // a namespace is a thread's: where that cannot go back, it ends with its goroutine
		runtime.LockOSThread()
		err, back := pinHere(path)
		if back {
			runtime.UnlockOSThread()
		}
		made <- err
	}()
	return <-made
}

// pinHere makes and pins the namespace of this thread. back: the thread is in its own again.
func pinHere(path string) (err error, back bool) {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err, true
	}
	defer own.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err), true
	}
	if err = furnish(); err == nil {
		if err = unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, ""); err != nil {
			err = fmt.Errorf("pin a network namespace: %w", err)
		}
	}
	if failed := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); failed != nil {
		return errors.Join(err, fmt.Errorf("go back to the host's network: %w", failed)), false
	}
	return err, true
}

// furnish makes the namespace of this thread one that programs can work in.
func furnish() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring up the loopback interface: %w", err)
	}
	// The ports below 1024 are of nobody else here, and tasks do not run as root. It is IPv6's setting, too.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return fmt.Errorf("open the ports below 1024: %w", err)
	}
	return nil
}

// pinned reports whether a namespace is pinned to a file.
func pinned(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// unpin lets a namespace go; it ends with the last that is in it.
func unpin(path string) error {
	for pinned(path) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("let a network namespace go: %w", err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// prefixes are those of the bridge that is built in, and of all interfaces of the host.
func prefixes() (bridge, all []netip.Prefix, err error) {
	if i, err := net.InterfaceByName(bridgeName); err == nil { // there is none before the first network
		list, err := i.Addrs()
		if err != nil {
			return nil, nil, err
		}
		bridge = masked(list)
	}
	list, err := net.InterfaceAddrs() // in one question, however many interfaces instances have
	return bridge, masked(list), err
}

func masked(list []net.Addr) (prefixes []netip.Prefix) {
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes
}
