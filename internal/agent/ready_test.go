package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/reason"
)

// told lets the agent tell a test what it tells systemd. The function that it returns has what was told since it was called last.
func (s *site) told() func() []string {
	s.t.Helper()
	at := s.path("notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	must(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	s.t.Setenv("NOTIFY_SOCKET", at)
	raw, err := conn.SyscallConn()
	must(s.t, err)
	return func() (states []string) {
		// What was sent is there when sending returns, so nothing has to be waited for.
		_ = raw.Read(func(fd uintptr) bool {
			for b := make([]byte, 100); ; {
				n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_DONTWAIT)
				if err != nil {
					return true
				}
				states = append(states, string(b[:n]))
			}
		})
		return states
	}
}

// TestReadyMeansThatItCanBeAsked: when the agent has said that it is ready, and does not serve yet, it can be connected to, and answers then.
func TestReadyMeansThatItCanBeAsked(t *testing.T) {
	s := newSite(t)
	told := s.told()
	type early struct {
		told []string
		conn net.Conn
		err  error
	}
	asked := make(chan early, 1)
	// The first step tells of what does not count on this host, from the loop.
	s.declare("a", "off|when: node.labels['role'] == 'db'")
	first := func() {
		e := early{told: told()}
		e.conn, e.err = net.Dial("unix", filepath.Join(s.opts.StateDir, "agent.sock"))
		asked <- e
	}
	var once sync.Once
	s.opts.OnLine = func(Line) { once.Do(first) }
	// One that was killed has left its socket behind.
	must(t, os.Mkdir(s.opts.StateDir, 0o700))
	left, err := net.Listen("unix", filepath.Join(s.opts.StateDir, "agent.sock"))
	must(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, left.Close())
	s.watch()
	e := <-asked
	if !slices.Contains(e.told, "READY=1") {
		t.Fatalf("asked too early to say anything: it had told %q", e.told)
	}
	if e.err != nil {
		t.Fatalf("it had said that it is ready: %v", e.err)
	}
	defer e.conn.Close()
	must(t, e.conn.SetDeadline(time.Now().Add(time.Minute)))
	must(t, json.NewEncoder(e.conn).Encode(local.Request{Do: "status"}))
	var answer struct{ Answer local.Reply }
	must(t, json.NewDecoder(e.conn).Decode(&answer))
	if r := answer.Answer.Report; r == nil || r.PID != os.Getpid() {
		t.Errorf("it answers %+v", r)
	}
}

// TestReadyThoughItCannotBeAsked: an agent whose socket cannot be opened keeps the host, and says what is wrong.
func TestReadyThoughItCannotBeAsked(t *testing.T) {
	s := newSite(t)
	s.declare("a")
	told := s.told()
	must(t, os.MkdirAll(filepath.Join(s.opts.StateDir, "agent.sock", "in the way"), 0o700))
	troubles := make(chan *Problem, 10)
	kept := make(chan struct{})
	s.opts.OnLine = func(l Line) {
		if l.Trouble != nil {
			troubles <- l.Trouble
		} else {
			close(kept)
		}
	}
	opts := s.opts
	opts.Watch = true
	a, err := New(opts)
	must(t, err)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- a.Run(ctx) }()
	if p := <-troubles; p.Code != reason.StateUnwritable {
		t.Errorf("told of %+v", p)
	}
	<-kept
	s.holds("a", "text of a")
	if got := told(); !slices.Equal(got, []string{"READY=1"}) {
		t.Errorf("it told %q", got)
	}
	cancel()
	must(t, <-ended)
	if len(troubles) > 0 {
		t.Errorf("told once more of %+v", <-troubles)
	}
}
