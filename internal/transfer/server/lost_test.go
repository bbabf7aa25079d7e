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

// TestTransferCase53_HalfOpen: a host whose packets are lost, in both directions and without a word, is told as lost by the kernel, and not
// as one that went away.
func TestTransferCase53_HalfOpen(t *testing.T) {
	c := casetest.Start(t)
	if testing.Short() {
		t.Skip("needs some 15 s: so long the kernel waits")
	}
	t.Parallel()
	ownNetwork(t)
	r := newRig(t, nil)
	r.add("web-1")
	cert := r.ca.client(t, "web-1", 0, x509.ExtKeyUsageClientAuth)
	raw, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	secure := tls.Client(raw, &tls.Config{RootCAs: r.pool(), ServerName: "localhost", Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2"}})
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secure, secure.Handshake() }}
	h := &host{&http.Client{Transport: transport}, r}
	h.watch(t.Context(), wire.Report{})
	loopback(t, false)
	// The kernel needs 12 s and some; a machine that is busy gets more.
	c.Eventually(time.Minute, "the host is told as lost", func() (string, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint(r.heard), slices.Contains(r.heard, "closed web-1 1 true")
	})
}
