package h2

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// echo answers with the message.
func echo(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }

func (s *side) post(t *testing.T, path string, body io.Reader) (*http.Response, []byte) {
	t.Helper()
	answer, err := s.client.Post(s.url+path, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, data
}

func TestSizes(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(echo), func(t *testing.T, s *side) {
		for _, n := range []int{0, 1, shortMax, shortMax + 1, frameMax, windowSize, windowSize + 1, 5 << 20} {
			sent := bytes.Repeat([]byte("0123456789abcdef-"), n/17+1)[:n]
			answer, got := s.post(t, "/", bytes.NewReader(sent))
			if answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 || !bytes.Equal(got, sent) {
				t.Errorf("%s of %d bytes comes back as %d bytes, %s", answer.Proto, n, len(got), answer.Status)
			}
			if short := n <= shortMax; short && answer.ContentLength != int64(n) {
				t.Errorf("of %d bytes it says %d", n, answer.ContentLength)
			}
		}
	})
}

func TestAtOnce(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(echo), func(t *testing.T, s *side) {
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				sent := strings.Repeat(fmt.Sprint(i, " "), 1+i*300)
				if _, got := s.post(t, "/", strings.NewReader(sent)); string(got) != sent {
					t.Errorf("call %d gets %d bytes of %d", i, len(got), len(sent))
				}
			})
		}
		all.Wait()
	})
}

func TestRequest(t *testing.T) {
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Several", "one")
		w.Header().Add("Several", "two")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK) // too late
		fmt.Fprint(w, r.Method, " ", r.URL.Path, " ", r.URL.RawQuery, " ", r.RequestURI, " ", r.Host == r.Header.Get("Expect-Host"), " ", r.Header["Of-Caller"], " ", r.ContentLength, " ", r.Proto, " ",
			r.TLS != nil && r.TLS.NegotiatedProtocol == "h2", " ", strings.HasPrefix(r.RemoteAddr, "127.0.0.1:"))
	}), func(t *testing.T, s *side) {
		r, err := http.NewRequest(http.MethodPut, s.url+"/a%2fb/c?d=e&f", strings.NewReader("five!"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Of-Caller"] = []string{"1", "2"}
		r.Header.Set("Expect-Host", r.URL.Host)
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		got, err := io.ReadAll(answer.Body)
		const want = "PUT /a/b/c d=e&f /a%2fb/c?d=e&f true [1 2] 5 HTTP/2.0 true true"
		if err != nil || string(got) != want || answer.StatusCode != http.StatusTeapot {
			t.Errorf("%d: %s, %v, want %s", answer.StatusCode, got, err, want)
		}
		if all := answer.Header["Several"]; len(all) != 2 || all[0] != "one" || all[1] != "two" {
			t.Errorf("the answer says %v", all)
		}
		if _, err := http.ParseTime(answer.Header.Get("Date")); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutBody(t *testing.T) {
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := r.Body.Read(make([]byte, 1))
		if n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("a call without a message has %d bytes, %v", n, err)
		}
		if r.URL.Path == "/nothing" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Length", "9")
		fmt.Fprint(w, "not for HE")
	}), func(t *testing.T, s *side) {
		answer, err := s.client.Head(s.url)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.ContentLength != 9 {
			t.Errorf("HEAD says %d bytes", answer.ContentLength)
		}
		answer, err = s.client.Get(s.url + "/nothing")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusNoContent {
			t.Error(answer.Status)
		}
	})
}

// TestBothWays: an answer begins before its message has ended, and each piece comes when it was flushed.
func TestBothWays(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := bufio.NewScanner(r.Body)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for lines.Scan() {
			fmt.Fprintln(w, lines.Text())
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	}), func(t *testing.T, s *side) {
		out, in := io.Pipe()
		answer, err := s.client.Post(s.url, "", out)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewReader(answer.Body)
		for i := range 1000 {
			fmt.Fprintln(in, i)
			if got, err := lines.ReadString('\n'); err != nil || got != fmt.Sprintln(i) {
				t.Fatalf("after %d comes %q, %v", i, got, err)
			}
		}
		_ = in.Close()
		if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
			t.Errorf("at the end come %q, %v", rest, err)
		}
	})
}

// TestGivenUp: a handler hears that its caller has gone, in whatever it waits, and others do not.
func TestGivenUp(t *testing.T) {
	quiet(t)
	began, heard := make(chan struct{}, 1), make(chan error, 2)
	both(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			return
		}
		began <- struct{}{}
		_, err := io.ReadAll(r.Body)
		heard <- err
		<-r.Context().Done()
		heard <- r.Context().Err()
	}), func(t *testing.T, s *side) {
		out, in := io.Pipe()
		defer in.Close()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, out)
		if err != nil {
			t.Fatal(err)
		}
		var calling sync.WaitGroup
		calling.Go(func() {
			if answer, err := s.client.Do(r); err == nil {
				answer.Body.Close()
			}
		})
		<-began
		cancel()
		if err := <-heard; err == nil {
			t.Error("the message has come to its end")
		}
		if err := <-heard; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		calling.Wait()
		s.post(t, "/other", nil)
	})
}

// TestPanic: a handler that fails costs its own call.
func TestPanic(t *testing.T) {
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}), func(t *testing.T, s *side) {
		answer, err := s.client.Get(s.url + "/fails")
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
		}
		if err == nil {
			t.Error("half an answer counts as one")
		}
		s.post(t, "/", nil)
	})
}

// TestUnread: an answer comes that does not wait for its message, and later calls have the connection's whole window.
func TestUnread(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/echo" {
			echo(w, r)
			return
		}
		fmt.Fprint(w, "no")
	}), func(t *testing.T, s *side) {
		for range 20 {
			if _, got := s.post(t, "/", bytes.NewReader(make([]byte, 1<<20))); string(got) != "no" {
				t.Errorf("the answer is %q", got)
			}
		}
		if _, got := s.post(t, "/echo", bytes.NewReader(make([]byte, 1<<20))); len(got) != 1<<20 {
			t.Errorf("%d bytes come back", len(got))
		}
	})
}

// TestDeadlines: a handler waits for its caller for as long as it says, and can be woken.
func TestDeadlines(t *testing.T) {
	quiet(t)
	const soon = 50 * time.Millisecond
	heard := make(chan error, 1)
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		switch r.URL.Path {
		case "/read":
			if err := control.SetReadDeadline(time.Now().Add(soon)); err != nil {
				t.Error(err)
			}
			_, err := io.ReadAll(r.Body)
			heard <- err
		case "/woken":
			var waking sync.WaitGroup
			waking.Go(func() {
				<-time.After(soon)
				_ = control.SetReadDeadline(time.Now())
			})
			_, err := io.ReadAll(r.Body)
			waking.Wait()
			heard <- err
		case "/write":
			if err := control.SetWriteDeadline(time.Now().Add(soon)); err != nil {
				t.Error(err)
			}
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 1<<20))
			}
			heard <- err
		}
	}), func(t *testing.T, s *side) {
		for _, path := range []string{"/read", "/woken", "/write"} {
			out, in := io.Pipe()
			var calling sync.WaitGroup
			finished := make(chan struct{})
			calling.Go(func() {
				answer, err := s.client.Post(s.url+path, "", out)
				if err == nil {
					<-finished
					answer.Body.Close()
				}
			})
			if err := <-heard; !errors.Is(err, os.ErrDeadlineExceeded) && path != "/write" || err == nil {
				t.Errorf("%s: %v", path, err)
			}
			close(finished)
			_ = in.Close()
			calling.Wait()
		}
	})
}

// TestLongHeaders: what is longer than allowed is refused, and the connection goes on.
func TestLongHeaders(t *testing.T) {
	both(t, http.HandlerFunc(echo), func(t *testing.T, s *side) {
		for _, n := range []int{7 << 10, 9 << 10} {
			r, err := http.NewRequest(http.MethodGet, s.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Long", strings.Repeat("x", n))
			want := http.StatusOK
			if n > 8<<10 {
				want = http.StatusRequestHeaderFieldsTooLarge
			}
			answer, err := s.client.Do(r)
			if err != nil {
				if want == http.StatusOK {
					t.Error(err)
				}
				continue // net/http's client believes what the server has said that it takes
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("headers of %d bytes: %s", n, answer.Status)
			}
		}
		s.post(t, "/", nil)
	})
}

// TestConnectionClose: an answer that says so is the last one of its connection.
func TestConnectionClose(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, r.RemoteAddr)
	}), func(t *testing.T, s *side) {
		before := ""
		for range 5 {
			answer, got := s.post(t, "/", nil)
			if string(got) == before || answer.Header.Get("Connection") != "" {
				t.Errorf("two calls over one connection, %s", before)
			}
			before = string(got)
		}
	})
}

// wrapped is a writer around another, as handlers put them.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestContinue: the rest of a call writes to its answer, in its turn, has its context, fails as the handler does, and ends the call.
func TestContinue(t *testing.T) {
	quiet(t)
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one ")
		ctx, path := r.Context(), r.URL.Path
		Continue(wrapped{w}, func() {
			if ctx.Err() != nil {
				t.Error("its context has ended")
			}
			fmt.Fprint(w, "two ")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			if path == "/fails" {
				panic(http.ErrAbortHandler)
			}
			Continue(w, func() { fmt.Fprint(w, "three") })
		})
	}), func(t *testing.T, s *side) {
		if _, got := s.post(t, "/", nil); string(got) != "one two three" {
			t.Errorf("the answer is %q", got)
		}
		answer, err := s.client.Get(s.url + "/fails")
		if err == nil {
			_, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
		}
		if err == nil {
			t.Error("half an answer counts as one")
		}
	})
}

// hoarse is a listener that fails a few times first.
type hoarse struct {
	*pipes
	fails int
}

// full is an error that will be over in a moment.
type full struct{ error }

func (full) Temporary() bool { return true }

func (h *hoarse) Accept() (net.Conn, error) {
	if h.fails--; h.fails >= 0 {
		return nil, full{errors.New("too many open files")}
	}
	return h.pipes.Accept()
}

// TestAcceptAgain: a connection that cannot be accepted now costs a pause; any other error ends the server.
func TestAcceptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := &hoarse{newPipes(), 10}
		s, end := serve(t, Options{Handler: http.HandlerFunc(echo)}, l)
		near, far := net.Pipe()
		l.conns <- far
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("after ten errors it accepts after %s", took)
		}
		_ = near.Close()
		s.Close()
		end()
	})
	s, err := New(Options{Handler: http.HandlerFunc(echo)})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := s.Serve(listening{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("a server without a handler")
	}
}

// listening is a listener that does not.
type listening struct{ err error }

func (l listening) Accept() (net.Conn, error) { return nil, l.err }
func (listening) Close() error                { return nil }
func (listening) Addr() net.Addr              { return &net.UnixAddr{} }
