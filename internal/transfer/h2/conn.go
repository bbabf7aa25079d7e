package h2

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"tako.dev/tako/internal/transfer/bucket"
)

const (
	// windowSize is what may be on its way of a call, and of a connection, of who has said nothing else; RFC 9113, section 6.9.2. Nothing else
	// is said here.
	windowSize = 64<<10 - 1
	// giveBack is how much is read before the other end is told that it may send as much more: half, so that it need not wait.
	giveBack = windowSize / 2
	// windowMost is the largest that a window may be; section 6.9.1.
	windowMost = math.MaxInt32
	// frameMax is the largest frame that anybody takes who has not said otherwise, and that is sent and taken here; section 4.2.
	frameMax = 16 << 10
	// headersAtFirst is how much of headers the other end may think is remembered, until it has heard otherwise; section 6.5.2.
	headersAtFirst = 4 << 10
	// updateMin is by how much a window has to be opened for that to be worth a frame: net/http says it for 4 KiB or more, as a rule.
	updateMin = 1 << 10
	// lingerMax is how long a connection is read on that was ended here: what has come and is not read when it is closed would have the kernel
	// take back what was sent and has not arrived.
	lingerMax = time.Second
)

// oddities is how many frames may come that bring nothing on: an agent sends one in a minute, and a relay gives up some calls at once when the
// hosts behind it do.
func oddities() bucket.Rate { return bucket.Rate{Burst: 1000, Second: 50} }

// conn is a connection. All but what is said below belongs to the goroutine of run.
type conn struct {
	server  *Server
	raw     net.Conn
	unpacks *hpack.Decoder  // headers
	head    [headBytes]byte // of the next frame
	odd     bucket.Bucket

	writing    chan struct{} // holds one while raw is written to, which is who has the next two
	introduced bool          // the other end knows that it need remember no headers
	goneAway   bool          // and that it should call elsewhere

	mu      sync.Mutex // guards what follows, and the fields of calls that say so
	calls   []*call
	last    uint32 // the newest call
	open    int    // calls whose end has not been sent
	running int    // handlers, those too whose calls are over
	room    int64  // that the other end has for all calls
	initial int64  // that it has for a new call
	left    int    // that it may send
	give    int    // that was read, and it was not told yet
	leaving bool   // no call is begun any more
	later   later  // what is to be written
	why     error  // it has ended
}

// later is frames that are to be written with the next, or soon.
type later struct {
	frames []byte
	soon   bool // somebody is on the way to write them
}

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{server: s, raw: raw, writing: make(chan struct{}, 1), room: windowSize, initial: windowSize, left: windowSize}
	c.unpacks = hpack.NewDecoder(headersAtFirst, nil)
	return c
}

// run serves the connection until it ends, and says why it did; nil where the other end has closed it.
func (c *conn) run() error {
	err := c.greet()
	for err == nil {
		err = c.next(c.frame)
	}
	var fault http2.ConnectionError
	switch {
	case errors.Is(err, errTooLong):
		c.goAway(http2.ErrCodeEnhanceYourCalm)
	case errors.Is(err, http2.ErrFrameTooLarge):
		c.goAway(http2.ErrCodeFrameSize)
	case errors.As(err, &fault):
		c.goAway(http2.ErrCode(fault))
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.goAway(http2.ErrCodeNo) // it was idle
	}
	c.end(err)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// greet says what is taken here, and hears that the other end speaks HTTP/2; RFC 9113, section 3.4.
func (c *conn) greet() error {
	if err := c.raw.SetReadDeadline(time.Now().Add(c.server.opts.Greeting)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(c.raw, preface[:]); err != nil {
		return err
	}
	if string(preface[:]) != http2.ClientPreface {
		return errors.New("it does not speak HTTP/2")
	}
	err := c.answer(func(f *http2.Framer) error {
		return f.WriteSettings(
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.server.opts.Calls)},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.server.opts.Headers)},
			http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(c.server.opts.HeadersRemembered)},
		)
	})
	if err != nil {
		return err
	}
	return c.next(func(first http2.Frame) error {
		if _, is := first.(*http2.SettingsFrame); !is {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.mu.Lock()
		leaving := c.leaving // it came while the server began to stop
		c.waitLocked()
		c.mu.Unlock()
		if leaving {
			c.goAway(http2.ErrCodeNo)
		}
		return c.frame(first)
	})
}

// waitLocked sets until when the next frame has to come: at any time while there are calls.
func (c *conn) waitLocked() {
	var until time.Time
	switch {
	case len(c.calls) > 0:
	case c.leaving:
		until = time.Now().Add(lingerMax)
	default:
		until = time.Now().Add(c.server.opts.Idle)
	}
	_ = c.raw.SetReadDeadline(until) // an error is that of the next read too
}

// next takes in one frame. The error ends the connection.
func (c *conn) next(take func(http2.Frame) error) error {
	if _, err := io.ReadFull(c.raw, c.head[:]); err != nil {
		return err
	}
	// Only from here on is anything needed to read a frame: most of the time there is none.
	r := c.server.readers.Get().(*reader)
	f, err := r.read(c)
	if err == nil {
		err = take(f)
	}
	if err == nil {
		r.end()
		c.server.readers.Put(r)
	}
	var fault http2.StreamError
	if errors.As(err, &fault) {
		return c.refuse(fault.StreamID, fault.Code)
	}
	return err
}

// frame does what one frame says.
func (c *conn) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.WindowUpdateFrame:
		return c.opened(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if f.IsAck() {
			return c.charge()
		}
		data := f.Data
		return errors.Join(c.charge(), c.answer(func(w *http2.Framer) error { return w.WritePing(true, data) }))
	case *http2.RSTStreamFrame:
		return c.given(f)
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	case *http2.GoAwayFrame:
		return nil // it makes no new calls, and closes when it likes
	}
	return c.charge() // priorities, and what is not known
}

// charge counts a frame that brings nothing on.
func (c *conn) charge() error {
	if c.odd.Take(oddities(), time.Now()) {
		return nil
	}
	return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
}

// settings takes in what the other end takes; RFC 9113, section 6.5.
func (c *conn) settings(f *http2.SettingsFrame) error {
	if err := c.charge(); err != nil {
		return err
	}
	if f.IsAck() {
		// From here on it may refer to so much of what it has sent, and says so itself.
		c.unpacks.SetAllowedMaxDynamicTableSize(uint32(c.server.opts.HeadersRemembered))
		return nil
	}
	if f.HasDuplicates() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	// The rest is about what is not done here: nothing is remembered of headers that are sent, and frames are as short as everybody takes them.
	if err := f.ForeachSetting(http2.Setting.Valid); err != nil {
		return err
	}
	if size, said := f.Value(http2.SettingInitialWindowSize); said {
		if err := c.resize(int64(size)); err != nil {
			return err
		}
	}
	return c.answer(func(w *http2.Framer) error { return w.WriteSettingsAck() })
}

// resize changes the room for each call that is open by as much as that for a new one; section 6.9.2.
func (c *conn) resize(initial int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := initial - c.initial
	c.initial = initial
	for _, one := range c.calls {
		if one.room += by; one.room > windowMost {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		one.moved.signal()
	}
	return nil
}

// opened takes in that the other end has room for more.
func (c *conn) opened(f *http2.WindowUpdateFrame) error {
	if f.Increment < updateMin {
		if err := c.charge(); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.room += int64(f.Increment); c.room > windowMost {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		for _, one := range c.calls {
			one.moved.signal()
		}
		return nil
	}
	if f.StreamID > c.last {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if one := c.callLocked(f.StreamID); one != nil {
		if one.room += int64(f.Increment); one.room > windowMost {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
		}
		one.moved.signal()
	}
	return nil
}

// given ends a call that the other end has given up. Its handler counts until it has ended, too.
func (c *conn) given(f *http2.RSTStreamFrame) error {
	if c.unbegun(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return errors.Join(c.over(f.StreamID, fmt.Errorf("the call was given up: %s", f.ErrCode)), c.charge())
}

// refuse ends a call with which something is wrong.
func (c *conn) refuse(id uint32, code http2.ErrCode) error {
	if err := c.charge(); err != nil {
		return err
	}
	return errors.Join(c.over(id, fmt.Errorf("the call broke the rules: %s", code)), c.reset(id, code))
}

// reset tells the other end that a call is over.
func (c *conn) reset(id uint32, code http2.ErrCode) error {
	return c.answer(func(w *http2.Framer) error { return w.WriteRSTStream(id, code) })
}

// over ends a call, if it is open: its handler hears why.
func (c *conn) over(id uint32, why error) error {
	c.mu.Lock()
	c.last = max(c.last, id) // what is wrong may be how it began
	if one := c.callLocked(id); one != nil {
		c.overLocked(one, why)
	}
	c.mu.Unlock()
	return c.giveWindow()
}

func (c *conn) overLocked(one *call, why error) {
	one.endLocked(why)
	one.uncountLocked()
	c.give += len(one.unread)
	one.unread = nil
	c.calls = slices.DeleteFunc(c.calls, func(other *call) bool { return other == one })
	if len(c.calls) == 0 {
		c.calls = nil
		c.waitLocked()
	}
}

// unbegun says whether a call was not heard of yet: nothing but its headers may come.
func (c *conn) unbegun(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return id > c.last
}

func (c *conn) callLocked(id uint32) *call {
	for _, one := range c.calls { // a handful
		if one.id == id {
			return one
		}
	}
	return nil
}

// giveWindow tells the other end that it may send as much more as was read since it was told: nothing for now as a rule.
func (c *conn) giveWindow() error {
	c.mu.Lock()
	n := c.give
	if n < giveBack {
		c.mu.Unlock()
		return nil
	}
	c.left, c.give = c.left+n, 0
	c.mu.Unlock()
	return c.answer(func(w *http2.Framer) error { return w.WriteWindowUpdate(0, uint32(n)) })
}

// leave has the other end make its next call over another connection. This one ends with the last call.
func (c *conn) leave() {
	c.mu.Lock()
	c.leaving = true
	if len(c.calls) == 0 {
		c.waitLocked()
	}
	c.mu.Unlock()
	c.goAway(http2.ErrCodeNo)
}

// goAway says why no further call is taken; once, but a reason that is an error.
func (c *conn) goAway(code http2.ErrCode) {
	c.mu.Lock()
	c.leaving = true
	last := c.last
	c.mu.Unlock()
	_ = c.send(func(w *frames) error { // an error is that of the connection, which ends
		if c.goneAway && code == http2.ErrCodeNo {
			return nil
		}
		c.goneAway = true
		return w.framer.WriteGoAway(last, code, nil)
	})
}

// broken ends the connection from outside of run.
func (c *conn) broken(why error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = why
	}
	c.mu.Unlock()
	if t, is := c.raw.(*tls.Conn); is {
		_ = t.NetConn().Close() // that of TLS would say so first, to somebody who may not read
		return
	}
	_ = c.raw.Close() // run sees it, and ends the calls
}

// end ends the calls with the connection.
func (c *conn) end(why error) {
	c.mu.Lock()
	if c.why == nil {
		c.why = why
	}
	for _, one := range c.calls {
		one.endLocked(c.why)
	}
	c.calls = nil
	c.mu.Unlock()
	_ = c.raw.Close() // it may be closed already
}
