//go:build e2e

package workloads

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/e2e/host"
)

const (
	// readers and writers are how many ask at once, each with a pause between two requests.
	readers, writers = 2, 1
	shopperPause     = 100 * time.Millisecond
	// crowded is how many more ask where there are many.
	crowded = 16
	// requestTime is how long a person would wait.
	requestTime = time.Minute
	// logged bounds what is said of requests that have failed.
	logged = 20
)

// asked counts requests, from the start.
type asked struct{ reads, writes, readsFailed, writesFailed int }

func (a asked) minus(b asked) asked {
	return asked{a.reads - b.reads, a.writes - b.writes, a.readsFailed - b.readsFailed, a.writesFailed - b.writesFailed}
}

func (a asked) String() string {
	return fmt.Sprintf("%d of %d reads and %d of %d writes have failed", a.readsFailed, a.reads, a.writesFailed, a.writes)
}

// shopper is a client of the application, which knows nothing but its front.
type shopper struct {
	t      *testing.T
	client http.Client
	url    string

	mu    sync.Mutex // guards what follows
	count asked
	last  string // version that has answered last
}

// newShopper makes a client. Each request has a connection of its own, as those of many clients have.
func newShopper(t *testing.T, lab *host.Lab, address string) *shopper {
	transport := &http.Transport{DialContext: lab.Dial, DisableKeepAlives: true}
	return &shopper{t: t, client: http.Client{Transport: transport, Timeout: requestTime}, url: "http://" + address + "/"}
}

// start has it ask until stop is called, which waits for its last answers.
func (s *shopper) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	each := func(do func(number int)) {
		all.Go(func() {
			pause := time.NewTicker(shopperPause)
			defer pause.Stop()
			for number := 1; ; number++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				do(number)
			}
		})
	}
	for range readers {
		each(func(int) {
			is, err := s.read()
			s.note(is, err, "read", func(a *asked) (*int, *int) { return &a.reads, &a.readsFailed })
		})
	}
	for range writers {
		each(func(number int) {
			is, err := s.ask(http.MethodPost, fmt.Sprint("?number=", number))
			s.note(is, err, fmt.Sprint("write ", number), func(a *asked) (*int, *int) { return &a.writes, &a.writesFailed })
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// crowd has many others read what takes the middle tier some time to find out, without a pause, until stop is called. What comes of it is not noted.
func (s *shopper) crowd() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	for range crowded {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.ask(http.MethodGet, "?rounds=50000")
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// page is what the application answers.
type page struct {
	version, instance string
	pid, orders       int
}

func (s *shopper) read() (page, error) { return s.ask(http.MethodGet, "") }

func (s *shopper) ask(method, query string) (p page, err error) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(s.t.Context()), method, s.url+query, nil) // one that has begun is answered
	if err != nil {
		return p, err
	}
	reply, err := s.client.Do(request)
	if err != nil {
		return p, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, 1<<10))
	if err != nil {
		return p, err
	}
	if reply.StatusCode != http.StatusOK {
		return p, fmt.Errorf("%s: %s", reply.Status, strings.Join(strings.Fields(string(text)), " "))
	}
	_, err = fmt.Sscan(string(text), &p.version, &p.instance, &p.pid, &p.orders)
	return p, err
}

// note counts a request, and says what has failed.
func (s *shopper) note(is page, err error, what string, count func(*asked) (all, failed *int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, failed := count(&s.count)
	*all++
	if err == nil {
		s.last = is.version
		return
	}
	*failed++
	if s.count.readsFailed+s.count.writesFailed <= logged {
		s.t.Logf("%s: %s: %v", time.Now().Format(time.TimeOnly), what, err)
	}
}

func (s *shopper) asked() asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// version is the one that has answered last.
func (s *shopper) version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}
