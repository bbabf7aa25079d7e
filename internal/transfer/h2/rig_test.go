package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// side is a server on a real socket, with a client that is net/http's.
type side struct {
	url    string
	client *http.Client
}

// both has a handler served by this package and by net/http: callers must not be able to tell the two apart.
func both(t *testing.T, handler http.Handler, test func(*testing.T, *side)) {
	t.Helper()
	t.Run("net/http", func(t *testing.T) {
		s := httptest.NewUnstartedServer(handler)
		s.EnableHTTP2 = true
		s.Config.MaxHeaderBytes = 8 << 10
		s.Config.ErrorLog = nil
		s.StartTLS()
		defer s.Close()
		test(t, &side{s.URL, s.Client()})
	})
	t.Run("own", func(t *testing.T) {
		borrowed := httptest.NewUnstartedServer(handler) // its certificate, and a client that trusts it
		borrowed.EnableHTTP2 = true
		borrowed.StartTLS()
		defer borrowed.Close()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, end := serve(t, Options{Handler: handler}, tls.NewListener(l, borrowed.TLS))
		defer end()
		defer s.Close()
		test(t, &side{"https://" + l.Addr().String(), borrowed.Client()})
	})
}

// serve runs a server. The function waits until it has ended, which somebody else has caused.
func serve(t testing.TB, opts Options, l net.Listener) (s *Server, end func()) {
	t.Helper()
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	return s, func() {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
	}
}

// pipes is a listener whose connections are pipes, for time that is not real.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.closed) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// peer is the other end of a connection, which does what no client would. All that comes is read by a goroutine, unless it was told not to.
type peer struct {
	t       testing.TB
	conn    net.Conn
	framer  *http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
	come    chan seen
}

// seen is a frame that has come, or the error at the end.
type seen struct {
	kind   http2.FrameType
	stream uint32
	code   http2.ErrCode // of RST_STREAM and GOAWAY
	status string
	ack    bool
	end    bool
	data   string
	grow   uint32
	err    error
}

// bubble serves by pipes, in a bubble of synctest.
type bubble struct {
	*Server
	t   testing.TB
	l   *pipes
	end func()
}

func newBubble(t testing.TB, opts Options) *bubble {
	t.Helper()
	l := newPipes()
	s, end := serve(t, opts, l)
	return &bubble{s, t, l, sync.OnceFunc(end)}
}

// stop ends it, and fails when something is left.
func (b *bubble) stop() {
	b.Close()
	b.end()
	if b.running != 0 || len(b.open) != 0 {
		b.t.Errorf("%d handlers and %d connections are left", b.running, len(b.open))
	}
}

// connect opens a connection and greets.
func (b *bubble) connect(settings ...http2.Setting) *peer {
	p := b.dial()
	go p.read()
	p.write([]byte(http2.ClientPreface))
	p.check(p.framer.WriteSettings(settings...))
	return p
}

func (b *bubble) dial() *peer {
	near, far := net.Pipe()
	b.l.conns <- far
	p := &peer{t: b.t, conn: near, come: make(chan seen, 100_000)}
	p.framer = http2.NewFramer(near, near)
	p.framer.AllowIllegalWrites = true
	p.framer.ReadMetaHeaders = hpack.NewDecoder(0, nil) // who remembers nothing understands all the same
	p.headers = hpack.NewEncoder(&p.block)
	return p
}

// read reads until the connection ends.
func (p *peer) read() {
	defer close(p.come)
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			p.come <- seen{err: err}
			return
		}
		s := seen{kind: f.Header().Type, stream: f.Header().StreamID}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			s.status, s.end = f.PseudoValue("status"), f.StreamEnded()
		case *http2.DataFrame:
			s.data, s.end = string(f.Data()), f.StreamEnded()
		case *http2.RSTStreamFrame:
			s.code = f.ErrCode
		case *http2.GoAwayFrame:
			s.code = f.ErrCode
		case *http2.SettingsFrame:
			s.ack = f.IsAck()
		case *http2.PingFrame:
			s.ack = f.IsAck()
		case *http2.WindowUpdateFrame:
			s.grow = f.Increment
		}
		p.come <- s
	}
}

// next is the next frame that is about calls, or the end of the connection.
func (p *peer) next() seen {
	p.t.Helper()
	for s := range p.come {
		if s.kind != http2.FrameSettings && s.kind != http2.FrameWindowUpdate || s.err != nil {
			return s
		}
	}
	return seen{err: io.EOF}
}

// goesAway waits for GOAWAY with a code, and for the end.
func (p *peer) goesAway(code http2.ErrCode) {
	p.t.Helper()
	for {
		switch s := p.next(); {
		case s.err != nil:
			p.t.Errorf("the connection ends without GOAWAY: %v", s.err)
			return
		case s.kind == http2.FrameGoAway:
			if s.code != code {
				p.t.Errorf("it goes away with %s, want %s", s.code, code)
			}
			for p.next().err == nil {
			}
			return
		}
	}
}

func (p *peer) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) write(data []byte) {
	p.t.Helper()
	_, err := p.conn.Write(data)
	p.check(err)
}

// ask begins a call, of fields beside those that each call has; end says that it has no message.
func (p *peer) ask(stream uint32, end bool, fields ...string) {
	p.t.Helper()
	p.check(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.fields(fields...), EndHeaders: true, EndStream: end}))
}

// fields is a block of headers.
func (p *peer) fields(more ...string) []byte {
	p.block.Reset()
	method := "POST"
	if len(more) > 0 && more[0] == ":method" {
		method, more = more[1], more[2:]
	}
	all := append([]string{":method", method, ":scheme", "https", ":authority", "here", ":path", "/"}, more...)
	for i := 0; i < len(all); i += 2 {
		p.check(p.headers.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}))
	}
	return p.block.Bytes()
}

// quiet fails the test when goroutines are left of it.
func quiet(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 200 {
			if runtime.NumGoroutine() <= before {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		var b strings.Builder
		stacks := make([]byte, 1<<20)
		b.Write(stacks[:runtime.Stack(stacks, true)])
		t.Errorf("%d goroutines, and before there were %d:\n%s", runtime.NumGoroutine(), before, b.String())
	})
}
