package server

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"tako.dev/tako/internal/transfer/wire"
)

// TestSilentHandshakes: who connects and says nothing keeps nobody waiting, is closed after the time that a handshake may take, and does not keep
// the server from stopping.
func TestSilentHandshakes(t *testing.T) {
	noLeak(t)
	const silent, most = 100, 2 * time.Second // one that speaks has no more either
	r := newRig(t, func(o *Options) { o.Times.Handshake = most })
	r.add("web-1")
	r.give("web-1", []byte("head"))
	open := make([]net.Conn, silent)
	for i := range open {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open[i] = c
	}
	h := r.as("web-1")
	if f := h.watch(t.Context(), wire.Report{}).next(); string(f.Head) != "head" {
		t.Errorf("beside silent ones a host gets %+v", f)
	}
	for _, c := range open {
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("something is said to who says nothing")
		} else if e, is := err.(net.Error); is && e.Timeout() {
			t.Fatal("a silent connection stays open")
		}
	}
	last, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	r.stop()
	h.Client.Transport.(*http.Transport).CloseIdleConnections()
	_, _ = io.Copy(io.Discard, last) // it ends with the server
}
