package h2

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// shortMax is how much of an answer is kept until the call ends, or Flush is called: then it goes in one piece with the header.
const shortMax = 4 << 10

// response is the answer to a call, as its handler writes it. The header is that of the moment in which the first byte goes.
type response struct {
	call   *call
	bare   bool // it has a header only
	header http.Header
	status int
	begun  bool   // the header has gone
	short  []byte // written, and not sent
	err    error  // some of it has not gone
	rest   func() // of the call, when the handler has returned; nil: nothing
}

var _ http.Flusher = (*response)(nil)

// Header is to be filled before anything is written.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 4)
	}
	return w.header
}

// WriteHeader says what becomes of the call, once.
func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write writes a piece of the answer. It waits until the other end has room for what is not short.
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.bare {
		return len(p), nil
	}
	if len(w.short)+len(p) <= shortMax {
		w.short = append(w.short, p...)
		return len(p), nil
	}
	if err := w.flush(false); err != nil {
		return 0, err
	}
	if err := w.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush sends what was written.
func (w *response) Flush() { _ = w.FlushError() } // whoever wants to know calls that

// FlushError is Flush for http.ResponseController.
func (w *response) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return w.flush(false)
}

// flush sends what was written; end says that it is all.
func (w *response) flush(end bool) error {
	if !end && w.begun && len(w.short) == 0 {
		return nil
	}
	short := w.short
	w.short = nil
	return w.send(short, end)
}

// finish sends the end of the answer, and says whether all of it has gone.
func (w *response) finish() error {
	w.WriteHeader(http.StatusOK)
	if !w.begun && !w.bare && w.Header()["Content-Length"] == nil && w.status >= 200 && w.status != http.StatusNoContent && w.status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(w.short)))
	}
	return w.flush(true)
}

// send sends a piece of the answer, before it the header if it has not gone, and after it the end if it is all.
func (w *response) send(data []byte, end bool) error {
	for w.err == nil {
		data, w.err = w.sendPiece(data, end)
		if len(data) == 0 {
			break
		}
	}
	return w.err
}

// sendPiece sends as much as there is room for, and returns what is left.
func (w *response) sendPiece(data []byte, end bool) (left []byte, err error) {
	c := w.call
	n, err := c.reserve(len(data))
	if err != nil {
		return data, err
	}
	piece, left := data[:n], data[n:]
	last := end && len(left) == 0
	begins, header := !w.begun, w.header
	if begins {
		w.begun, w.header = true, nil
		if strings.EqualFold(header.Get("Connection"), "close") {
			c.conn.leave() // before the caller can think of another call
		}
	}
	if last {
		c.conn.mu.Lock()
		c.uncountLocked()
		c.conn.mu.Unlock()
	}
	return left, c.conn.send(func(f *frames) error {
		if begins {
			if err := f.header(c, w.status, header, last && n == 0); err != nil || n == 0 {
				return err
			}
		}
		return f.framer.WriteData(c.id, last, piece)
	})
}

// reserve waits until some of so many bytes may be sent, and says how many.
func (c *call) reserve(want int) (n int, err error) {
	late := time.Now().Add(c.conn.server.opts.Write)
	for {
		n, wake, until, err := c.reserveNow(want)
		if n > 0 || want == 0 || err != nil {
			return n, err
		}
		if until.IsZero() || until.After(late) {
			until = late
		}
		if err := wait(wake, until); err != nil {
			return 0, err
		}
	}
}

func (c *call) reserveNow(want int) (n int, wake <-chan struct{}, until time.Time, err error) {
	l := c.conn
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.why != nil {
		return 0, nil, until, c.why
	}
	if !c.sendUntil.IsZero() && !time.Now().Before(c.sendUntil) {
		return 0, nil, until, os.ErrDeadlineExceeded
	}
	n = int(max(0, min(int64(want), frameMax, c.room, l.room)))
	if n == 0 && want > 0 {
		return 0, c.moved.waitLocked(), c.sendUntil, nil
	}
	c.room -= int64(n)
	l.room -= int64(n)
	return n, nil, until, nil
}

// SetReadDeadline is until when the handler waits for the message; the zero time is for ever.
func (w *response) SetReadDeadline(until time.Time) error {
	c := w.call
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.readUntil = until
	c.arrived.signal()
	return nil
}

// SetWriteDeadline is until when it waits for room; the zero time is for as long as one piece may.
func (w *response) SetWriteDeadline(until time.Time) error {
	c := w.call
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.sendUntil = until
	c.moved.signal()
	return nil
}

// frames are what is written at once. They are of nobody, so that a connection has none while it writes nothing; so they remember nothing of
// headers either.
type frames struct {
	out     bytes.Buffer
	framer  *http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
}

// framesMax is how large one may be that is kept.
const framesMax = 2 * frameMax

func newFrames() *frames {
	f := &frames{}
	f.framer = http2.NewFramer(&f.out, nil)
	f.headers = hpack.NewEncoder(&f.block)
	f.headers.SetMaxDynamicTableSize(0)
	_ = f.headers.WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // it says first that it remembers nothing; a buffer takes all
	f.block.Reset()
	return f
}

// forgetsHeaders says in a block of headers that nothing in it is to be remembered; RFC 7541, section 6.3.
const forgetsHeaders = 0x20

// header adds the header of an answer.
func (f *frames) header(c *call, status int, header http.Header, end bool) error {
	f.block.Reset()
	if !c.conn.introduced {
		c.conn.introduced = true
		f.block.WriteByte(forgetsHeaders)
	}
	write := func(name, value string) error {
		return f.headers.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	if err := write(":status", strconv.Itoa(status)); err != nil {
		return err
	}
	if header["Date"] == nil {
		if err := write("date", time.Now().UTC().Format(http.TimeFormat)); err != nil {
			return err
		}
	}
	for name, values := range header {
		if name == "Connection" {
			continue // there is none in HTTP/2: GOAWAY says it
		}
		for _, value := range values {
			if err := write(strings.ToLower(name), value); err != nil {
				return err
			}
		}
	}
	return f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id, BlockFragment: f.block.Bytes(), EndHeaders: true, EndStream: end})
}

// answersMax is how long the frames may be that are to be written soon: those of two thousand pings. Who does not read what he has asked for
// is disconnected.
const answersMax = 32 << 10

// errUnread is of who does not.
var errUnread = errors.New("the other end does not read what it has asked for")

// answer has frames written soon, by others than whoever asks for that: he may be the one who reads, for which the other end may wait while it
// writes, instead of reading.
func (c *conn) answer(fill func(*http2.Framer) error) error {
	f := c.server.writers.Get().(*frames)
	err := fill(f.framer)
	c.mu.Lock()
	c.later.frames = append(c.later.frames, f.out.Bytes()...)
	much, begin := len(c.later.frames) > answersMax, !c.later.soon
	c.later.soon = true
	c.mu.Unlock()
	f.out.Reset()
	c.server.writers.Put(f)
	if much {
		c.broken(errUnread)
		return errUnread
	}
	if begin {
		c.server.tasks.Go(c.sendAnswers)
	}
	return err
}

// sendAnswers writes what is to be written soon, until there is no more.
func (c *conn) sendAnswers() {
	for more := true; more; {
		err := c.send(func(*frames) error { return nil })
		c.mu.Lock()
		more = err == nil && len(c.later.frames) > 0
		c.later.soon = more || err != nil // a connection that has ended is written to no more
		c.mu.Unlock()
	}
}

// send writes frames in one piece, after those that are to be written soon. An error has ended the connection.
func (c *conn) send(fill func(*frames) error) error {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	f := c.server.writers.Get().(*frames)
	c.mu.Lock()
	f.out.Write(c.later.frames)
	c.later.frames = nil
	c.mu.Unlock()
	err := fill(f)
	if err == nil && f.out.Len() > 0 {
		if err = c.raw.SetWriteDeadline(time.Now().Add(c.server.opts.Write)); err == nil {
			_, err = c.raw.Write(f.out.Bytes())
		}
	}
	if f.out.Reset(); f.out.Cap() <= framesMax {
		c.server.writers.Put(f)
	}
	if err != nil {
		c.broken(err)
	}
	return err
}
