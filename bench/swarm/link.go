package swarm

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// dialMax bounds a connection and its handshake, as for an agent.
	dialMax = 10 * time.Second
	// silentMax is how long a server may say nothing: two and a half of its longest pause between two heads.
	silentMax = 150 * time.Second
	// writeMax is how long a write may get nowhere.
	writeMax = 10 * time.Second
	// frameMax is the largest frame that anybody takes who has not said otherwise; RFC 9113, section 4.2.
	frameMax = 16 << 10
	// windowSize is what may be on its way of a stream, and of a connection, at first; section 6.9.2.
	windowSize = 64<<10 - 1
	// giveBack is how much is taken in before the server is told that it may send as much more.
	giveBack = windowSize / 2
	// headersMax is the hpack table that everybody has who has not said otherwise; RFC 7541.
	headersMax = 4 << 10
)

// link is a connection of HTTP/2 to a server: what a host needs of it. Calls are opened by the host's goroutine, and read by another.
type link struct {
	conn      net.Conn
	authority string
	framer    *http2.Framer

	taken   int            // bytes that were read of the connection since the server was told; of the reader
	takenOf map[uint32]int // the same, of streams

	mu      sync.Mutex // guards what follows, and what writes
	out     bytes.Buffer
	block   bytes.Buffer
	headers *hpack.Encoder
	next    uint32 // stream
	room    int64  // bytes that the server takes before it says more
}

// message is a piece of the answer to a call.
type message struct {
	stream uint32
	status int // of HTTP, where the piece begins the answer
	data   []byte
	end    bool  // nothing follows
	broken error // the server has ended the stream without an end
}

// dial connects from an address; the zero address is any.
func dial(ctx context.Context, from netip.Addr, address string, config *tls.Config) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	raw, err := dialer(from).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is the one
		return nil, err
	}
	l := &link{conn: secure, authority: address, next: 1, room: windowSize, takenOf: map[uint32]int{}}
	l.framer = http2.NewFramer(&l.out, secure)
	l.framer.ReadMetaHeaders = hpack.NewDecoder(headersMax, nil)
	l.headers = hpack.NewEncoder(&l.block)
	l.out.WriteString(http2.ClientPreface)
	if err := l.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}); err != nil {
		return nil, err
	}
	if err := l.flushLocked(); err != nil {
		return nil, err
	}
	return l, nil
}

// dialer has the kernel find out that the other end is gone, as that of an agent does.
func dialer(from netip.Addr) *net.Dialer {
	d := &net.Dialer{Timeout: dialMax, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 4 * time.Second, Count: 2}}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return d
}

// flushLocked writes what was put together, in one record of TLS as a rule.
func (l *link) flushLocked() error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(writeMax)); err != nil {
		return err
	}
	_, err := l.conn.Write(l.out.Bytes())
	l.out.Reset()
	return err
}

// post opens a call with a message.
func (l *link) post(path string, body []byte) (stream uint32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(len(body)) > min(l.room, windowSize) {
		return 0, fmt.Errorf("the server takes %d bytes now, and %s has %d", l.room, path, len(body))
	}
	stream = l.next
	l.next += 2
	l.block.Reset()
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":authority", l.authority}, {":path", path},
		{"content-type", "application/cbor"}, {"content-length", strconv.Itoa(len(body))}, {"user-agent", "Go-http-client/2.0"},
	} {
		if err := l.headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			return 0, err
		}
	}
	if err := l.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: l.block.Bytes(), EndHeaders: true}); err != nil {
		return 0, err
	}
	l.room -= int64(len(body))
	for last := false; !last; {
		piece := body[:min(len(body), frameMax)]
		body = body[len(piece):]
		last = len(body) == 0
		if err := l.framer.WriteData(stream, last, piece); err != nil {
			return 0, err
		}
	}
	return stream, l.flushLocked()
}

// cancel ends a call that nobody waits for any more.
func (l *link) cancel(stream uint32) error {
	return l.write(func() error { return l.framer.WriteRSTStream(stream, http2.ErrCodeCancel) })
}

func (l *link) write(frames func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := frames(); err != nil {
		return err
	}
	return l.flushLocked()
}

// close ends the connection without a word, as a host does that dies.
func (l *link) close() { _ = l.conn.Close() }

// read reads answers and hands them over, until the connection ends or tell does not want any more.
func (l *link) read(tell func(message) bool) error {
	for {
		if err := l.conn.SetReadDeadline(time.Now().Add(silentMax)); err != nil {
			return err
		}
		f, err := l.framer.ReadFrame()
		if err != nil {
			return err
		}
		m, err := l.frame(f)
		if err != nil {
			return err
		}
		if m.stream != 0 && !tell(m) {
			return nil
		}
	}
}

// frame takes one frame in; what is about the connection and not about a call makes no message.
func (l *link) frame(f http2.Frame) (message, error) {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		status, err := strconv.Atoi(f.PseudoValue("status"))
		if err != nil {
			return message{}, fmt.Errorf("an answer without a status: %w", err)
		}
		return message{stream: id, status: status, end: f.StreamEnded()}, nil
	case *http2.DataFrame:
		m := message{stream: id, data: bytes.Clone(f.Data()), end: f.StreamEnded()}
		return m, l.took(id, int(f.Header().Length), m.end)
	case *http2.RSTStreamFrame:
		return message{stream: id, end: true, broken: fmt.Errorf("the server has ended a call: %s", f.ErrCode)}, nil
	case *http2.GoAwayFrame:
		return message{}, fmt.Errorf("the server ends the connection: %s", f.ErrCode)
	case *http2.SettingsFrame:
		if f.IsAck() {
			return message{}, nil
		}
		if size, said := f.Value(http2.SettingHeaderTableSize); said {
			l.mu.Lock()
			l.headers.SetMaxDynamicTableSizeLimit(size)
			l.mu.Unlock()
		}
		return message{}, l.write(l.framer.WriteSettingsAck)
	case *http2.PingFrame:
		if f.IsAck() {
			return message{}, nil
		}
		return message{}, l.write(func() error { return l.framer.WritePing(true, f.Data) })
	case *http2.WindowUpdateFrame:
		if id == 0 {
			l.mu.Lock()
			l.room += int64(f.Increment)
			l.mu.Unlock()
		}
	}
	return message{}, nil
}

// took notes what was read, and tells the server now and then that it may send as much more.
func (l *link) took(stream uint32, n int, end bool) error {
	l.taken += n
	l.takenOf[stream] += n
	of := l.takenOf[stream]
	if end {
		delete(l.takenOf, stream)
	}
	all := l.taken >= giveBack
	one := !end && of >= giveBack
	if !all && !one {
		return nil
	}
	return l.write(func() error {
		if all {
			if err := l.framer.WriteWindowUpdate(0, uint32(l.taken)); err != nil {
				return err
			}
			l.taken = 0
		}
		if !one {
			return nil
		}
		l.takenOf[stream] = 0
		return l.framer.WriteWindowUpdate(stream, uint32(of))
	})
}
