package h2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/net/http2"
)

// call is one that is open: a stream, as RFC 9113 calls it.
type call struct {
	id      uint32
	conn    *conn
	cancel  context.CancelFunc // ends its context
	message int64              // bytes that the caller has said its message has; -1: it has not

	// guarded by conn.mu
	room      int64  // that the other end has
	left      int    // that it may send
	give      int    // that was read, and it was not told yet
	got       int64  // bytes of the message that have come
	unread    []byte // of those
	sent      bool   // the message has come to its end
	counted   bool   // among the open ones
	why       error  // the call is over
	readUntil time.Time
	sendUntil time.Time
	arrived   signal // there is more to read, or another deadline
	moved     signal // there is more room, or another deadline
}

// signal wakes one who waits. It is made when somebody waits for the first time.
type signal chan struct{}

func (s *signal) waitLocked() <-chan struct{} {
	if *s == nil {
		*s = make(signal, 1)
	}
	return *s
}

func (s *signal) signal() {
	select {
	case *s <- struct{}{}:
	default: // nobody waits, or he has been woken already
	}
}

// errOver is of a call whose handler has ended.
var errOver = errors.New("the call is over")

// endLocked has all who wait for the call stop.
func (c *call) endLocked(why error) {
	if c.why == nil {
		c.why = why
	}
	c.cancel()
	c.arrived.signal()
	c.moved.signal()
}

// uncountLocked makes room for another call: the other end may begin one as soon as it has heard of the end of this one.
func (c *call) uncountLocked() {
	if c.counted {
		c.counted = false
		c.conn.open--
	}
}

// headers begins a call, or ends the message of one.
func (c *conn) headers(f *http2.MetaHeadersFrame) error {
	c.mu.Lock()
	one, before := c.callLocked(f.StreamID), f.StreamID <= c.last
	switch {
	case one != nil && one.sent, one != nil && !f.StreamEnded():
		c.mu.Unlock()
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	case one != nil: // trailers
		err := one.sentLocked()
		c.mu.Unlock()
		return err
	case before: // of a call that has ended here, and which the other end has not heard of yet
		c.mu.Unlock()
		return c.charge()
	case f.StreamID%2 == 0:
		c.mu.Unlock()
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case c.leaving:
		c.mu.Unlock()
		return c.charge() // the other end knows by GOAWAY that nobody has looked at it
	}
	c.last = f.StreamID
	most := c.server.opts.Calls
	full := c.open >= most || c.running >= 2*most
	c.mu.Unlock()
	if full || !c.server.enter() {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeRefusedStream}
	}
	r, message, err := request(f)
	if err != nil {
		c.server.leave()
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol, Cause: err}
	}
	c.begin(f, r, message)
	return nil
}

func (c *conn) begin(f *http2.MetaHeadersFrame, r *http.Request, message int64) {
	one := &call{id: f.StreamID, conn: c, message: message, left: windowSize, sent: f.StreamEnded()}
	ctx, cancel := context.WithCancel(c.server.opts.Context(c.raw))
	one.cancel = cancel
	if !one.sent {
		r.Body = body{one}
		one.readUntil = time.Now().Add(c.server.opts.Message)
	}
	r.TLS, r.RemoteAddr = secured(c.raw), c.raw.RemoteAddr().String()
	handler := c.server.opts.Handler
	if f.Truncated {
		handler = http.HandlerFunc(tooLong)
	}
	c.mu.Lock()
	one.room, one.counted = c.initial, true
	c.open++
	c.calls = append(c.calls, one)
	c.running++
	if len(c.calls) == 1 {
		c.waitLocked()
	}
	c.mu.Unlock()
	c.server.tasks.Go(func() { one.serve(handler, r.WithContext(ctx)) })
}

// tooLong answers a call whose headers are.
func tooLong(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
}

// serve has the handler serve the call.
func (c *call) serve(handler http.Handler, r *http.Request) {
	w := &response{call: c, bare: r.Method == http.MethodHead}
	c.do(w, r.URL.Path, func() { handler.ServeHTTP(w, r) })
}

// do has a part of the handler run, and the rest in a goroutine of its own, or ends the call.
func (c *call) do(w *response, path string, part func()) {
	whole := false
	defer func() {
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
			c.conn.server.opts.Log.Error("a call has failed", "call", path, "err", fault, "stack", string(debug.Stack()))
		}
		if rest := w.rest; rest != nil && whole {
			w.rest = nil
			c.conn.server.tasks.Go(func() { c.do(w, path, rest) })
			return
		}
		c.finish(whole && w.finish() == nil)
		c.conn.server.leave()
	}()
	part()
	whole = true
}

// Continue has the rest of a call done when its handler has returned, in a goroutine of its own: so a call that waits for most of its life
// keeps nothing of what was needed to begin it, neither stack nor request. The answer may be written by it as by the handler. Where w is not
// of this package that is done at once.
func Continue(w http.ResponseWriter, rest func()) {
	for {
		switch is := w.(type) {
		case *response:
			is.rest = rest
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = is.Unwrap()
		default:
			rest()
			return
		}
	}
}

// finish ends the call, whose answer is whole or not.
func (c *call) finish(whole bool) {
	l := c.conn
	l.mu.Lock()
	open, sent := c.why == nil, c.sent
	if open {
		l.overLocked(c, errOver)
	}
	l.running--
	l.mu.Unlock()
	c.cancel()
	// An error is that of the connection, which ends.
	switch {
	case !open:
	case !whole:
		_ = l.reset(c.id, http2.ErrCodeInternal)
	case !sent:
		_ = l.reset(c.id, http2.ErrCodeNo) // the rest of the message is of no interest; RFC 9113, section 8.1
	}
	_ = l.giveWindow()
}

// data takes in a piece of a message.
func (c *conn) data(f *http2.DataFrame) error {
	if len(f.Data()) == 0 && !f.StreamEnded() {
		if err := c.charge(); err != nil {
			return err
		}
	}
	err := c.take(f)
	if giving := c.giveWindow(); giving != nil {
		return giving
	}
	return err
}

func (c *conn) take(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	n, data := int(f.Length), f.Data()
	if c.left -= n; c.left < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	one := c.callLocked(f.StreamID)
	if one == nil { // it has ended here, and the other end has not heard of that yet
		c.give += n
		return nil
	}
	one.got += int64(len(data))
	code := http2.ErrCodeNo
	switch one.left -= n; {
	case one.sent:
		code = http2.ErrCodeStreamClosed
	case one.left < 0:
		code = http2.ErrCodeFlowControl
	case one.message >= 0 && one.got > one.message:
		code = http2.ErrCodeProtocol
	}
	if code != http2.ErrCodeNo {
		c.give += n
		return http2.StreamError{StreamID: f.StreamID, Code: code}
	}
	c.give += n - len(data) // padding is of no use to anybody
	one.give += n - len(data)
	one.unread = append(one.unread, data...)
	one.arrived.signal()
	if f.StreamEnded() {
		return one.sentLocked()
	}
	return nil
}

// sentLocked notes that the message has come to its end.
func (c *call) sentLocked() error {
	if c.message >= 0 && c.got != c.message {
		return http2.StreamError{StreamID: c.id, Code: http2.ErrCodeProtocol}
	}
	c.sent = true
	c.arrived.signal()
	return nil
}

// body is the message of a call, as its handler reads it.
type body struct{ call *call }

// Read reads what has come, or waits for it.
func (b body) Read(p []byte) (int, error) {
	c := b.call
	for {
		n, tell, wake, until, err := c.read(p)
		if n > 0 || err != nil || len(p) == 0 {
			if tell > 0 {
				// An error is that of the connection, which ends.
				_ = c.conn.answer(func(w *http2.Framer) error { return w.WriteWindowUpdate(c.id, tell) })
			}
			_ = c.conn.giveWindow()
			return n, err
		}
		if err := wait(wake, until); err != nil {
			return 0, err
		}
	}
}

// read reads what has come. When nothing has, it says what to wait for, and until when.
func (c *call) read(p []byte) (n int, tell uint32, wake <-chan struct{}, until time.Time, err error) {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	switch {
	case c.why != nil:
		return 0, 0, nil, until, c.why
	case len(c.unread) == 0 && c.sent:
		return 0, 0, nil, until, io.EOF
	case len(c.unread) == 0:
		return 0, 0, c.arrived.waitLocked(), c.readUntil, nil
	}
	n = copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
	}
	c.conn.give += n
	if c.give += n; c.give >= giveBack && !c.sent {
		tell = uint32(c.give)
		c.left, c.give = c.left+c.give, 0
	}
	return n, tell, nil, until, nil
}

// Close drops what has not been read.
func (b body) Close() error { return nil } // the end of the call does

// wait waits until it is woken, or too late; the zero time is never.
func wait(wake <-chan struct{}, until time.Time) error {
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-wake:
		return nil
	case <-late:
		return os.ErrDeadlineExceeded
	}
}
