package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// inTurn has n handshakes come one after the other, each of which takes its time, and returns which had their turn, in that order. Each is as patient.
func inTurn(t *testing.T, n int, takes, patience time.Duration) (order []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newTurns()
		var done sync.WaitGroup
		var mu sync.Mutex
		for i := range n {
			done.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				one := all.next()
				defer one.end()
				if err := one.take(ctx); err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(takes)
				one.end()
			})
			synctest.Wait()
		}
		done.Wait()
		if len(all.waiting) != 0 {
			t.Errorf("%d wait for ever", len(all.waiting))
		}
	})
	return order
}

func TestTurns(t *testing.T) {
	atOnce := turnsOfOne * runtime.GOMAXPROCS(0)
	t.Run("who came last is the next", func(t *testing.T) {
		order := inTurn(t, 2*atOnce, 100*time.Millisecond, time.Minute)
		if len(order) != 2*atOnce || slices.Max(order[:atOnce]) != atOnce-1 || slices.Max(order[atOnce:]) != 2*atOnce-1 {
			t.Fatalf("turns came in the order %v", order)
		}
	})
	t.Run("those whose time is over wait no longer", func(t *testing.T) {
		if order := inTurn(t, 3*atOnce, 100*time.Millisecond, 150*time.Millisecond); len(order) != 2*atOnce {
			t.Errorf("%d had their turn, want %d", len(order), 2*atOnce)
		}
	})
	t.Run("who does not answer keeps others waiting no longer than a turn lasts", func(t *testing.T) {
		if order := inTurn(t, 2*atOnce, time.Hour, 2*turnMax); len(order) != 2*atOnce {
			t.Errorf("%d had their turn, want %d", len(order), 2*atOnce)
		}
	})
}

// TestRoom: no more are accepted than wait for a fraction of a second, until fewer do, or nobody accepts any more.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, end := newTurns(), make(chan struct{})
		for range all.atOnce {
			if err := all.next().take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		impatient, leave := context.WithCancel(ctx)
		var done sync.WaitGroup
		for range all.most - 1 {
			done.Go(func() {
				one := all.next()
				defer one.end()
				_ = one.take(ctx) // it is not to come
			})
		}
		synctest.Wait()
		all.room(end)
		done.Go(func() {
			one := all.next()
			defer one.end()
			_ = one.take(impatient) // nor is this
		})
		synctest.Wait()
		is := make(chan struct{})
		done.Go(func() {
			all.room(end)
			close(is)
		})
		synctest.Wait()
		select {
		case <-is:
			t.Error("one more is accepted")
		default:
		}
		leave()
		<-is
		cancel()
		close(end)
		all.room(end)
		done.Wait()
	})
}

// leaving is a connection whose other end has gone, and what it has sent is still to be read.
type leaving struct{ net.Conn }

func (leaving) Left() bool { return true }

// leavingListener has all of them be so.
type leavingListener struct{ net.Listener }

func (l leavingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return leaving{c}, err
}

// TestWhoHasLeft: nothing is computed for a connection that is not waited for any more.
func TestWhoHasLeft(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var computed atomic.Int32
	own := certificate(t)
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		computed.Add(1)
		return &own, nil
	}}
	l := New(leavingListener{raw}, config, 10*time.Second, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	all.Go(l.Run)
	if c, err := tls.Dial("tcp", raw.Addr().String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		_ = c.Close()
		t.Error("the handshake was made")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
	if n := computed.Load(); n != 0 {
		t.Errorf("a certificate was looked for %d times", n)
	}
}
