package swarm

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// HostNetwork is where simulated hosts have their addresses on this machine: each its own, as hosts do.
func HostNetwork() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 1}), 16)
}

// spareFiles is how many files a server has open beside its connections.
const spareFiles = 1000

// OpenFiles sees to it that this process, and what it starts, may have a connection open to each of so many hosts, and to half as many again
// that have not been found lost yet: those that come back at once do so at the pace at which they are let in. The error says why not.
func OpenFiles(hosts int) error {
	need := uint64(hosts + hosts/2 + spareFiles)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	want := limit
	want.Cur, want.Max = max(limit.Cur, need), max(limit.Max, need)
	// Also where it is enough already: a program that is started gets what this one has set, and otherwise what it was started with.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &want); err != nil {
		return fmt.Errorf("%d files open at once are needed, and %d allowed (ulimit -Hn): %w", need, limit.Max, err)
	}
	return nil
}

// Moved is an address with another host.
func Moved(address, host string) (string, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}
