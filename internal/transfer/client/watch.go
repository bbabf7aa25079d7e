package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// watchLong is how long a watch must have been open for its end not to count as another failure.
	watchLong = time.Minute
	// watchShort is how long one must have been open for the server's word to be enough for the next one.
	watchShort = 5 * time.Second
	// againMax is the longest pause that a server may ask for before it is called again.
	againMax = time.Minute
	// questionMax is the longest that an answer may take.
	questionMax = 5 * time.Minute
	// frozenAfter is how long a server is listened to whose heads have expired, when there is another one: at least one heartbeat, after
	// which it is known that no better one comes, and seldom enough where all servers are like that.
	frozenAfter = 2 * time.Minute
	// frozenQuiet is the shortest between two lines of the log about that.
	frozenQuiet = time.Hour
)

// watch keeps a watch open, at one server after the other, until ctx ends.
func (c *Client) watch(ctx context.Context, random *rand.Rand) {
	var backoff core.Backoff
	var said reason.Code
	var frozen time.Time // when it was said last
	// One that comes and goes is left alone for a while, so that it costs the host one change of servers and no more.
	with := core.NewSticky(c.lines.count())
	for ctx.Err() == nil {
		began := time.Now()
		with.Resize(c.lines.count())
		pause, err := c.watchOnce(ctx, c.lines.at(with.Current()))
		if time.Since(began) >= watchLong {
			backoff.Reset()
		}
		if errors.Is(err, errFrozen) {
			if time.Since(frozen) >= frozenQuiet {
				frozen = time.Now()
				c.opts.Log.Warn("leave a server whose head has expired", "server", c.lines.at(with.Current()).address, "hint", "either nothing can be signed, see `tako status`, or whatever answers there keeps newer heads back, or the clock of this host is ahead")
			}
			pause = backoff.Next(random)
			with.Failed(time.Now())
		} else if err != nil && ctx.Err() == nil {
			e := reason.Of(err)
			if e.Code != said {
				c.opts.Log.Warn("watch a server", warning(err, e)...)
			}
			said = e.Code
			c.opts.Links.lost(e)
			poke(c.away)
			c.doubt(err)
			if errors.Is(err, errGarbled) {
				c.send(ctx, core.Garbled{Err: err})
			}
			if errors.Is(err, errSilent) {
				c.lines.HangUp() // another watch would go over the same connection
			}
			pause = max(backoff.Next(random), PauseOf(err))
			with.Failed(time.Now())
		} else {
			said = 0
			if time.Since(began) < watchShort && pause > 0 {
				// A server that ends one watch after the other, whatever it says, is not asked in a loop.
				pause = max(pause, backoff.Next(random))
			}
		}
		wait(ctx, pause, c.renewed)
	}
}

// warning is an error as attributes of a line of the log, with what helps where that is known.
func warning(err error, e *reason.Error) []any {
	if e.Hint == "" {
		return []any{"err", err}
	}
	return []any{"err", err, "hint", e.Hint}
}

// wait waits for a while, or until something comes.
func wait(ctx context.Context, pause time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-early:
	}
}

var (
	errAnother = errors.New("there is another certificate")
	errClosed  = errors.New("the watch was ended")
	errFrozen  = errors.New("it repeats a head that has expired")
)

// watchOnce has one watch open, as long as it goes well. With no error, pause is until the next one; 0 only where that is to have another
// certificate.
func (c *Client) watchOnce(ctx context.Context, s *server) (pause time.Duration, err error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	c.tasks.Go(func() {
		select {
		case <-c.renewed:
			cancel(errAnother)
		case <-ended:
		}
	})
	defer close(ended)
	defer c.reports.watched(nil)
	err = stream(ctx, s, wire.PathWatch, wire.WatchRequest{Protocol: wire.Protocol, Report: c.reports.next(s)}, c.opts.Heartbeat*5/2, c.opts.Links.opened, func(f *wire.Frame) error {
		c.reports.watched(s)
		if f.Echo != 0 {
			c.opts.Heard(f.Echo)
		}
		if f.Again != nil {
			pause = min(max(time.Duration(*f.Again), 1)*time.Millisecond, againMax)
			return errClosed
		}
		if f.Head != nil && c.lines.count() > 1 && c.reports.stale() && time.Since(began) >= frozenAfter {
			return errFrozen
		}
		c.frame(ctx, s, f)
		return nil
	})
	switch {
	case errors.Is(err, errClosed), errors.Is(err, errAnother):
		return pause, nil
	case errors.Is(err, io.EOF):
		err = &reason.Error{Code: reason.ServerUnreachable, Doing: s.doing(wire.PathWatch), Cause: errClosed}
	}
	return 0, err
}

// frame takes in what a watch says.
func (c *Client) frame(ctx context.Context, s *server, f *wire.Frame) {
	if f.Trust > c.opts.Identity.Trust().Current().Number {
		poke(c.trust)
	}
	if len(f.Servers) > 0 {
		c.learn(ctx, f.Servers)
	}
	if f.Head != nil {
		if f.List != nil {
			c.came.Store(&f.List)
		}
		c.send(ctx, core.HeadCame{Signed: f.Head})
		poke(c.reports.lazy) // a head that is known already is a question whether the host is there
	}
	if f.Deposit != nil {
		c.opts.Deposit(*f.Deposit)
	}
	if f.Question != nil {
		c.question(ctx, s, *f.Question)
	}
}

// learn has the host know of all servers, so that it finds another one when the one that it is with is gone. They need no signature: who answers at
// an address shows a certificate of the cluster, and what he says is believed for its signatures.
func (c *Client) learn(ctx context.Context, addresses []string) {
	who, can := c.opts.Identity.(Learner)
	if !can {
		return
	}
	changed, err := who.Learn(addresses)
	if err != nil {
		c.opts.Log.Warn("keep the addresses of servers", "err", err)
	}
	if changed {
		c.opts.Log.Info("this host knows of other servers", "servers", c.opts.Identity.Servers())
		c.lines.renew(c.opts.Identity)
		c.send(ctx, core.SourcesKnown{Count: c.lines.count()})
	}
}

// question answers a question beside the watch. One that comes while as many are open as a server may ask gets no answer.
func (c *Client) question(ctx context.Context, s *server, q wire.Question) {
	select {
	case c.answers <- struct{}{}:
	default:
		return
	}
	c.tasks.Go(func() {
		defer func() { <-c.answers }()
		limit := min(time.Duration(q.Seconds)*time.Second, questionMax)
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := c.answer(ctx, s, q); err != nil && ctx.Err() == nil {
			c.opts.Log.Info("answer a question", "what", q.What, "err", err)
		}
	})
}

// answer sends the answer to a question while the host writes it. What the host refuses before it has written anything is told as such.
func (c *Client) answer(ctx context.Context, s *server, q wire.Question) error {
	r, w := io.Pipe()
	c.tasks.Go(func() {
		err := c.opts.Host.Answer(ctx, q, &bounded{w: w, left: wire.AnswerMax})
		_ = w.CloseWithError(err) // never fails
	})
	defer func() { _ = r.CloseWithError(context.Canceled) }() // never fails
	query := wire.ParamID + "=" + strconv.FormatUint(q.ID, 10)
	body := bufio.NewReader(r)
	var content io.Reader = body
	if _, err := body.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		refusal, w := io.Pipe()
		c.tasks.Go(func() { _ = w.CloseWithError(writeProblem(w, err)) })
		defer func() { _ = refusal.CloseWithError(context.Canceled) }()
		content, query = refusal, query+"&"+wire.ParamRefused+"=1"
	}
	reply, err := s.post(ctx, wire.PathAnswer, query, content)
	if err != nil {
		return err
	}
	closeBody(reply)
	return nil
}

// writeProblem writes why a host does not answer.
func writeProblem(w io.Writer, err error) error {
	e := reason.Of(err)
	data, encodeErr := wire.Encode(wire.Problem{Code: e.Code.String(), Message: wire.Text(e.Error()), Hint: wire.Text(e.Hint)})
	if encodeErr != nil {
		return encodeErr
	}
	_, err = w.Write(data)
	return err
}

// bounded is a writer that takes so many bytes.
type bounded struct {
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, fmt.Errorf("an answer has at most %d bytes", wire.AnswerMax)
	}
	n, err := b.w.Write(p)
	b.left -= n
	return n, err
}
