// Package socket is how commands ask the agent that runs on a host: over a Unix socket in the state directory, which only the
// agent's user may enter, one JSON question and one JSON reply for each connection.
//
// Listen owns a goroutine for each question that is being answered, and waits for them before it returns.
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

// Listen answers questions in a state directory until the context ends; its error is the listener's then. Its caller owns the
// directory, so a socket that is there was left behind. answer is called from several goroutines, each time with a context of
// 10 s, and its error goes to who asked.
func Listen[Q, A any](ctx context.Context, stateDir string, answer func(context.Context, Q) (A, error)) error {
	dir, err := os.Open(stateDir)
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "open " + stateDir, Cause: err}
	}
	defer dir.Close()
	if err := os.Remove(address(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove the old socket in " + stateDir, Cause: err}
	}
	listener, err := net.Listen("unix", address(dir))
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "listen in " + stateDir, Cause: err}
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
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
