package election

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"tako.dev/tako/e2e/host"
	"tako.dev/tako/internal/apiserver/etcd"
	"tako.dev/tako/internal/reason"
)

const (
	short = 5 * time.Second
	soon  = time.Minute
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// store is an etcd, and ways to it that can be cut.
type store struct {
	t      *testing.T
	member *etcd.Member
	socket string
}

func newStore(t *testing.T) *store {
	t.Helper()
	m, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(m.Close)
	return &store{t, m, strings.TrimPrefix(m.Endpoints()[0], "unix://")}
}

// way is a way to the store: a listener that passes all on until it is cut.
type way struct {
	listener net.Listener
	cut      atomic.Bool

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func (s *store) way() *way {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	w := &way{listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", s.socket)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
				all.Go(func() {
					_, _ = io.Copy(w.valve(ends[1]), ends[0])
					_ = ends[1].Close()
				})
			}
		}
	})
	s.t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		all.Wait()
	})
	return w
}

// valve loses what is written while the way is cut: nobody is told.
func (w *way) valve(to io.Writer) io.Writer {
	return writer(func(p []byte) (int, error) {
		if w.cut.Load() {
			return len(p), nil
		}
		return to.Write(p)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// heal makes the way good again: what was lost in between is lost, so the connections end.
func (w *way) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut.Store(false)
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (s *store) client(w *way) *kubernetes.Client {
	s.t.Helper()
	c, err := etcd.Connect(s.t.Context(), etcd.Connection{Endpoints: []string{"http://" + w.listener.Addr().String()}})
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// candidate is a server that takes part until it is stopped.
type candidate struct {
	*Election
	way   *way
	stop  context.CancelFunc
	ended chan error
	leads atomic.Int32 // how many of its leaders' work run
	terms atomic.Int32
}

// candidate starts one. leading counts whose work runs at one moment, over all.
func (s *store) candidate(id string, leading *atomic.Int32) *candidate {
	s.t.Helper()
	w := s.way()
	e, err := New(Options{Etcd: s.client(w).Client, Self: Server{ID: id, API: id + ":6443", Transfer: id + ":6444"}, Lease: short})
	must(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	c := &candidate{Election: e, way: w, stop: cancel, ended: make(chan error, 1)}
	go func() { // waited for by ended
		c.ended <- e.Run(ctx, func(ctx context.Context) {
			if leading.Add(1) > 1 {
				s.t.Error("two lead")
			}
			c.leads.Add(1)
			c.terms.Add(1)
			<-ctx.Done()
			c.leads.Add(-1)
			leading.Add(-1)
		})
	}()
	s.t.Cleanup(func() {
		cancel()
		if err, first := <-c.ended; first && err != nil {
			s.t.Error(err)
		}
	})
	return c
}

func (c *candidate) end(t *testing.T) {
	t.Helper()
	c.stop()
	must(t, <-c.ended)
	close(c.ended)
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	host.Eventually(t, soon, what, func() (string, bool) { return "not yet", ok() })
}

// TestTakeover: one of two leads; when it stops the other one does at once, when it is cut off from etcd after its lease, and it leads no more before
// that one does. Each knows who leads, and who there is.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var leading atomic.Int32
	a := s.candidate("a", &leading)
	await(t, "a to lead", func() bool { return a.leads.Load() == 1 })
	b, c := s.candidate("b", &leading), s.candidate("c", &leading)
	for _, e := range []*candidate{b, c} {
		await(t, "others to know it", func() bool {
			v, _, _ := e.View()
			return !v.Leading && v.Leader.ID == "a" && v.Leader.API == "a:6443" && len(v.Servers) == 3
		})
	}
	_, ended, _ := b.View()

	began := time.Now()
	a.end(t)
	await(t, "another one to lead", func() bool { return leading.Load() == 1 })
	if took := time.Since(began); took > short {
		t.Errorf("after a stop another one leads after %s", took)
	}
	select {
	case <-ended:
	case <-time.After(soon):
		t.Error("nobody was told that a leads no more")
	}
	first, second := b, c
	if c.leads.Load() == 1 {
		first, second = c, b
	}

	first.way.cut.Store(true)
	await(t, "the last one to lead", func() bool { return second.leads.Load() == 1 })
	if first.leads.Load() != 0 {
		t.Error("one that is cut off still leads")
	}
	v, _, _ := first.View()
	if now := time.Now(); v.Leading || first.Leads(now) || !second.Leads(now) {
		t.Error("one that is cut off says that it leads, or the other one that it does not")
	}
	if second.Leads(time.Now().Add(short)) {
		t.Error("one says that it will lead after its lease")
	}
	first.way.heal()
	await(t, "the one that was cut off to follow", func() bool {
		v, _, _ := first.View()
		return v.Leader.ID == second.options.Self.ID && len(v.Servers) == 2
	})
	if second.terms.Load() != 1 || first.terms.Load() != 1 {
		t.Errorf("they have led %d and %d times", first.terms.Load(), second.terms.Load())
	}
}

// TestFence: what is written in a term is written while that is the newest, and refused afterwards, and who writes is told that and no conflict; a
// conflict stays one; what nobody writes as the leader goes as before.
func TestFence(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := s.client(s.way())
	c.KV = Fence(c.KV)
	put, err := c.KV.Put(t.Context(), leaderKey, `{"id":"a"}`)
	must(t, err)
	leader := withTerm(t.Context(), put.Header.Revision)

	made, err := c.Kubernetes.OptimisticPut(leader, "/tako/x", []byte("1"), 0, kubernetes.PutOptions{})
	must(t, err)
	if !made.Succeeded {
		t.Fatal("the leader's write was not done")
	}
	again, err := c.Kubernetes.OptimisticPut(leader, "/tako/x", []byte("2"), 0, kubernetes.PutOptions{GetOnFailure: true})
	must(t, err)
	if again.Succeeded || again.KV == nil || string(again.KV.Value) != "1" {
		t.Errorf("a conflict is told as %+v", again)
	}
	if plain, err := c.Kubernetes.OptimisticPut(leader, "/tako/x", []byte("2"), 0, kubernetes.PutOptions{}); err != nil || plain.Succeeded {
		t.Errorf("a conflict without a look is told as %+v, %v", plain, err)
	}

	for what, change := range map[string]func() error{
		"another one leads": func() error { _, err := c.KV.Put(t.Context(), leaderKey, `{"id":"b"}`); return err },
		"nobody leads":      func() error { _, err := c.KV.Delete(t.Context(), leaderKey); return err },
	} {
		must(t, change())
		for name, write := range map[string]func(context.Context) error{
			"put": func(ctx context.Context) error {
				_, err := c.Kubernetes.OptimisticPut(ctx, "/tako/x", []byte("late"), made.Revision, kubernetes.PutOptions{GetOnFailure: true})
				return err
			},
			"create": func(ctx context.Context) error {
				_, err := c.Kubernetes.OptimisticPut(ctx, "/tako/y", []byte("late"), 0, kubernetes.PutOptions{})
				return err
			},
			"delete": func(ctx context.Context) error {
				_, err := c.Kubernetes.OptimisticDelete(ctx, "/tako/x", made.Revision, kubernetes.DeleteOptions{GetOnFailure: true})
				return err
			},
		} {
			if err := write(leader); !reason.Is(err, reason.LeadLost) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	got, err := c.Kubernetes.Get(t.Context(), "/tako/x", kubernetes.GetOptions{})
	must(t, err)
	if got.KV == nil || string(got.KV.Value) != "1" {
		t.Errorf("there is %v", got.KV)
	}
	if person, err := c.Kubernetes.OptimisticPut(t.Context(), "/tako/x", []byte("3"), made.Revision, kubernetes.PutOptions{}); err != nil || !person.Succeeded {
		t.Errorf("who does not lead cannot write: %+v, %v", person, err)
	}
}

// TestCarry: a term goes along with a request, and nothing is written without one.
func TestCarry(t *testing.T) {
	var got []string
	h := httptest.NewServer(Take(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		term, leads := termOf(r.Context())
		got = append(got, fmt.Sprintf("%s %d %t", r.Method, term, leads))
	})))
	defer h.Close()
	client := http.Client{Transport: Carry(http.DefaultTransport)}
	call := func(ctx context.Context, method string) error {
		r, err := http.NewRequestWithContext(ctx, method, h.URL, http.NoBody)
		must(t, err)
		resp, err := client.Do(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	must(t, call(withTerm(t.Context(), 7), http.MethodPut))
	must(t, call(t.Context(), http.MethodGet))
	if err := call(t.Context(), http.MethodPut); !reason.Is(err, reason.LeadLost) {
		t.Errorf("a write without a term: %v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, h.URL, http.NoBody)
	must(t, err)
	r.Header.Set(header, "nonsense")
	resp, err := http.DefaultClient.Do(r)
	must(t, err)
	_ = resp.Body.Close()
	if want := []string{"PUT 7 true", "GET 0 false", "PUT 0 true"}; strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("came %q, want %q", got, want)
	}
}

// FuzzHolder: whatever somebody else writes to the keys is no crash.
func FuzzHolder(f *testing.F) {
	f.Add([]byte(`{"id":"a","api":"a:6443","transfer":"a:6444"}`))
	f.Add([]byte(`{`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := holder(keyValue(value))
		if err != nil && !reason.Is(err, reason.StateCorrupt) {
			t.Error(err)
		}
		if err == nil && h.Term != 7 {
			t.Errorf("%+v", h)
		}
	})
}
