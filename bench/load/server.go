package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// readyMax is how long a server may take until it answers; it needs a second.
	readyMax = 2 * time.Minute
	// serverStopMax is how long it may take to stop, with watches open.
	serverStopMax = 30 * time.Second
)

// Server is a running tako server.
type Server struct {
	PID  int
	Took time.Duration // from its start until it said that it is ready

	dir   string // its data
	cmd   *exec.Cmd
	said  *saying
	ended chan error // gets one value, when it has ended
	// What a client needs.
	url   string
	trust *tls.Config
}

// Start starts a server, the program at a path, on a data directory, with further flags, and waits until it answers. The caller ends it
// with Stop or Kill; the end of the context stops it too.
func Start(ctx context.Context, program, dir string, flags ...string) (*Server, error) {
	said := &saying{ready: make(chan announcement, 1)}
	cmd := exec.CommandContext(ctx, program, append([]string{"server", "--data-dir", dir, "--listen", "127.0.0.1:0"}, flags...)...)
	cmd.Stdout, cmd.Stderr = said, said
	// It is ended below, and waited for; the context only sees to it that it ends.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = serverStopMax
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{PID: cmd.Process.Pid, dir: dir, cmd: cmd, said: said, ended: make(chan error, 1)}
	go func() { s.ended <- cmd.Wait() }()
	late := time.NewTimer(readyMax)
	defer late.Stop()
	select {
	case a := <-said.ready:
		s.Took, s.url = a.at.Sub(start), a.url
	case err := <-s.ended:
		return nil, fmt.Errorf("the server ended before it was ready: %v: %s", errors.Join(err, ctx.Err()), said)
	case <-late.C:
		return nil, errors.Join(fmt.Errorf("the server is not ready after %v: %s", readyMax, said), s.Kill())
	}
	if err := s.enter(ctx); err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	return s, nil
}

// enter takes the administrator's credentials and proves that the server is ready, as it has said.
func (s *Server) enter(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	if s.trust, err = rest.TLSConfigFor(config); err != nil {
		return err
	}
	c := s.Client()
	defer c.Leave()
	return c.do(ctx, http.MethodGet, "/readyz", nil)
}

// Stop stops the server as systemd does.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the server: %v: %s", errors.Join(err, <-s.ended), s.said)
	}
	late := time.NewTimer(serverStopMax)
	defer late.Stop()
	select {
	case err := <-s.ended:
		if err != nil {
			return fmt.Errorf("the server ended with %w: %s", err, s.said)
		}
		return nil
	case <-late.C:
		return errors.Join(fmt.Errorf("the server does not stop within %v: %s", serverStopMax, s.said), s.Kill())
	}
}

// Kill ends the server as the kernel does when memory is short.
func (s *Server) Kill() error {
	err := s.cmd.Process.Kill()
	<-s.ended // a killed process always ends with an error
	return err
}

// announcement is when a server said that it is ready, and where.
type announcement struct {
	at  time.Time
	url string
}

// saying is what a server says on its standard streams: the end of it, and its announcement as soon as it comes.
type saying struct {
	ready chan announcement // has room for the only one

	mu    sync.Mutex // guards what follows
	text  []byte
	known bool // it has been announced
}

var readyLine = regexp.MustCompile(`msg=ready url=(\S+).*\n`)

// sayingMax is how much is kept of it.
const sayingMax = 4 << 10

// Write takes what the server says.
func (s *saying) Write(p []byte) (int, error) {
	at := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	if !s.known {
		if m := readyLine.FindSubmatch(s.text); m != nil {
			s.known = true
			s.ready <- announcement{at: at, url: string(m[1])}
		}
	}
	s.text = s.text[max(0, len(s.text)-sayingMax):]
	return len(p), nil
}

// String is the end of what was said.
func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.text)
}
