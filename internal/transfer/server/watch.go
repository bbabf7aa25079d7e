package server

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/transfer/h2"
	"tako.dev/tako/internal/transfer/wire"
)

// watch sends the newest head whenever there may be another one, until the host should come again. Between two heads nothing is kept but
// that there may be another one: a host that is slow gets the newest when it reads again.
func (s *Server) watch(q *request) error {
	var r wire.WatchRequest
	if err := q.read(wire.RequestMax, &r); err != nil {
		return err
	}
	if err := speaks(q, r.Protocol); err != nil {
		return err
	}
	if err := r.Report.Validate(); err != nil {
		return malformed("read "+q.URL.Path, err)
	}
	if err := s.opts.Serving(); err != nil {
		return err
	}
	// The report is handed over, and is not touched afterwards.
	have, trusted := r.Report.Have, r.Report.Trust
	number := s.numbers.Add(1)
	q.conn.watch.Store(number)
	s.metrics.watches.Inc()
	s.opts.Presence.Opened(q.who, number)
	who, conn, goesOn := q.who, q.conn, false
	closed := func() {
		conn.watch.CompareAndSwap(number, 0) // a report over it is of another watch from now on
		s.opts.Presence.Closed(who, number, conn.dead.Load())
		s.metrics.watches.Dec()
	}
	defer func() {
		if !goesOn {
			closed()
		}
	}()
	reply := s.opts.Presence.Heard(q.who, number, &r.Report)
	if err := s.opts.Heads.Shown(q.Context(), q.who, have); err != nil {
		return err
	}
	if _, _, err := s.opts.Heads.Head(q.who); err != nil {
		return err
	}
	f := &feed{server: s, q: q.lasting(), watch: s.desk.open(who, number), trusted: trusted, root: have.Root, echo: reply.Echo}
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	if http.NewResponseController(q.w).Flush() != nil {
		s.desk.close(f.watch)
		return nil
	}
	goesOn = true
	h2.Continue(q.w, func() {
		defer closed()
		defer s.desk.close(f.watch)
		f.run()
	})
	return nil
}

// lasting is the call without what was only needed to begin it: a watch lasts.
func (q *request) lasting() *request {
	return &request{Request: (&http.Request{URL: q.URL}).WithContext(q.Context()), w: q.w, conn: q.conn, who: q.who}
}

// feed is what one watch has told its host.
type feed struct {
	server  *Server
	q       *request
	watch   *watch
	head    []byte         // the last one that was sent
	root    catalog.Digest // of the last one that the host has, or was sent
	trusted uint64         // the highest number of trust documents that the host knows of
	servers []string       // the last ones that the host was told
	echo    uint64         // what is to be said first; 0: nothing
	// left is what the host keeps for others that are away: heads, by the UIDs of their nodes.
	left map[string][]byte
}

// run feeds the host until the watch ends, in whatever way. It waits for nearly all of that time, of which there are as many as hosts: whatever
// needs more of a stack than waiting does is done aside.
func (f *feed) run() {
	t := f.server.opts.Times
	end := time.Now().Add(t.Watch.draw())
	due := func() time.Duration { return min(f.server.together(t.Heartbeat.draw()), time.Until(end)) }
	timer := time.NewTimer(due())
	defer timer.Stop()
	repeat := false
	for {
		var changed <-chan struct{}
		ok := true
		h2.Aside(func() {
			if repeat {
				ok = f.deposit()
			}
			if ok {
				changed, ok = f.news(repeat)
			}
		})
		if !ok {
			return
		}
		repeat = false
		select {
		case <-changed:
		case <-f.watch.asked:
		case <-timer.C:
			if !time.Now().Before(end) {
				h2.Aside(func() { f.frame(f.server.again()) })
				return
			}
			if f.server.opts.Serving() != nil {
				return
			}
			repeat = true
			timer.Reset(due())
		case <-f.server.stopping:
			h2.Aside(func() { f.frame(f.server.again()) })
			return
		case <-f.q.Context().Done():
			return
		}
	}
}

// beatGrain is how far apart heartbeats of different hosts are: those within it are sent at once. Each by itself would wake a processor that
// sleeps, which takes as long as to send some.
const beatGrain = 250 * time.Millisecond

// together makes a wait end with those of other watches.
func (s *Server) together(wait time.Duration) time.Duration {
	since := time.Since(s.began)
	return (since + wait + beatGrain - 1).Truncate(beatGrain) - since
}

// news sends what the host does not have yet; with repeat also the head that it has. The channel is closed when there may be another head;
// ok is false when the watch is over.
func (f *feed) news(repeat bool) (changed <-chan struct{}, ok bool) {
	s, who := f.server, f.q.who
	if f.echo != 0 && !f.frame(wire.Frame{Echo: f.echo}) {
		return nil, false
	}
	f.echo = 0
	if _, highest, err := s.opts.Members.Trust(f.trusted); err == nil && highest > f.trusted {
		if !f.frame(wire.Frame{Trust: highest}) {
			return nil, false
		}
		f.trusted = highest
	}
	if all := s.opts.Servers(); len(all) > 1 && !slices.Equal(all, f.servers) {
		if !f.frame(wire.Frame{Servers: all}) {
			return nil, false
		}
		f.servers = all
	}
	head, changed, err := s.opts.Heads.Head(who)
	if err != nil {
		return nil, false // the node is gone
	}
	if len(head) > 0 && (repeat || !bytes.Equal(head, f.head)) {
		frame := wire.Frame{Head: head}
		if !bytes.Equal(head, f.head) {
			frame.List = f.list(head)
		}
		if !f.frame(frame) {
			return nil, false
		}
		f.head = head
		s.metrics.heads.Inc()
		if repeat {
			s.opts.Presence.Asked(who, f.watch.number)
		}
	}
	if !f.carry() {
		return nil, false
	}
	for _, question := range s.desk.take(f.watch) {
		if !f.frame(wire.Frame{Question: &question}) {
			return nil, false
		}
	}
	return changed, true
}

// list is the list that a head names, to be sent along with it; nil where the host has that, it is long, or it is not at hand.
func (f *feed) list(head []byte) []byte {
	lists, can := f.server.opts.Content.(atHand)
	_, h, err := catalog.DecodeHead(head)
	if !can || err != nil {
		return nil
	}
	root, _ := h.Root()
	if root == f.root {
		return nil
	}
	f.root = root
	if list, found := lists.ListAtHand(root); found && len(list) <= wire.ListMax {
		return list
	}
	return nil
}

// frame sends one message; false when the host does not get it.
func (f *feed) frame(message wire.Frame) bool {
	var b bytes.Buffer
	if err := wire.WriteFrame(&b, message); err != nil {
		f.server.opts.Log.Error("write to a watch", "node", f.q.who.Name, "err", err)
		return false
	}
	return f.server.send(f.q, b.Bytes()) == nil
}
