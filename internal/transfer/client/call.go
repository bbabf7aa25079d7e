package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	contentType = "application/cbor"
	// problemMax is above a wire.Problem with texts at their bounds.
	problemMax = 4 << 10
	// callMax is for a call with one answer: the largest, 4 MiB, over a line of 70 kB/s.
	callMax = time.Minute
	// silenceMax is how long an answer that comes in parts may stand still.
	silenceMax = 30 * time.Second
)

var (
	errSilent = errors.New("nothing came for too long")
	// errGarbled is of whoever does not speak as servers and relays do, or at least not now.
	errGarbled = errors.New("what came cannot be read")
)

// unread puts into words why an answer cannot be read.
func (s *server) unread(path string, err error) error {
	doing := "read the answer of https://" + s.address + path
	if reason.Is(err, reason.StateCorrupt) {
		return &reason.Error{Code: reason.TransferWrong, Doing: doing, Cause: fmt.Errorf("%w: %w", errGarbled, errors.Unwrap(err)), Hint: "whatever answers there is no server of this cluster, or is broken: see its log"}
	}
	return explain(doing, err)
}

// post opens a call. The caller closes the body of the answer. The errors are those of explain, and what the server said.
func (s *server) post(ctx context.Context, path, query string, body io.Reader) (*http.Response, error) {
	return s.open(ctx, http.MethodPost, path, query, body)
}

func (s *server) open(ctx context.Context, method, path, query string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url(path, query), body)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: s.doing(path), Cause: err}
	}
	r.Header.Set("Content-Type", contentType)
	answer, err := s.http.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, explain(s.doing(path), err)
	}
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusNoContent {
		return answer, nil
	}
	defer closeBody(answer)
	return nil, s.problem(path, answer)
}

// closeBody ends an answer. What could go wrong then is of no use to anybody.
func closeBody(answer *http.Response) { _ = answer.Body.Close() }

// problem is what a server said why it does not serve a call.
func (s *server) problem(path string, answer *http.Response) error {
	var p wire.Problem
	if err := wire.ReadAll(answer.Body, problemMax, &p); err != nil {
		return &reason.Error{Code: reason.ServerUnreachable, Doing: s.doing(path), Cause: fmt.Errorf("the server says %s", answer.Status)}
	}
	return Problem(s.doing(path), &p)
}

// Problem is what somebody has said why he does not do something, as an error: with the code that he gives, where that is known here.
func Problem(doing string, p *wire.Problem) error {
	code, err := reason.ParseCode(p.Code)
	if err != nil {
		return &reason.Error{Code: reason.ServerUnreachable, Doing: doing, Cause: fmt.Errorf("the server says %s", reason.Clip([]byte(p.Message)))}
	}
	message := p.Message
	if row, known := reason.Lookup(code); known { // said once more, it would be said twice
		if _, cause, found := strings.Cut(message, row.Title+": "); found {
			message = cause
		}
	}
	return &reason.Error{
		Code: code, Doing: doing, Cause: errors.New(reason.Clip([]byte(message))), Hint: reason.Clip([]byte(p.Hint)),
		After: time.Duration(p.RetryAfter) * time.Millisecond,
	}
}

// PauseOf is for how long somebody wants not to be called again, as he says with an error: at most againMax, whatever he says.
func PauseOf(err error) time.Duration { return min(reason.Of(err).After, againMax) }

// exchange makes a call of one message and one answer.
func (s *server) exchange(ctx context.Context, path string, message any, max int64, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	data, err := wire.Encode(message)
	if err != nil {
		return err
	}
	answer, err := s.post(ctx, path, "", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer closeBody(answer)
	if err := wire.ReadAll(answer.Body, max, reply); err != nil {
		return s.unread(path, err)
	}
	return nil
}

// get makes a call that has no message, and returns the answer.
func (s *server) get(ctx context.Context, path, query string, max int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	answer, err := s.open(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer closeBody(answer)
	data, err := io.ReadAll(io.LimitReader(answer.Body, max+1))
	if err == nil && int64(len(data)) > max {
		err = fmt.Errorf("it has more than %d bytes", max)
	}
	if err != nil {
		return nil, explain("read the answer of https://"+s.address+path, err)
	}
	return data, nil
}

// stream is frames for a call of one message.
func stream[M any](ctx context.Context, s *server, path string, message any, silence time.Duration, opened func(), take func(*M) error) error {
	data, err := wire.Encode(message)
	if err != nil {
		return err
	}
	return frames(ctx, s, path, bytes.NewReader(data), silence, opened, take)
}

// frames makes a call whose answer is frames, says when it is answered, and hands each frame to take until something ends it: the error of
// take, io.EOF at the end, or why it broke. It is given up when nothing comes for the time of silence.
func frames[M any](ctx context.Context, s *server, path string, body io.Reader, silence time.Duration, opened func(), take func(*M) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := newWatchdog(silence)
	var guard sync.WaitGroup
	guard.Go(func() { watchdog.run(ctx, cancel) })
	defer guard.Wait()
	defer cancel(nil)
	answer, err := s.post(ctx, path, "", body)
	if err != nil {
		return err
	}
	defer closeBody(answer)
	// A call whose message is still being sent does not see that its context has ended: net/http waits for what it is to send.
	defer context.AfterFunc(ctx, func() { _ = answer.Body.Close() })()
	opened()
	watchdog.beat()
	coming := &beating{r: answer.Body, watchdog: watchdog}
	for {
		var m M
		if err := wire.ReadFrame(coming, &m); err != nil {
			switch cause := context.Cause(ctx); {
			case cause != nil:
				err = cause
			case errors.Is(err, io.EOF):
				return io.EOF
			}
			return s.unread(path, err)
		}
		if err := take(&m); err != nil {
			return err
		}
		watchdog.beat() // what was taken slowly is no silence
	}
}

// watchdog ends what does nothing for a while.
type watchdog struct {
	silence time.Duration
	beats   chan struct{} // has room for one
}

func newWatchdog(silence time.Duration) *watchdog {
	return &watchdog{silence: silence, beats: make(chan struct{}, 1)}
}

func (w *watchdog) beat() {
	select {
	case w.beats <- struct{}{}:
	default:
	}
}

func (w *watchdog) run(ctx context.Context, cancel context.CancelCauseFunc) {
	timer := time.NewTimer(min(w.silence, silenceMax)) // until the answer begins
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.beats:
			timer.Reset(w.silence)
		case <-timer.C:
			cancel(errSilent)
			return
		}
	}
}

// beating is a reader that tells the watchdog what it reads.
type beating struct {
	r        io.Reader
	watchdog *watchdog
}

func (b *beating) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > 0 {
		b.watchdog.beat()
	}
	return n, err
}
