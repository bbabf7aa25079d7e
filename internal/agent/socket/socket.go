// Package socket is how commands ask the agent that runs on a host: over a Unix socket in the state directory, which only the
// agent's user may enter, one JSON question and one JSON reply for each connection.
//
// A Socket that is open takes connections, and Serve answers: who has connected before waits. Serve owns a goroutine for each question that
// is being answered, and waits for them before it returns.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"tako.dev/tako/internal/reason"
)

const (
	socketName   = "agent.sock"
	questionMax  = 8 << 10          // bytes: a question and a name
	replyMax     = 256 << 20        // bytes: a report of 100,000 resources
	answerTime   = 10 * time.Second // a loop that is busy loading 100,000 resources takes a second
	questionsMax = 8                // answered at once
	// breath is how long a listener waits for what the host has run out of, such as file descriptors.
	breath = 100 * time.Millisecond
)

// reply is what goes back: an answer or why there is none.
type reply[A any] struct {
	Answer A        `json:"answer"`
	Error  *refusal `json:"error,omitempty"`
}

// refusal is a reason.Error on its way to another process.
type refusal struct {
	Code     reason.Code `json:"code"`
	Message  string      `json:"message"`
	Hint     string      `json:"hint,omitempty"`
	Evidence string      `json:"evidence,omitempty"`
}

// address reaches the socket through an open directory, because the path of a socket holds 107 bytes and that of a directory
// does not end there, unix(7).
func address(dir *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), socketName)
}

// Socket is where an agent is asked. Use New. It belongs to one goroutine at a time.
type Socket struct {
	stateDir string
	listener net.Listener // nil while it is not open
	dir      *os.File     // by which the socket is removed in the end
}

// New makes the Socket of a state directory, and opens nothing. Its caller owns the directory, so a socket that is there was left behind.
func New(stateDir string) *Socket { return &Socket{stateDir: stateDir} }

// Open opens the socket, if it is not open: from when it returns nil it takes connections, which wait for Serve. The error is
// StateUnwritable. Serve closes it.
func (s *Socket) Open() error {
	if s.listener != nil {
		return nil
	}
	dir, err := os.Open(s.stateDir)
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "open " + s.stateDir, Cause: err}
	}
	if err := os.Remove(address(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = dir.Close() // nothing was written
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove the old socket in " + s.stateDir, Cause: err}
	}
	listener, err := net.Listen("unix", address(dir))
	if err != nil {
		_ = dir.Close()
		return &reason.Error{Code: reason.StateUnwritable, Doing: "listen in " + s.stateDir, Cause: err}
	}
	s.listener, s.dir = listener, dir
	return nil
}

// close removes the socket, and lets go of who has not been heard.
func (s *Socket) close() {
	_ = s.listener.Close() // it may be closed already, and is removed then
	_ = s.dir.Close()
	s.listener, s.dir = nil, nil
}

// Serve opens the socket, if it is not open, answers questions until the context ends, and closes it. Its error is that of Open, or the
// listener's. answer is called from several goroutines, each time with a context of 10 s, and its error goes to who asked.
func Serve[Q, A any](ctx context.Context, s *Socket, answer func(context.Context, Q) (A, error)) error {
	if err := s.Open(); err != nil {
		return err
	}
	defer s.close()
	listener, closed := s.listener, make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		listener.Close()
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	var answering sync.WaitGroup
	defer answering.Wait()
	places := make(chan struct{}, questionsMax)
	for {
		conn, err := listener.Accept()
		if isScarcity(err) && await(ctx, breath) {
			continue // who asks waits until there is some again
		}
		if err != nil {
			return err
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return nil
		}
		answering.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			converse(ctx, conn, answer)
		})
	}
}

// isScarcity reports whether the host has run out of something for now, accept(2).
func isScarcity(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// await waits, and reports whether the context still lives.
func await(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// converse answers one question. Who asks wrongly or goes away only harms himself.
func converse[Q, A any](ctx context.Context, conn net.Conn, answer func(context.Context, Q) (A, error)) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if conn.SetDeadline(time.Now().Add(answerTime)) != nil {
		return
	}
	var q Q
	var r reply[A]
	if err := json.NewDecoder(io.LimitReader(conn, questionMax)).Decode(&q); err != nil {
		r.Error = refused(&reason.Error{Code: reason.Usage, Doing: "read the question", Cause: err})
	} else if r.Answer, err = answer(ctx, q); err != nil {
		r.Error = refused(reason.Of(err))
	}
	_ = json.NewEncoder(conn).Encode(r)
}

func refused(e *reason.Error) *refusal {
	return &refusal{Code: e.Code, Message: e.Error(), Hint: e.Hint, Evidence: e.Evidence}
}

// Ask puts a question to the agent that runs on a state directory. Where none does, or it does not answer in 10 s, the error
// is AgentNotRunning; otherwise it is the agent's own.
func Ask[A any](ctx context.Context, stateDir string, question any) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var r reply[A]
	if err := exchange(ctx, stateDir, question, &r); err != nil {
		return r.Answer, &reason.Error{Code: reason.AgentNotRunning, Doing: "ask the agent of " + stateDir, Cause: err,
			Hint: "start it: systemctl start tako-agent, or tako-agent converge -f FILE --watch"}
	}
	if r.Error != nil {
		return r.Answer, &reason.Error{Code: r.Error.Code, Doing: r.Error.Message, Hint: r.Error.Hint, Evidence: r.Error.Evidence}
	}
	return r.Answer, nil
}

func exchange(ctx context.Context, stateDir string, question, reply any) error {
	dir, err := os.Open(stateDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", address(dir))
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			return op.Err // the address that op names says nothing to a person
		}
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(conn, replyMax)).Decode(reply)
}
