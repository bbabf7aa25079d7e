package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	bridgeName = "br0"
	// subnet is the network of every lab. It needs no care about collisions: each lab has a network namespace of its own.
	subnet = "10.77.0."
	// bridgeAddress is where the test process itself is reached from the hosts.
	bridgeAddress = subnet + "1"
	prefixLength  = "/24"
)

var errNetworkClosed = errors.New("the lab's network is closed")

// network is a network namespace without a name, held by one locked thread.
type network struct {
	calls chan func()
	quit  chan struct{}
	ended chan struct{}
}

// openNetwork starts the thread and sets up loopback and bridge.
func openNetwork(ctx context.Context) (*network, error) {
	n := &network{calls: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{})}
	unshared := make(chan error)
	go onOwnThread(func() { n.serve(unshared) })
	if err := <-unshared; err != nil {
		<-n.ended
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", bridgeName, "type", "bridge"},
		{"address", "add", bridgeAddress + prefixLength, "dev", bridgeName},
		{"link", "set", bridgeName, "up"},
	} {
		if err := n.ip(ctx, args...); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

// serve runs the calls on a thread that is in the namespace.
func (n *network) serve(unshared chan<- error) {
	defer close(n.ended)
	err := unix.Unshare(unix.CLONE_NEWNET)
	unshared <- err
	if err != nil {
		return
	}
	for {
		select {
		case call := <-n.calls:
			call()
		case <-n.quit:
			return
		}
	}
}

// do runs f on the network's thread: sockets and processes that f creates belong to the lab's network, and processes with
// a parent death signal die with the lab. f must not block for long.
func (n *network) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case n.calls <- func() { result <- f() }:
		return <-result
	case <-n.ended:
		return errNetworkClosed
	}
}

// close ends the thread. Links vanish when the last host is gone too.
func (n *network) close() {
	close(n.quit)
	<-n.ended
}

// ip runs the ip command inside the network.
func (n *network) ip(ctx context.Context, args ...string) error {
	return n.do(func() error {
		out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	})
}

// listen opens a TCP socket inside the network.
func (n *network) listen(address string) (listener net.Listener, err error) {
	err = n.do(func() error {
		listener, err = net.Listen("tcp4", address)
		return err
	})
	return listener, err
}

// dial connects from the bridge to an address (IP:port, no names) inside the network. "tcp4" and a literal address keep
// net.Dialer on the calling thread.
func (n *network) dial(ctx context.Context, address string) (conn net.Conn, err error) {
	err = n.do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp4", address)
		return err
	})
	return conn, err
}
