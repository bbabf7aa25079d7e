package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tako.dev/tako/internal/casetest"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestWatch: the newest head at once, and each newer one; what is told to Presence.
func TestWatch(t *testing.T) {
	noLeak(t)
	r := newRig(t, nil)
	r.add("web-1")
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{Number: 1, Trust: 2})
	r.give("web-1", []byte("one"))
	if f := w.next(); string(f.Head) != "one" {
		t.Errorf("%+v", f)
	}
	// A head that is the same again is not sent again.
	r.change(func() { r.highest = 3 })
	r.give("web-1", []byte("one"))
	if f := w.next(); f.Trust != 3 {
		t.Errorf("%+v", f)
	}
	r.give("web-1", []byte("two"))
	if f := w.next(); string(f.Head) != "two" {
		t.Errorf("%+v", f)
	}
	var reply wire.StatusReply
	if status, problem := h.call(wire.PathStatus, wire.Report{Number: 2}, &reply); problem != nil || reply.RetryAfter != 2 {
		t.Errorf("%d, %+v, %+v", status, problem, reply)
	}
	r.remove("web-1")
	if err := wire.ReadFrame(w.body, &wire.Frame{}); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("after its node has gone a watch goes on: %v", err)
	}
	want := []string{"opened web-1 1", "heard web-1 1 1", "heard web-1 1 2", "closed web-1 1 false"}
	r.wait(t, fmt.Sprint(want), func() bool { return slices.Equal(r.heard, want) })
	r.stop()
}

// TestListGoesAlong: with a head goes the list that it names, where that is short and not the one that the host has; with no heartbeat.
func TestListGoesAlong(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Times.Heartbeat = Between{10 * time.Millisecond, 20 * time.Millisecond} })
	id := r.add("web-1")
	had := listOf(t, catalog.Layer{ID: "had", Root: catalog.KeyOf("1")})
	first, err := had.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.give("web-1", r.head(id, 1, had))
	w := r.as("web-1").watch(t.Context(), wire.Report{Have: catalog.Mark{Epoch: 1, Version: 1, Root: catalog.ListRoot(first)}})
	if f := w.next(); len(f.Head) == 0 || f.List != nil {
		t.Errorf("with what the host has comes %+v", f)
	}
	short := listOf(t, catalog.Layer{ID: "short", Root: catalog.KeyOf("2")})
	want, err := short.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r.give("web-1", r.head(id, 2, short))
	f := w.next()
	for f.List == nil {
		f = w.next() // a heartbeat of the head before
	}
	if !bytes.Equal(f.List, want) {
		t.Errorf("with another one comes %+v", f)
	}
	if f := w.next(); len(f.Head) == 0 || f.List != nil {
		t.Errorf("with a heartbeat comes %+v", f)
	}
	var layers []catalog.Layer
	for i := range 100 {
		layers = append(layers, catalog.Layer{ID: fmt.Sprint("layer ", i), Root: catalog.KeyOf("3")})
	}
	long := r.head(id, 3, listOf(t, layers...))
	r.give("web-1", long)
	for f = w.next(); !bytes.Equal(f.Head, long); f = w.next() {
	}
	if f.List != nil {
		t.Errorf("a list of %d bytes comes along", len(f.List))
	}
}

// TestWatchEcho: that the report which opens a watch was heard is said first, and once.
func TestWatchEcho(t *testing.T) {
	r := newRig(t, nil)
	id := r.add("web-1")
	w := r.as("web-1").watch(t.Context(), wire.Report{Number: 1, Exchange: wire.Exchange{Echo: 77}})
	if f := w.next(); f.Echo != 77 || f.Head != nil {
		t.Errorf("first comes %+v", f)
	}
	head := r.head(id, 3, listOf(t, catalog.Layer{ID: "one", Root: catalog.KeyOf("1")}))
	r.give("web-1", head)
	for f := w.next(); !bytes.Equal(f.Head, head); f = w.next() {
		if f.Echo != 0 {
			t.Errorf("it is said again: %+v", f)
		}
	}
}

// TestStatusWithoutWatch: a status over another connection belongs to the watch that there is; without any, a watch comes and goes.
func TestStatusWithoutWatch(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	first, second := r.as("web-1"), r.as("web-1")
	first.call(wire.PathStatus, wire.Report{Number: 1}, &wire.StatusReply{})
	second.watch(t.Context(), wire.Report{Number: 2})
	first.call(wire.PathStatus, wire.Report{Number: 3}, &wire.StatusReply{})
	want := []string{"opened web-1 1", "heard web-1 1 1", "closed web-1 1 false", "opened web-1 2", "heard web-1 2 2", "heard web-1 2 3"}
	r.wait(t, fmt.Sprint(want), func() bool { return slices.Equal(r.heard, want) })
}

// TestTransferCase2_HeartbeatsGoOn: as long as a watch is open its host gets the newest head again and again, so that one who gets none
// knows that nothing comes through any more.
func TestTransferCase2_HeartbeatsGoOn(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, func(o *Options) { o.Times.Heartbeat = Between{10 * time.Millisecond, 20 * time.Millisecond} })
	r.add("web-1")
	r.give("web-1", []byte("head"))
	w := r.as("web-1").watch(t.Context(), wire.Report{})
	for range 5 {
		c.Equal(string(w.next().Head), "head", "what a heartbeat has")
	}
	r.wait(t, "four heartbeats are told", func() bool {
		return len(slices.DeleteFunc(slices.Clone(r.heard), func(s string) bool { return s != "asked web-1 1" })) >= 4
	})
}

// TestAgain: a watch that ends says when to come again.
func TestAgain(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Times.Watch = Between{10 * time.Millisecond, 20 * time.Millisecond} })
	r.add("web-1")
	w := r.as("web-1").watch(t.Context(), wire.Report{})
	if f := w.next(); f.Again == nil {
		t.Errorf("%+v", f)
	}
	if err := wire.ReadFrame(w.body, &wire.Frame{}); !errors.Is(err, io.EOF) {
		t.Errorf("a watch that has said good-bye ends with %v", err)
	}
	r.wait(t, "it is closed", func() bool { return slices.Contains(r.heard, "closed web-1 1 false") })
}

// TestStop: a server that stops sends its hosts elsewhere, and leaves nothing behind.
func TestStop(t *testing.T) {
	noLeak(t)
	r := newRig(t, func(o *Options) { o.Times.Stop = time.Minute })
	r.add("web-1")
	w := r.as("web-1").watch(t.Context(), wire.Report{})
	stopped := make(chan struct{})
	go func() {
		r.stop()
		close(stopped)
	}()
	if f := w.next(); f.Again == nil {
		t.Errorf("%+v", f)
	}
	<-stopped
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("it listens yet")
	}
}

// TestRollbackSuspected: who shows a head that Catalogs cannot have is refused, and heard all the same.
func TestRollbackSuspected(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	r.shown = &reason.Error{Code: reason.Conflict, Doing: "serve node web-1", After: 3 * time.Second}
	status, p := r.as("web-1").call(wire.PathWatch, wire.WatchRequest{Protocol: wire.Protocol, Report: wire.Report{Number: 7}}, nil)
	if status != http.StatusConflict || p.Code != "TK1104" || p.RetryAfter != 3000 {
		t.Errorf("%d %+v", status, p)
	}
	want := []string{"opened web-1 1", "heard web-1 1 7", "closed web-1 1 false"}
	r.wait(t, fmt.Sprint(want), func() bool { return slices.Equal(r.heard, want) })
}

// TestNodeDeleted: connections of a node that is gone are closed, whatever they do.
func TestNodeDeleted(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	r.give("web-1", []byte("head"))
	h := r.as("web-1")
	w := h.watch(t.Context(), wire.Report{})
	w.next()                                      // from now on the watch waits: before, it would look for its node by itself, and leave the connection open
	r.change(func() { delete(r.nodes, "web-1") }) // Catalogs says nothing
	if err := wire.ReadFrame(w.body, &wire.Frame{}); err == nil {
		t.Error("the watch goes on")
	}
	if status, p := h.call(wire.PathStatus, wire.Report{}, nil); status != http.StatusUnauthorized || p.Code != "TK1003" {
		t.Errorf("%d %+v", status, p)
	}
}

// TestStrangers: who does not say who he is has to go.
func TestStrangers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Times.Stranger = 50 * time.Millisecond })
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("something was read")
	}
}

// slowHead is a head of a size that fills the buffers on the way soon.
func slowHead(i int) []byte { return []byte(fmt.Sprintf("%06d", i) + strings.Repeat("x", 12<<10)) }

// TestTransferCase37_SlowReader: a host that does not read is closed, what it has not read is not kept, and others do not notice.
func TestTransferCase37_SlowReader(t *testing.T) {
	c := casetest.Start(t)
	noLeak(t)
	r := newRig(t, func(o *Options) { o.Times.Write = time.Second })
	r.add("slow")
	r.add("quick")
	r.as("slow").watch(t.Context(), wire.Report{}) // nobody reads what comes
	quick := r.as("quick").watch(t.Context(), wire.Report{})
	for i := 0; ; i++ {
		r.give("slow", slowHead(i))
		r.give("quick", slowHead(i))
		// Each head may be left out, if a later one comes.
		if f := quick.next(); len(f.Head) != len(slowHead(i)) {
			t.Fatalf("%+v", f)
		}
		r.mu.Lock()
		closed := slices.ContainsFunc(r.heard, func(s string) bool { return strings.HasPrefix(s, "closed slow") })
		r.mu.Unlock()
		if closed {
			break
		}
	}
	r.give("quick", []byte("last"))
	last := quick.next()
	for len(last.Head) == len(slowHead(0)) {
		last = quick.next()
	}
	c.Equal(string(last.Head), "last", "what the other host has at last")
	r.stop()
}

// TestManyWatches: each of a thousand hosts gets its change, once.
func TestManyWatches(t *testing.T) {
	const hosts = 1_000
	noLeak(t)
	r := newRig(t, func(o *Options) { o.Limits.Accepts, o.Times.Stop = 10_000, time.Minute })
	cert := make([]string, hosts)
	for i := range cert {
		cert[i] = fmt.Sprint("node-", i)
		r.add(cert[i])
		r.give(cert[i], []byte("before"))
	}
	watches := make([]*watching, hosts)
	inParallel(hosts, func(i int) { watches[i] = r.as(cert[i]).watch(t.Context(), wire.Report{}) })
	inParallel(hosts, func(i int) {
		if f := watches[i].next(); string(f.Head) != "before" {
			t.Errorf("%s: %+v", cert[i], f)
		}
	})
	for _, name := range cert {
		r.give(name, []byte("after of "+name))
	}
	inParallel(hosts, func(i int) {
		if f := watches[i].next(); string(f.Head) != "after of "+cert[i] {
			t.Errorf("%s: %+v", cert[i], f)
		}
	})
	r.stop() // the next thing is the good-bye
	inParallel(hosts, func(i int) {
		if f := watches[i].next(); f.Again == nil {
			t.Errorf("%s: %+v", cert[i], f)
		}
	})
}

func inParallel(n int, f func(int)) {
	var all sync.WaitGroup
	places := make(chan struct{}, 16)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	all.Wait()
}

// TestTransferCase54_MassCancel: many watches that end in one moment leave nothing that hangs.
func TestTransferCase54_MassCancel(t *testing.T) {
	c := casetest.Start(t)
	noLeak(t)
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	const hosts = 100
	for i := range hosts {
		r.add(fmt.Sprint("node-", i))
	}
	inParallel(hosts, func(i int) { r.as(fmt.Sprint("node-", i)).watch(ctx, wire.Report{}) })
	cancel()
	c.Eventually(time.Minute, "all watches are closed", func() (string, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := 0
		for _, s := range r.heard {
			if strings.HasPrefix(s, "closed ") {
				n++
			}
		}
		return fmt.Sprint(n, " are"), n == hosts
	})
	r.stop()
}

// TestTransferCase35_StatusRepeats: a status that was lost is repeated by the next one, over the watch too: it says all.
func TestTransferCase35_StatusRepeats(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, nil)
	r.add("web-1")
	refused := wire.Report{Number: 7, Verdict: wire.Verdict{Type: wire.Rejected, Version: 5, Code: reason.DiskFull}}
	h := r.as("web-1")
	h.watch(t.Context(), refused)
	h.call(wire.PathStatus, refused, &wire.StatusReply{})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, got := range r.reports {
		c.Equal(*got, refused, "what was heard")
	}
	c.Equal(len(r.reports), 2, "reports")
}

// TestTransferCase36_ReportsOutOfOrder: reports are handed over with all that says which is newer: session, number and watch.
func TestTransferCase36_ReportsOutOfOrder(t *testing.T) {
	c := casetest.Start(t)
	r := newRig(t, nil)
	r.add("web-1")
	before, now := r.as("web-1"), r.as("web-1")
	before.watch(t.Context(), wire.Report{Session: wire.Session{ID: "a", Start: 1}, Number: 1})
	now.watch(t.Context(), wire.Report{Session: wire.Session{ID: "b", Start: 2}, Number: 1})
	for _, number := range []uint64{7, 5, 7} {
		before.call(wire.PathStatus, wire.Report{Session: wire.Session{ID: "a", Start: 1}, Number: number}, &wire.StatusReply{})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Equal(r.heard, []string{"opened web-1 1", "heard web-1 1 1", "opened web-1 2", "heard web-1 2 1", "heard web-1 1 7", "heard web-1 1 5", "heard web-1 1 7"}, "what was heard")
	c.Equal(r.reports[3].Session, wire.Session{ID: "a", Start: 1}, "session of a late report")
}

// TestReportBounds: what is too large is heard by nobody.
func TestReportBounds(t *testing.T) {
	r := newRig(t, nil)
	r.add("web-1")
	many := wire.Report{Problems: make([]wire.Resource, wire.ProblemsMax+1)}
	if status, p := r.as("web-1").call(wire.PathStatus, many, nil); status != http.StatusBadRequest || p.Code != "TK1040" {
		t.Errorf("%d %+v", status, p)
	}
	if len(r.reports) > 0 {
		t.Error("it was heard")
	}
}
