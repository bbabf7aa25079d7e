package server

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"tako.dev/tako/internal/catalog"
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
	defer func() {
		s.opts.Presence.Closed(q.who, number, q.conn.dead.Load())
		s.metrics.watches.Dec()
	}()
	s.opts.Presence.Heard(q.who, number, &r.Report)
	if err := s.opts.Heads.Shown(q.Context(), q.who, have); err != nil {
		return err
	}
	if _, _, err := s.opts.Heads.Head(q.who); err != nil {
		return err
	}
	w := s.desk.open(q.who, number)
	defer s.desk.close(w)
	q.w.Header().Set("Content-Type", contentType)
	q.w.WriteHeader(http.StatusOK)
	if http.NewResponseController(q.w).Flush() != nil {
		return nil
	}
	f := feed{server: s, q: q, watch: w, trusted: trusted, root: have.Root}
	f.run()
	return nil
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
	// left is what the host keeps for others that are away: heads, by the UIDs of their nodes.
	left map[string][]byte
}

// run feeds the host until the watch ends, in whatever way.
func (f *feed) run() {
	t := f.server.opts.Times
	beat, end := time.NewTimer(t.Heartbeat.draw()), time.NewTimer(t.Watch.draw())
	defer beat.Stop()
	defer end.Stop()
	repeat := false
	for {
		changed, ok := f.news(repeat)
		if !ok {
			return
		}
		repeat = false
		select {
		case <-changed:
		case <-f.watch.asked:
		case <-beat.C:
			if f.server.opts.Serving() != nil {
				return
			}
			if repeat = true; !f.deposit() {
				return
			}
			beat.Reset(t.Heartbeat.draw())
		case <-end.C:
			f.frame(f.server.again())
			return
		case <-f.server.stopping:
			f.frame(f.server.again())
			return
		case <-f.q.Context().Done():
			return
		}
	}
}

// news sends what the host does not have yet; with repeat also the head that it has. The channel is closed when there may be another head;
// ok is false when the watch is over.
func (f *feed) news(repeat bool) (changed <-chan struct{}, ok bool) {
	s, who := f.server, f.q.who
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
