package server

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestTogether: heartbeats that are due in one quarter of a second are due at its end, and none is early.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{began: time.Now()}
		<-time.After(17 * time.Millisecond)
		for wait, want := range map[time.Duration]time.Duration{
			0: 250, 1 * time.Millisecond: 250, 233 * time.Millisecond: 250, 234 * time.Millisecond: 500, 30 * time.Second: 30_250, 29_983 * time.Millisecond: 30_000,
		} {
			at := 17*time.Millisecond + s.together(wait)
			if at != want*time.Millisecond {
				t.Errorf("after %s is at %s, want %s", wait, at, want*time.Millisecond)
			}
		}
	})
}

// TestSilentIsLookedAtAfterWriting: who has acknowledged all is not looked at again until something else is written.
func TestSilentIsLookedAtAfterWriting(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	c := &conn{Conn: near}
	if c.silent() != 0 || c.wrote.Load() {
		t.Error("a connection on which nothing was written is looked at")
	}
	if _, err := c.Write([]byte("a heartbeat")); err != nil || !c.wrote.Load() {
		t.Fatalf("what was written is not noted, %v", err)
	}
	if _, err := far.Read(make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(time.Minute); c.wrote.Load() && time.Now().Before(late); {
		if heard := c.silent(); heard > 10*time.Second {
			t.Fatalf("nothing is heard for %s", heard)
		}
	}
	if c.wrote.Load() {
		t.Error("what was acknowledged is looked at for ever")
	}
	deafen(t, far.(*net.TCPConn))
	if _, err := c.Write([]byte("another")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c.silent()
		if !c.wrote.Load() {
			t.Fatal("what is not acknowledged is forgotten")
		}
	}
}
