package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

type question struct{ Say string }

type answer struct{ Said string }

// echo answers with what it was asked, and refuses "no".
func echo(_ context.Context, q question) (answer, error) {
	if q.Say == "no" {
		return answer{}, &reason.Error{Code: reason.ResourceUnknown, Doing: "explain no", Hint: "ask something else", Evidence: "evidence"}
	}
	return answer{Said: q.Say}, nil
}

// opened is the socket in a directory.
func opened(t *testing.T, dir string) *Socket {
	t.Helper()
	s := New(dir)
	if err := s.Open(); err != nil {
		t.Fatal(err)
	}
	return s
}

// listening answers in a directory for the time of a test.
func listening(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, ended := opened(t, dir), make(chan error, 1)
	go func() { ended <- Serve(ctx, s, echo) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func TestAskAndAnswer(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir)
	for _, say := range []string{"hello", strings.Repeat("x", questionMax-100)} {
		if a, err := Ask[answer](t.Context(), dir, question{say}); err != nil || a.Said != say {
			t.Errorf("asked %.10q, got %.10q, %v", say, a.Said, err)
		}
	}
	_, err := Ask[answer](t.Context(), dir, question{"no"})
	var e *reason.Error
	if !errors.As(err, &e) || e.Code != reason.ResourceUnknown || e.Hint != "ask something else" || e.Evidence != "evidence" || !strings.Contains(e.Doing, "explain no") {
		t.Errorf("the refusal came as %+v", err)
	}
}

// TestWhoAsksWronglyHarmsHimselfOnly: what is no question gets a word back, and others are answered after it.
func TestWhoAsksWronglyHarmsHimselfOnly(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir)
	for name, text := range map[string]string{
		"not JSON": "hello\n", "another type": "[1]", "deep": strings.Repeat("[", questionMax), "endless": `{"say":"` + strings.Repeat("x", 2*questionMax),
		"binary": "\x00\xff",
	} {
		conn, err := net.Dial("unix", filepath.Join(dir, socketName))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text) // it may be refused before it has been read
		b, _ := io.ReadAll(conn)
		if !strings.Contains(string(b), reason.Usage.String()) {
			t.Errorf("%s: replied %q", name, b)
		}
		conn.Close()
	}
	silent, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if a, err := Ask[answer](t.Context(), dir, question{"still there?"}); err != nil || a.Said == "" {
		t.Errorf("after all that: %v", err)
	}
}

// TestNoDescriptorsForAWhile: who asks while there are none left is answered when there are again, and so are those after him.
func TestNoDescriptorsForAWhile(t *testing.T) {
	dir := t.TempDir()
	listening(t, dir)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(fd) + 1 // it got the lowest number that was free, so this leaves none
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: filepath.Join(dir, socketName)})
	<-time.After(50 * time.Millisecond)
	if err := errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)); err != nil {
		t.Fatal(err)
	}
	early := os.NewFile(uintptr(fd), "early")
	defer early.Close()
	if _, err := io.WriteString(early, `{"Say":"early"}`); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(early); err != nil || !strings.Contains(string(b), "early") {
		t.Errorf("replied %q, %v", b, err)
	}
	if a, err := Ask[answer](t.Context(), dir, question{"late"}); err != nil || a.Said != "late" {
		t.Errorf("later: %+v, %v", a, err)
	}
}

// TestNobodyAnswers: whatever there is instead of an agent, the error says that none runs and how to start one.
func TestNobodyAnswers(t *testing.T) {
	impostor := func(reply string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			l, err := net.Listen("unix", filepath.Join(dir, socketName))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				if conn, err := l.Accept(); err == nil {
					_, _ = io.WriteString(conn, reply)
					conn.Close()
				}
			}()
		}
	}
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"no directory": func(t *testing.T, dir string) { os.Remove(dir) },
		"no socket":    func(*testing.T, string) {},
		"left behind": func(t *testing.T, dir string) {
			l, err := net.Listen("unix", filepath.Join(dir, socketName))
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			l.Close()
		},
		"a file":      func(t *testing.T, dir string) { os.WriteFile(filepath.Join(dir, socketName), nil, 0o600) },
		"hangs up":    impostor(""),
		"half a word": impostor(`{"answer":{"Sai`),
		"no JSON":     impostor("no\n"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			prepare(t, dir)
			a, err := Ask[answer](t.Context(), dir, question{"hello"})
			if !reason.Is(err, reason.AgentNotRunning) || reason.Of(err).Hint == "" || reason.Of(err).Cause == nil {
				t.Errorf("answer %+v, error %v", a, err)
			}
		})
	}
}

func TestSocketOfALongDirectoryThatWasLeftBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listening(t, dir)
	if a, err := Ask[answer](t.Context(), dir, question{"far away"}); err != nil || a.Said != "far away" {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestOpenTakesQuestions: who asks between Open and Serve is answered by Serve.
func TestOpenTakesQuestions(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	conn, err := net.Dial("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, `{"Say":"early"}`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, s, echo) }()
	defer func() { cancel(); <-ended }()
	if b, err := io.ReadAll(conn); err != nil || !strings.Contains(string(b), "early") {
		t.Errorf("replied %q, %v", b, err)
	}
}

// TestEndBeforeServe: where the end comes before the first answer, who has asked is answered or let go, and nothing is left; it can be opened
// anew.
func TestEndBeforeServe(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := New(dir)
	for range 2 {
		if err := s.Open(); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", filepath.Join(dir, socketName))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, `{"Say":"early"}`); err != nil {
			t.Fatal(err)
		}
		_ = Serve(ctx, s, echo) // whether it sees the end or what it has closed
		if b, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("who has asked still waits, with %q", b)
		}
		if _, err := os.Lstat(filepath.Join(dir, socketName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	}
}

// TestWhatIsInTheWay: what keeps a socket from being opened is told, and when it is gone Serve opens it.
func TestWhatIsInTheWay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := New(dir)
	for name, put := range map[string]string{"no directory": "", "a directory": filepath.Join(dir, socketName, "in the way")} {
		if put != "" {
			if err := os.MkdirAll(put, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.Open(); !reason.Is(err, reason.StateUnwritable) {
				t.Errorf("%s: opened with %v", name, err)
			}
		}
		if err := Serve(t.Context(), s, echo); !reason.Is(err, reason.StateUnwritable) {
			t.Errorf("%s: served with %v", name, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, s, echo) }()
	defer func() { cancel(); <-ended }()
	for deadline := time.After(time.Minute); ; {
		a, err := Ask[answer](ctx, dir, question{"there?"})
		if a.Said == "there?" {
			return
		}
		select {
		case <-deadline:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestServeWaitsForAnswers: who was being answered when the end came gets his answer, and nothing is left when Serve returns.
func TestServeWaitsForAnswers(t *testing.T) {
	dir := t.TempDir()
	begun, finish := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	s, ended := opened(t, dir), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, s, func(ctx context.Context, q question) (answer, error) {
			close(begun)
			<-ctx.Done()
			<-finish
			return answer{Said: q.Say}, nil
		})
	}()
	asked := make(chan string, 1)
	go func() {
		a, err := Ask[answer](context.Background(), dir, question{"wait"})
		asked <- fmt.Sprint(a.Said, " ", err)
	}()
	<-begun
	cancel()
	select {
	case err := <-ended:
		t.Errorf("Serve returned before the answer was finished: %v", err)
		ended <- err
	case <-time.After(50 * time.Millisecond): // one that does not wait returns at once
	}
	close(finish)
	if got := <-asked; got != "wait <nil>" {
		t.Errorf("asked in the end, got %q", got)
	}
	<-ended
	if _, err := os.Lstat(filepath.Join(dir, socketName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
