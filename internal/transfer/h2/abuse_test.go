package h2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// inBubble runs a test of one server in virtual time.
func inBubble(t *testing.T, opts Options, test func(*testing.T, *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if opts.Handler == nil {
			opts.Handler = http.HandlerFunc(echo)
		}
		b := newBubble(t, opts)
		defer b.stop()
		test(t, b)
	})
}

// parked is a handler that waits for the end of its call, and counts how many do.
type parked struct{ now, most atomic.Int32 }

func (p *parked) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	for n := p.now.Add(1); ; {
		most := p.most.Load()
		if n <= most || p.most.CompareAndSwap(most, n) {
			break
		}
	}
	<-r.Context().Done()
	<-time.After(time.Second) // not every handler ends at once
	p.now.Add(-1)
}

// TestRapidReset: who begins calls and gives them up has no more handlers run than who does not, and is disconnected soon.
func TestRapidReset(t *testing.T) {
	handler := &parked{}
	inBubble(t, Options{Handler: handler, Calls: 4}, func(t *testing.T, b *bubble) {
		p := b.connect()
		sent := 0
		for id := uint32(1); p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.fields(), EndHeaders: true, EndStream: true}) == nil; id += 2 {
			if p.framer.WriteRSTStream(id, http2.ErrCodeCancel) != nil || sent > 10_000 {
				break
			}
			sent++
		}
		p.goesAway(http2.ErrCodeEnhanceYourCalm)
		if n := handler.most.Load(); n > 8 || n < 4 {
			t.Errorf("%d handlers ran at once", n)
		}
		if limit := int(oddities().Burst); sent > limit {
			t.Errorf("%d calls were given up", sent)
		}
	})
}

// TestTooManyCalls: a call above the bound is refused so that it can be made again, and one more fits as soon as one has ended.
func TestTooManyCalls(t *testing.T) {
	var ends sync.Map
	inBubble(t, Options{Calls: 2, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		end := make(chan struct{})
		ends.Store(r.Header.Get("Number"), end)
		<-end
	})}, func(t *testing.T, b *bubble) {
		p := b.connect()
		p.ask(1, true, "number", "1")
		p.ask(3, true, "number", "3")
		p.ask(5, true, "number", "5")
		if s := p.next(); s.kind != http2.FrameRSTStream || s.stream != 5 || s.code != http2.ErrCodeRefusedStream {
			t.Errorf("the third call is answered with %+v", s)
		}
		synctest.Wait()
		end, _ := ends.Load("1")
		close(end.(chan struct{}))
		if s := p.next(); s.stream != 1 || s.status != "200" || !s.end {
			t.Errorf("the first call is answered with %+v", s)
		}
		p.ask(7, true, "number", "7")
		synctest.Wait()
		for _, n := range []string{"3", "7"} {
			end, found := ends.Load(n)
			if !found {
				t.Fatalf("call %s is not served", n)
			}
			close(end.(chan struct{}))
			p.next()
		}
	})
}

// TestFloods: frames that bring nothing on come at a bounded rate, and slowly for ever.
func TestFloods(t *testing.T) {
	for name, flood := range map[string]func(*peer, int) error{
		"pings":          func(p *peer, _ int) error { return p.framer.WritePing(false, [8]byte{}) },
		"answers":        func(p *peer, _ int) error { return p.framer.WritePing(true, [8]byte{}) },
		"settings":       func(p *peer, _ int) error { return p.framer.WriteSettings() },
		"empty data":     func(p *peer, _ int) error { return p.framer.WriteData(1, false, nil) },
		"bytes of room":  func(p *peer, _ int) error { return p.framer.WriteWindowUpdate(0, 1) },
		"priorities":     func(p *peer, _ int) error { return p.framer.WritePriority(1, http2.PriorityParam{StreamDep: 3}) },
		"unknown frames": func(p *peer, _ int) error { return p.framer.WriteRawFrame(0xee, 0, 0, nil) },
		"old calls": func(p *peer, _ int) error {
			return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true, EndStream: true})
		},
		"bad calls": func(p *peer, i int) error {
			return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 3), BlockFragment: p.fields(":method", ""), EndHeaders: true, EndStream: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, b *bubble) {
				p := b.connect()
				p.ask(1, false)
				for i := range 3 * int(oddities().Burst) { // slowly
					if err := flood(p, i); err != nil {
						t.Fatalf("after %d: %v", i, err)
					}
					<-time.After(25 * time.Millisecond)
					if i == 5 {
						p.check(p.framer.WriteData(1, true, []byte("still"))) // the call before the flood
					}
				}
			})
			inBubble(t, Options{}, func(t *testing.T, b *bubble) {
				p := b.connect()
				p.ask(1, false)
				n := 0
				for ; flood(p, n) == nil && n < 100_000; n++ {
				}
				p.goesAway(http2.ErrCodeEnhanceYourCalm)
				if n > 2*int(oddities().Burst) {
					t.Errorf("%d came through", n)
				}
			})
		})
	}
}

// TestContinuationFlood: headers that do not come to their end, in frames with something in them and without.
func TestContinuationFlood(t *testing.T) {
	for name, piece := range map[string][]byte{"empty": nil, "a byte": {0x82}, "long": []byte(strings.Repeat("\x00\x01a\x01b", 3000))} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, b *bubble) {
				p := b.connect()
				p.check(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.fields()}))
				n := 0
				for ; p.framer.WriteContinuation(1, false, piece) == nil && n < 100_000; n++ {
				}
				if n > 10_000 {
					t.Errorf("%d came through", n)
				}
			})
		})
	}
}

// TestHeaderBomb: headers that become long where they are unpacked.
func TestHeaderBomb(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bubble) {
		p := b.connect()
		p.ask(1, true, "long", strings.Repeat("x", 3000)) // which the other end remembers now
		p.next()
		block := append(p.fields(), []byte(strings.Repeat("\xbe", 1000))...) // the newest that is remembered, a thousand times
		p.check(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndHeaders: true, EndStream: true}))
		if s := p.next(); s.status != "431" {
			t.Errorf("it is answered with %+v", s)
		}
	})
}

// TestHeadersRemembered: after it has said so, no more is remembered than that.
func TestHeadersRemembered(t *testing.T) {
	inBubble(t, Options{HeadersRemembered: 100}, func(t *testing.T, b *bubble) {
		p := b.connect()
		p.check(p.framer.WriteSettingsAck())
		p.headers.SetMaxDynamicTableSize(4000)
		p.ask(1, true)
		p.goesAway(http2.ErrCodeCompression)
	})
}

// TestRules: what RFC 9113 forbids costs the call, or the connection.
func TestRules(t *testing.T) {
	block := func(fields ...string) func(*peer) []byte {
		return func(p *peer) []byte { return p.fields(fields...) }
	}
	call := func(id uint32, fields ...string) func(*peer) error {
		return func(p *peer) error {
			return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields...)(p), EndHeaders: true})
		}
	}
	for name, c := range map[string]struct {
		do   []func(*peer) error
		call http2.ErrCode // that the call ends with; 0: the connection does
		conn http2.ErrCode
	}{
		"an even number":           {do: []func(*peer) error{call(2)}, conn: http2.ErrCodeProtocol},
		"no path":                  {do: []func(*peer) error{call(1, ":path", "")}, call: http2.ErrCodeProtocol},
		"no method":                {do: []func(*peer) error{call(1, ":method", "")}, call: http2.ErrCodeProtocol},
		"CONNECT":                  {do: []func(*peer) error{call(1, ":method", "CONNECT")}, call: http2.ErrCodeProtocol},
		"of HTTP/1":                {do: []func(*peer) error{call(1, "connection", "close")}, call: http2.ErrCodeProtocol},
		"te":                       {do: []func(*peer) error{call(1, "te", "gzip")}, call: http2.ErrCodeProtocol},
		"capital letters":          {do: []func(*peer) error{call(1, "Capital", "x")}, call: http2.ErrCodeProtocol},
		"a length that is none":    {do: []func(*peer) error{call(1, "content-length", "-1")}, call: http2.ErrCodeProtocol},
		"two lengths":              {do: []func(*peer) error{call(1, "content-length", "1", "content-length", "2")}, call: http2.ErrCodeProtocol},
		"longer than it said":      {do: []func(*peer) error{call(1, "content-length", "1"), func(p *peer) error { return p.framer.WriteData(1, false, []byte("ab")) }}, call: http2.ErrCodeProtocol},
		"shorter than it said":     {do: []func(*peer) error{call(1, "content-length", "3"), func(p *peer) error { return p.framer.WriteData(1, true, []byte("ab")) }}, call: http2.ErrCodeProtocol},
		"trailers without an end":  {do: []func(*peer) error{call(1), call(1)}, call: http2.ErrCodeProtocol},
		"data of no call":          {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteData(1, false, []byte("a")) }}, conn: http2.ErrCodeProtocol},
		"room of no call":          {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteWindowUpdate(1, 1) }}, conn: http2.ErrCodeProtocol},
		"the end of no call":       {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteRSTStream(1, 0) }}, conn: http2.ErrCodeProtocol},
		"no room":                  {do: []func(*peer) error{call(1), func(p *peer) error { return p.framer.WriteWindowUpdate(1, 0) }}, call: http2.ErrCodeProtocol},
		"too much room for a call": {do: []func(*peer) error{call(1), func(p *peer) error { return p.framer.WriteWindowUpdate(1, 1<<31-1) }}, call: http2.ErrCodeFlowControl},
		"too much room":            {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteWindowUpdate(0, 1<<31-1) }}, conn: http2.ErrCodeFlowControl},
		"too much room by settings": {do: []func(*peer) error{call(1), func(p *peer) error { return p.framer.WriteWindowUpdate(1, 1<<30) },
			func(p *peer) error {
				return p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
			}}, conn: http2.ErrCodeFlowControl},
		"a setting that is none": {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2}) }}, conn: http2.ErrCodeProtocol},
		"a long frame":           {do: []func(*peer) error{func(p *peer) error { return p.framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, frameMax+1)) }}, conn: http2.ErrCodeFrameSize},
		"push": {do: []func(*peer) error{call(1), func(p *peer) error {
			return p.framer.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true})
		}}, conn: http2.ErrCodeProtocol},
		"headers that are none": {do: []func(*peer) error{func(p *peer) error {
			return p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}}, conn: http2.ErrCodeCompression},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Handler: &parked{}}, func(t *testing.T, b *bubble) {
				p := b.connect()
				for _, do := range c.do {
					_ = do(p) // the other end may have closed
				}
				if c.conn != 0 {
					p.goesAway(c.conn)
					return
				}
				if s := p.next(); s.kind != http2.FrameRSTStream || s.stream != 1 || s.code != c.call {
					t.Errorf("it is answered with %+v, want %s", s, c.call)
				}
				p.check(p.framer.WritePing(false, [8]byte{}))
				if s := p.next(); s.kind != http2.FramePing || !s.ack {
					t.Errorf("the connection has not gone on: %+v", s)
				}
			})
		})
	}
}

// TestWindowOfReceiver: what nobody reads is within the windows that were given, and they come back with what was not read.
func TestWindowOfReceiver(t *testing.T) {
	inBubble(t, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}, func(t *testing.T, b *bubble) {
		p := b.connect()
		p.ask(1, false)
		left := windowSize
		for left > 0 {
			n := min(left, frameMax)
			p.check(p.framer.WriteData(1, false, make([]byte, n)))
			left -= n
		}
		synctest.Wait()
		for len(p.come) > 0 {
			if s := <-p.come; s.kind == http2.FrameWindowUpdate {
				t.Errorf("more may come, by %d, and nobody has read", s.grow)
			}
		}
		p.check(p.framer.WriteRSTStream(1, http2.ErrCodeCancel))
		synctest.Wait()
		grown := uint32(0)
		for len(p.come) > 0 {
			if s := <-p.come; s.kind == http2.FrameWindowUpdate && s.stream == 0 {
				grown += s.grow
			}
		}
		if grown != windowSize {
			t.Errorf("of %d bytes %d come back", windowSize, grown)
		}
		p.ask(3, false)
		for range 5 {
			_ = p.framer.WriteData(3, false, make([]byte, frameMax)) // it closes at the fourth
		}
		p.goesAway(http2.ErrCodeFlowControl)
	})
}

// TestWindowOfSender: no more is sent than the other end has room for, byte by byte where it wants that.
func TestWindowOfSender(t *testing.T) {
	const text = "as much as there is room for"
	inBubble(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, text)
	})}, func(t *testing.T, b *bubble) {
		p := b.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		p.ask(1, true)
		synctest.Wait()
		got := ""
		for i := range len(text) {
			p.check(p.framer.WriteWindowUpdate(1, 1))
			for len(got) == i {
				got += p.next().data
			}
		}
		if got != text {
			t.Errorf("%q has come", got)
		}
		p.ask(3, true)
		synctest.Wait()
		p.check(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}))
		if s := p.next(); s.stream != 3 || s.status != "200" {
			t.Errorf("there comes %+v", s)
		}
		if s := p.next(); s.data != text || !s.end {
			t.Errorf("there comes %+v", s)
		}
	})
}

// TestNoRoom: a caller that has no room for its answer has it for as long as one write may take.
func TestNoRoom(t *testing.T) {
	inBubble(t, Options{Write: 7 * time.Second}, func(t *testing.T, b *bubble) {
		p := b.connect(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		began := time.Now()
		p.ask(1, false)
		p.check(p.framer.WriteData(1, true, []byte("a")))
		if s := p.next(); s.kind != http2.FrameRSTStream || s.code != http2.ErrCodeInternal || time.Since(began) != 7*time.Second {
			t.Errorf("after %s comes %+v", time.Since(began), s)
		}
	})
}

// TestSlowReader: who does not read is disconnected at the deadline of one write, whatever he wants to be told, and handlers hear it.
func TestSlowReader(t *testing.T) {
	var heard atomic.Value
	inBubble(t, Options{Write: 7 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := w.Write(make([]byte, shortMax+1))
		heard.Store(err)
		<-r.Context().Done()
	})}, func(t *testing.T, b *bubble) {
		p := b.dial()
		p.write([]byte(http2.ClientPreface))
		began := time.Now()
		for i := range 2 { // the settings, and the acknowledgement of ours; nothing after that
			if _, err := p.framer.ReadFrame(); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				p.check(p.framer.WriteSettings())
			}
		}
		p.ask(1, true)
		<-time.After(8*time.Second - time.Since(began))
		synctest.Wait()
		if err, _ := heard.Load().(error); !errors.Is(err, os.ErrDeadlineExceeded) || b.running != 0 {
			t.Errorf("the handler hears %v, and %d run", err, b.running)
		}
	})
}

// TestReadsBeforeItCanWrite: the other end may write all that it has before it reads anything: two who wait for each other's reading would stand
// still.
func TestReadsBeforeItCanWrite(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, b *bubble) {
		began := time.Now()
		p := b.dial()
		p.write([]byte(http2.ClientPreface))
		p.check(p.framer.WriteSettings())
		for range 100 {
			p.check(p.framer.WritePing(false, [8]byte{}))
		}
		p.ask(1, false)
		p.check(p.framer.WriteData(1, true, make([]byte, frameMax)))
		if time.Since(began) > 0 {
			t.Errorf("it was read after %s", time.Since(began))
		}
		go p.read()
		pings, got := 0, 0
		for s := p.next(); s.err == nil; s = p.next() {
			if s.kind == http2.FramePing {
				pings++
			}
			if got += len(s.data); s.end {
				break
			}
		}
		if pings != 100 || got != frameMax {
			t.Errorf("%d answers to pings, and %d bytes", pings, got)
		}
	})
}

// TestUnreadAnswers: who asks on and on and reads nothing is disconnected before it has cost much.
func TestUnreadAnswers(t *testing.T) {
	inBubble(t, Options{Write: time.Hour}, func(t *testing.T, b *bubble) {
		p := b.dial()
		p.write([]byte(http2.ClientPreface))
		p.check(p.framer.WriteSettings())
		n := 0
		for p.framer.WritePing(false, [8]byte{}) == nil && n < 100_000 {
			<-time.After(50 * time.Millisecond)
			n++
		}
		if most := answersMax/17 + 10; n > most {
			t.Errorf("%d came through", n)
		}
	})
}

// TestIdle: a connection ends that has no call for a while, and one that says nothing from the beginning; none that has one.
func TestIdle(t *testing.T) {
	handler := &parked{}
	inBubble(t, Options{Handler: handler, Idle: time.Minute, Greeting: time.Second}, func(t *testing.T, b *bubble) {
		began := time.Now()
		p := b.dial()
		go p.read()
		if s := p.next(); s.err != nil || s.kind != http2.FrameGoAway || time.Since(began) != time.Second {
			t.Errorf("after %s comes %+v", time.Since(began), s)
		}
		p = b.connect()
		p.ask(1, true)
		<-time.After(time.Hour)
		synctest.Wait()
		if handler.now.Load() != 1 {
			t.Error("a call that waits has ended")
		}
		began = time.Now()
		p.check(p.framer.WriteRSTStream(1, http2.ErrCodeCancel))
		p.goesAway(http2.ErrCodeNo)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("an idle connection ends after %s", took)
		}
	})
}

// TestMessageLate: a message has its time, and the handler hears when that is over.
func TestMessageLate(t *testing.T) {
	var heard atomic.Value
	inBubble(t, Options{Message: 3 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		heard.Store(err)
	})}, func(t *testing.T, b *bubble) {
		p := b.connect()
		p.ask(1, false)
		p.check(p.framer.WriteData(1, false, []byte("half")))
		if s := p.next(); s.status != "200" || !s.end {
			t.Errorf("there comes %+v", s)
		}
		if err, _ := heard.Load().(error); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// TestShutdown: calls that end in time are answered whole, new ones are not begun, and the others are cut off.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBubble(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Second):
				if r.Header.Get("Long") == "" {
					fmt.Fprint(w, "done")
					return
				}
			case <-r.Context().Done():
				return
			}
			<-r.Context().Done()
		})})
		short, long, idle := b.connect(), b.connect(), b.connect()
		short.ask(1, true)
		long.ask(1, true, "long", "1")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var stopping sync.WaitGroup
		stopping.Go(func() { b.Shutdown(ctx) })
		if s := short.next(); s.kind != http2.FrameGoAway || s.code != http2.ErrCodeNo {
			t.Errorf("there comes %+v", s)
		}
		short.ask(3, true)
		if s := short.next(); s.stream != 1 || s.status != "200" {
			t.Errorf("there comes %+v", s)
		}
		if s := short.next(); s.stream != 1 || s.data != "done" || !s.end {
			t.Errorf("there comes %+v", s)
		}
		if s := short.next(); s.err == nil {
			t.Errorf("there comes %+v", s)
		}
		idle.goesAway(http2.ErrCodeNo)
		long.goesAway(http2.ErrCodeNo)
		stopping.Wait()
		b.end()
		if took := time.Since(began); took != 5*time.Second || b.running != 0 || len(b.open) != 0 {
			t.Errorf("after %s, %d handlers and %d connections are left", took, b.running, len(b.open))
		}
	})
}

// TestStrangers: what does not speak HTTP/2 is answered with nothing.
func TestStrangers(t *testing.T) {
	inBubble(t, Options{Greeting: time.Second}, func(t *testing.T, b *bubble) {
		p := b.dial()
		go p.read()
		p.write([]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n")[:len(http2.ClientPreface)])
		if s := p.next(); s.err == nil {
			t.Errorf("there comes %+v", s)
		}
		p = b.dial()
		go p.read()
		p.write([]byte(http2.ClientPreface))
		p.check(p.framer.WritePing(false, [8]byte{})) // settings come first
		p.goesAway(http2.ErrCodeProtocol)
	})
}

// FuzzConnection: whatever comes over a connection, it ends, and nothing is left of it.
func FuzzConnection(f *testing.F) {
	var wire strings.Builder
	framer := http2.NewFramer(&wire, nil)
	var block strings.Builder
	headers := hpack.NewEncoder(&block)
	for _, field := range []string{":method POST", ":scheme https", ":authority here", ":path /", "content-length 3"} {
		name, value, _ := strings.Cut(field, " ")
		if headers.WriteField(hpack.HeaderField{Name: name, Value: value}) != nil {
			f.Fatal("a field is not written")
		}
	}
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}) // a builder takes all
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true})
	_ = framer.WriteData(1, true, []byte("abc"))
	_ = framer.WriteWindowUpdate(1, 1<<20)
	_ = framer.WritePing(false, [8]byte{1})
	_ = framer.WriteRSTStream(1, http2.ErrCodeCancel)
	f.Add([]byte(wire.String()))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := newBubble(t, Options{Handler: http.HandlerFunc(echo), Calls: 3}) // in real time, of which nothing takes any
		p := b.dial()
		go p.read()
		p.write([]byte(http2.ClientPreface))
		_, _ = p.conn.Write(data) // the other end may close meanwhile
		_ = p.conn.Close()
		for range p.come { // until nothing comes any more
		}
		b.stop()
	})
}
