package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// The local socket: one JSON request and one JSON reply per connection. It lies in the state directory, which only the
// agent's user may enter.
const (
	socketName   = "agent.sock"
	requestMax   = 8 << 10          // bytes: a question and a name
	replyMax     = 256 << 20        // bytes: a report of 100,000 resources
	answerTime   = 10 * time.Second // a loop that is busy loading 100,000 resources takes a second
	questionsMax = 8                // answered at once
)

// request is a question to a running agent.
type request struct {
	Do      string `json:"do"` // status, why, check
	All     bool   `json:"all,omitempty"`
	Subject string `json:"subject,omitempty"`
	Deep    bool   `json:"deep,omitempty"`
}

// reply is its answer: one of the fields.
type reply struct {
	Report *Report  `json:"report,omitempty"`
	Answer *Answer  `json:"answer,omitempty"`
	Error  *Problem `json:"error,omitempty"`
}

// socketPath reaches the socket through an open directory, because the path of a socket holds 107 bytes and that of a
// directory does not end there, unix(7).
func socketPath(dir *os.File) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), socketName)
}

// listen answers questions until the context ends.
func (l *loop) listen(ctx context.Context) error {
	dir, err := os.Open(l.opts.StateDir)
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "open " + l.opts.StateDir, Cause: err}
	}
	defer dir.Close()
	// The lock on the state directory is ours, so a socket that is there was left behind.
	if err := os.Remove(socketPath(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "remove the old socket in " + l.opts.StateDir, Cause: err}
	}
	listener, err := net.Listen("unix", socketPath(dir))
	if err != nil {
		return &reason.Error{Code: reason.StateUnwritable, Doing: "listen in " + l.opts.StateDir, Cause: err}
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var answering sync.WaitGroup
	defer answering.Wait()
	places := make(chan struct{}, questionsMax)
	for {
		conn, err := listener.Accept()
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
			l.converse(ctx, conn)
		})
	}
}

// converse answers one question. Who asks wrongly or goes away only harms himself.
func (l *loop) converse(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if conn.SetDeadline(time.Now().Add(answerTime)) != nil {
		return
	}
	var q request
	var r reply
	if err := json.NewDecoder(io.LimitReader(conn, requestMax)).Decode(&q); err != nil {
		r.Error = problem(&reason.Error{Code: reason.Usage, Doing: "read the question", Cause: err})
	} else if r, err = l.answer(ctx, q); err != nil {
		r.Error = problem(reason.Of(err))
	}
	_ = json.NewEncoder(conn).Encode(r)
}

func (l *loop) answer(ctx context.Context, q request) (r reply, err error) {
	switch q.Do {
	case "check":
		depth := converge.Shallow
		if q.Deep {
			depth = converge.Deep
		}
		_, err = ask(ctx, l, func() (struct{}, error) {
			l.step(ctx, converge.Examine{Depth: depth})
			return struct{}{}, nil
		})
		if err != nil {
			return r, err
		}
		r.Report, err = l.whenQuiet(ctx)
	case "status":
		r.Report, err = ask(ctx, l, func() (*Report, error) { return l.report(q.All), nil })
	case "why":
		r.Answer, err = ask(ctx, l, func() (*Answer, error) { return l.why(q.Subject) })
	default:
		err = &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("answer %q", q.Do), Hint: "the agent is of another version than the command"}
	}
	return r, err
}

// whenQuiet waits until nothing is due, and reports then.
func (l *loop) whenQuiet(ctx context.Context) (*Report, error) {
	for {
		r, err := ask(ctx, l, func() (*Report, error) {
			if !l.engine.Quiet() {
				return nil, nil
			}
			return l.report(false), nil
		})
		// The question waits its turn behind the operations that it waits for, so it is asked a few times at most.
		if err != nil || r != nil || !pause(ctx, time.Millisecond) {
			return r, err
		}
	}
}

// askRunning puts a question to the agent that runs on a state directory.
func askRunning(ctx context.Context, stateDir string, q request) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	notRunning := func(err error) error {
		return &reason.Error{Code: reason.AgentNotRunning, Doing: "ask the agent of " + stateDir, Cause: err,
			Hint: "start it: systemctl start tako-agent, or tako-agent converge -f FILE --watch"}
	}
	dir, err := os.Open(stateDir)
	if err != nil {
		return reply{}, notRunning(err)
	}
	defer dir.Close()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socketPath(dir))
	if err != nil {
		return reply{}, notRunning(errors.Unwrap(err))
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return reply{}, notRunning(err)
	}
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return reply{}, notRunning(err)
	}
	var r reply
	if err := json.NewDecoder(io.LimitReader(conn, replyMax)).Decode(&r); err != nil {
		return reply{}, notRunning(err)
	}
	if r.Error != nil {
		return reply{}, &reason.Error{Code: r.Error.Code, Doing: r.Error.Message, Hint: r.Error.Hint, Evidence: r.Error.Evidence}
	}
	return r, nil
}
