package server

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	boots "tako.dev/tako/e2e/host"
)

// TestAcceptRate: connections that come faster than all of them may are not refused: they wait, until there is no listener any more.
func TestAcceptRate(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Accepts: 1}.withDefaults()
	l := newListener(raw, limits, newAllowances(limits), newMetrics())
	for range 4 {
		c, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	begun := time.Now()
	for range 3 { // two at once, and one a second
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if waited := time.Since(begun); waited < 900*time.Millisecond {
		t.Errorf("the third one came after %s", waited)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		failed <- err
	}()
	_ = l.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("a listener that was closed says %v", err)
	}
	if n := len(l.connections()); n != 3 {
		t.Errorf("%d connections are open", n)
	}
}

// TestLeft: of a connection whose other end has closed it that is known before what it has sent is read.
func TestLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near := &conn{Conn: raw}
	defer raw.Close()
	if _, err := far.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if near.Left() || tooLate(raw) {
		t.Error("one that waits counts as having left")
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	boots.Eventually(t, time.Minute, "the end is known", func() (string, bool) {
		return fmt.Sprint(near.Left(), tooLate(raw)), near.Left() && tooLate(raw)
	})
	if n, err := near.Read(make([]byte, 9)); n != 5 || err != nil {
		t.Errorf("%d bytes and %v are read", n, err)
	}
}
