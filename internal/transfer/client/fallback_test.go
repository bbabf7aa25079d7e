package client_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/place"
	"tako.dev/tako/internal/trust"
)

// mirror serves a directory in the bubble of a scene, and counts.
type mirror struct {
	dials chan net.Conn
	done  chan struct{}
	dir   string
	other string // served at another address

	mu    sync.Mutex  // guards what follows
	asked []time.Time // for what is in dir
}

func (m *mirror) Accept() (net.Conn, error) {
	select {
	case c := <-m.dials:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}
func (m *mirror) Close() error   { return nil }
func (m *mirror) Addr() net.Addr { return &net.TCPAddr{} }

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/tako/heads/") {
		m.mu.Lock()
		m.asked = append(m.asked, time.Now())
		m.mu.Unlock()
	}
	dir, name := m.dir, strings.TrimPrefix(r.URL.Path, "/tako/")
	if other, found := strings.CutPrefix(r.URL.Path, "/other/"); found {
		dir, name = m.other, other
	}
	content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = w.Write(content)
}

func (m *mirror) rounds() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// extend has the root keys say more.
func (c *cluster) extend(t *testing.T, edits ...trust.Edit) {
	t.Helper()
	next, err := c.chain.Next(time.Now(), edits...)
	if err == nil {
		next, err = next.Sign(c.root)
	}
	if err == nil {
		c.chain, err = c.chain.Extend([]trust.Signed{next})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fill writes what the server has into a directory.
func (s *scene) fill(dir string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := place.NewWriter(dir)
	if err == nil {
		err = w.Trust(s.cluster.chain)
	}
	if err == nil {
		err = w.List(s.list)
	}
	var rows bytes.Buffer
	if err == nil {
		err = catalog.WriteRows(&rows, s.trie.Len(), func(yield func(catalog.Digest, []byte) bool) {
			for r := range s.trie.From(catalog.Digest{}) {
				if !yield(r.Key, s.bodies[r.Digest]) {
					return
				}
			}
		})
	}
	if err == nil {
		err = errors.Join(w.Layer(s.trie.Root(), &rows), w.Head("uid-1", s.head))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// withMirror runs a test with a server that may be gone, and a mirror that the trust documents name, after one that is away and before another one.
func withMirror(t *testing.T, test func(t *testing.T, s *scene, m *mirror, gone func(bool))) {
	t.Helper()
	play(t, func(t *testing.T, s *scene) {
		m := &mirror{dials: make(chan net.Conn), done: make(chan struct{}), dir: t.TempDir(), other: t.TempDir()}
		s.cluster.extend(t, trust.SetFallback("http://nobody.test/tako", "http://mirror.test/tako", "http://mirror.test/other"))
		s.identity.chain = s.cluster.chain
		served := &http.Server{Handler: m}
		var all sync.WaitGroup
		all.Go(func() { _ = served.Serve(m) })
		var mu sync.Mutex
		away := false
		s.dialing = func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			lost := away
			mu.Unlock()
			switch {
			case strings.HasPrefix(address, "mirror.test"):
				near, far := net.Pipe()
				select {
				case m.dials <- far:
					return near, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			case lost, strings.HasPrefix(address, "nobody.test"):
				return nil, errors.New("no route to host")
			}
			return s.dial(ctx, network, address)
		}
		test(t, s, m, func(gone bool) {
			mu.Lock()
			away = gone
			mu.Unlock()
			if gone {
				s.hangUp()
			}
		})
		s.halt()
		close(m.done)
		_ = served.Close()
		all.Wait()
		synctest.Wait()
	})
}

// hangUp closes the connections that are open.
func (s *scene) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// TestFallback: a host that has had no server for a minute takes what is at a location that its trust documents name, with pauses that grow; not one that
// has a server.
func TestFallback(t *testing.T) {
	withMirror(t, func(t *testing.T, s *scene, m *mirror, gone func(bool)) {
		s.publish(7, "one", "two")
		s.start()
		pass(10 * time.Minute)
		s.wantVersions(7)
		if n := m.rounds(); n > 0 {
			t.Errorf("the location is asked %d times beside a server", n)
		}
		gone(true)
		s.publish(8, "one", "changed")
		s.fill(m.dir)
		pass(50 * time.Second)
		if n := m.rounds(); n > 0 {
			t.Errorf("the location is asked %d times in the first minute", n)
		}
		pass(2 * time.Minute)
		s.wantVersions(7, 8)
		before := m.rounds()
		pass(6 * time.Hour)
		if n := m.rounds() - before; n < 10 || n > 40 {
			t.Errorf("the location is asked %d times in six hours", n)
		}
		s.publish(9, "one", "changed again")
		s.fill(m.dir)
		pass(31 * time.Minute)
		s.wantVersions(7, 8, 9)
		gone(false)
		s.publish(10, "one")
		pass(5 * time.Minute)
		s.wantVersions(7, 8, 9, 10)
		before = m.rounds()
		pass(time.Hour)
		if n := m.rounds() - before; n > 0 {
			t.Errorf("the location is asked %d times when there is a server again", n)
		}
	})
}

// TestFallbackBehind: a location that answers, and has nothing newer or not all of it, keeps the host from none that has.
func TestFallbackBehind(t *testing.T) {
	for name, first := range map[string]func(t *testing.T, s *scene, dir string){
		"the version of the host":                           func(*testing.T, *scene, string) {},
		"the version of the host, and its head has expired": func(*testing.T, *scene, string) { pass(72 * time.Hour) },
		"the head and the list alone": func(t *testing.T, s *scene, dir string) {
			s.publish(8, "one", "changed")
			s.fill(dir)
			if err := os.RemoveAll(filepath.Join(dir, "layers")); err != nil {
				t.Fatal(err)
			}
		},
		"the head alone": func(t *testing.T, s *scene, dir string) {
			s.publish(8, "one", "changed")
			s.fill(dir)
			if err := errors.Join(os.RemoveAll(filepath.Join(dir, "layers")), os.RemoveAll(filepath.Join(dir, "lists"))); err != nil {
				t.Fatal(err)
			}
		},
		"the layers alone": func(t *testing.T, s *scene, dir string) {
			s.publish(8, "one", "changed")
			s.fill(dir)
			if err := os.RemoveAll(filepath.Join(dir, "heads")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			withMirror(t, func(t *testing.T, s *scene, m *mirror, gone func(bool)) {
				s.publish(7, "one", "two")
				s.fill(m.dir)
				s.start()
				pass(10 * time.Second)
				s.wantVersions(7)
				gone(true)
				first(t, s, m.dir)
				s.publish(8, "one", "changed")
				s.fill(m.other)
				pass(32 * time.Minute)
				s.wantVersions(7, 8)
			})
		})
	}
}

// TestFallbackParts: of what is signed each location may have another part.
func TestFallbackParts(t *testing.T) {
	withMirror(t, func(t *testing.T, s *scene, m *mirror, gone func(bool)) {
		s.publish(7, "one", "two")
		s.start()
		pass(10 * time.Second)
		gone(true)
		s.publish(8, "one", "changed")
		s.fill(m.dir)
		s.fill(m.other)
		if err := errors.Join(os.RemoveAll(filepath.Join(m.dir, "layers")), os.RemoveAll(filepath.Join(m.other, "lists"))); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Minute)
		s.wantVersions(7, 8)
	})
}

// TestFallbackThatLies: what a location has is believed for its signatures and hashes alone.
func TestFallbackThatLies(t *testing.T) {
	for name, lie := range map[string]func(t *testing.T, s *scene, dir string){
		"a forged head": func(t *testing.T, s *scene, dir string) { spoil(t, filepath.Join(dir, "heads", "uid-1")) },
		"another layer": func(t *testing.T, s *scene, dir string) { spoilAll(t, filepath.Join(dir, "layers")) },
		"another list":  func(t *testing.T, s *scene, dir string) { spoilAll(t, filepath.Join(dir, "lists")) },
		"trust documents of its own": func(t *testing.T, s *scene, dir string) {
			other := newCluster(t)
			w, err := place.NewWriter(dir)
			if err == nil {
				err = w.Trust(other.chain)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"an old head": func(t *testing.T, s *scene, dir string) {
			s.publish(6, "old")
			s.fill(dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withMirror(t, func(t *testing.T, s *scene, m *mirror, gone func(bool)) {
				s.publish(7, "one", "two")
				s.start()
				pass(10 * time.Second)
				s.wantVersions(7)
				gone(true)
				s.publish(8, "one", "changed")
				s.fill(m.dir)
				lie(t, s, m.dir)
				pass(2 * time.Hour)
				s.wantVersions(7)
				if n := m.rounds(); n > 30 {
					t.Errorf("the location is asked %d times in two hours", n)
				}
			})
		})
	}
}

// spoil changes the last byte of a file.
func spoil(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		data[len(data)-1] ^= 1
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func spoilAll(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		spoil(t, filepath.Join(dir, e.Name()))
	}
}
