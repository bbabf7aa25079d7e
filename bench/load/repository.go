package load

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// forgeStopMax is how long a forge waits for the requests that it is answering.
const forgeStopMax = 10 * time.Second

// Forge serves one repository over http by git's own program, as forges do, and counts what it is asked.
type Forge struct {
	// URL is where the repository is.
	URL string
	// Lists and Fetches are how often the refs were asked for, and how often objects.
	Lists, Fetches atomic.Int64

	work   string // the clone in which it changes
	server *http.Server
	ended  chan error // gets one value, when the server has ended
}

// NewForge makes an empty repository below a directory, and serves it until Stop.
func NewForge(ctx context.Context, dir string) (*Forge, error) {
	f := &Forge{work: filepath.Join(dir, "work"), ended: make(chan error, 1)}
	where, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("look for git's programs: %w", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(where)), "git-http-backend")
	bare := filepath.Join(dir, "repositories", "bench.git")
	for _, args := range [][]string{{"init", "--quiet", "--bare", "--initial-branch=main", bare}, {"init", "--quiet", "--initial-branch=main", f.work}, {"-C", f.work, "remote", "add", "origin", bare}} {
		if err := git(ctx, args...); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	answer := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(bare), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}, Stderr: io.Discard}
	f.server = &http.Server{Handler: f.counted(answer), ReadHeaderTimeout: requestMax}
	f.URL = "http://" + listener.Addr().String() + "/bench.git"
	go func() { f.ended <- f.server.Serve(listener) }()
	return f, nil
}

// counted notes which command of protocol version 2 a request carries, and hands it on.
func (f *Forge) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		said := body
		if r.Header.Get("Content-Encoding") == "gzip" {
			if plain, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
				said, _ = io.ReadAll(plain) // what cannot be read is no command, and git's program says so
			}
		}
		if bytes.Contains(said, []byte("command=ls-refs")) {
			f.Lists.Add(1)
		}
		if bytes.Contains(said, []byte("command=fetch")) {
			f.Fetches.Add(1)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// Commit writes files, commits all of them, and pushes. It returns the commit.
func (f *Forge) Commit(ctx context.Context, files map[string][]byte) (string, error) {
	if err := WriteFiles(f.work, files); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"add", "--all"}, {"-c", "user.name=Bench", "-c", "user.email=bench@example.com", "commit", "--quiet", "--message", "change"}, {"push", "--quiet", "origin", "HEAD"}} {
		if err := git(ctx, append([]string{"-C", f.work}, args...)...); err != nil {
			return "", err
		}
	}
	out, err := exec.CommandContext(ctx, "git", "-C", f.work, "rev-parse", "HEAD").Output()
	return strings.TrimSpace(string(out)), err
}

// WriteFiles writes files below a directory, with the directories that they need.
func WriteFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends it.
func (f *Forge) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), forgeStopMax)
	defer cancel()
	err := f.server.Shutdown(ctx)
	if ended := <-f.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func git(ctx context.Context, args ...string) error {
	// Nothing is packed in the middle of a measurement, and nobody's own settings count.
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
