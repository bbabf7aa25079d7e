package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/transfer/wire"
)

// ownNetwork gives the test a network of its own, in which there is only a loopback interface. Sockets that this goroutine makes are in
// it. The thread ends with the test.
func ownNetwork(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs network namespaces: %v", err)
	}
	loopback(t, true)
}

// loopback takes the loopback interface up or down.
func loopback(t *testing.T, up bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	if up {
		r.SetUint16(unix.IFF_UP)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		t.Fatal(err)
	}
}

// TestTransferCase53_HalfOpen: a host whose packets are lost, in both directions and without a word, is told as lost because nothing is heard
// of its kernel, and not as one that went away.
func TestTransferCase53_HalfOpen(t *testing.T) {
	c := casetest.Start(t)
	if testing.Short() {
		t.Skip("needs some 15 s: so long the kernel waits")
	}
	t.Parallel()
	ownNetwork(t)
	r := newRig(t, nil)
	watchOver(t, r)
	loopback(t, false)
	// By the sweep after 10 s; the kernel would need 12 s and some. A machine that is busy gets more.
	c.Eventually(time.Minute, "the host is told as lost", lostOf(r))
}

// TestTransferCase53_HeadOnTheWay: what the server sends to a host that is lost already, and nobody knows it yet, does not begin the wait anew.
func TestTransferCase53_HeadOnTheWay(t *testing.T) {
	c := casetest.Start(t)
	if testing.Short() {
		t.Skip("needs some 15 s: so long the kernel waits")
	}
	t.Parallel()
	r := newRig(t, nil)
	over := watchOver(t, r)
	c.Eventually(time.Minute, "all that the host has sent is acknowledged, so that it sends nothing anew", func() (string, bool) {
		n := unacknowledged(t, over)
		return fmt.Sprint(n, " bytes are not"), n == 0
	})
	deafen(t, over)
	lost := time.Now()
	<-time.After(9 * time.Second)
	r.give("web-1", make([]byte, 300))
	c.Eventually(time.Minute, "the host is told as lost", lostOf(r))
	took := time.Since(lost)
	// 13 s at most; a machine that is busy gets some more. From the head on it would be 21 s.
	c.Check(took < 18*time.Second, "that took %s", took)
}

// watchOver opens a watch of web-1, and returns the connection, over which the host asks nothing by itself.
func watchOver(t *testing.T, r *rig) *net.TCPConn {
	t.Helper()
	r.add("web-1")
	cert := r.ca.client(t, "web-1", 0, x509.ExtKeyUsageClientAuth)
	raw, err := (&net.Dialer{KeepAlive: -1}).DialContext(t.Context(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	secure := tls.Client(raw, &tls.Config{RootCAs: r.pool(), ServerName: "localhost", Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}})
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secure, secure.Handshake() }}
	h := &host{&http.Client{Transport: transport}, r}
	h.watch(t.Context(), wire.Report{})
	return raw.(*net.TCPConn)
}

// unacknowledged is how many bytes of a connection the other end has not acknowledged.
func unacknowledged(t *testing.T, c *net.TCPConn) (n int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// deafen has the kernel drop whatever comes for a connection: to the other end that is a host which is lost without a word, also to what it
// sends anew.
func deafen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0} // keep 0 bytes
	err = raw.Control(func(fd uintptr) {
		if err := unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop}); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// lostOf says what was heard of hosts, and whether web-1 was told as lost.
func lostOf(r *rig) func() (string, bool) {
	return func() (string, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint(r.heard), slices.Contains(r.heard, "closed web-1 1 true")
	}
}
