package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/bucket"
	"tako.dev/tako/internal/transfer/wire"
)

// Bounds of questions.
const (
	askMax = 30 * time.Second // that somebody waits for an answer, unless he says less
	// openMax is how many questions one host may have open.
	openMax = 4
	// answerRate is how many bytes of answers one host may send each second.
	answerRate  = 1 << 20
	answerPiece = 32 << 10
	// problemMax is above a wire.Problem at its bounds.
	problemMax = 4 << 10
)

// desk is where questions go out and answers come in. It knows which hosts are watching.
type desk struct {
	metrics *metrics

	mu        sync.Mutex        // guards all below, and the fields of watches and questions that say so
	watches   map[string]*watch // by UID of the node, which another one by its name does not have; the newest that is open
	questions map[uint64]*question
	last      uint64 // number of a question
}

// watch is one that is open.
type watch struct {
	who    Identity
	number uint64
	asked  chan struct{} // has room for one: there are questions to send
	ended  chan struct{}

	// guarded by desk.mu
	older  *watch // of the same node, and open too
	unsent []wire.Question
	open   int // questions without an answer
	rate   bucket.Bucket
}

// question is one that somebody waits for.
type question struct {
	wire.Question
	watch  *watch
	until  time.Time
	answer chan answer // has room for one
}

// answer is what came of a question.
type answer struct {
	body io.ReadCloser
	err  error
}

func newDesk(m *metrics) *desk {
	return &desk{metrics: m, watches: map[string]*watch{}, questions: map[uint64]*question{}}
}

// open notes a watch. An older one of the same host stays open as long as it likes, and is asked nothing while a newer one is open. The newer one may end
// first: where a relay or server has told late of one that was over.
func (d *desk) open(who Identity, number uint64) *watch {
	w := &watch{who: who, number: number, asked: make(chan struct{}, 1), ended: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	newer, at := (*watch)(nil), d.watches[who.UID]
	for at != nil && at.number > number {
		newer, at = at, at.older
	}
	if at != nil && at.who.Key == who.Key { // what another host is asked is not for this one
		w.older = at
	}
	switch {
	case newer == nil:
		d.watches[who.UID] = w
	case newer.who.Key == who.Key:
		newer.older = w
	}
	return w
}

// close forgets a watch. Who waits for an answer to a question that it has sent may still get it.
func (d *desk) close(w *watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer close(w.ended)
	newest := d.watches[w.who.UID]
	if newest != w {
		for at := newest; at != nil; at = at.older {
			if at.older == w {
				at.older = w.older
			}
		}
		return
	}
	if d.watches[w.who.UID] = w.older; w.older == nil {
		delete(d.watches, w.who.UID)
	}
}

// hosts is how many nodes have a watch open, but those for which another server speaks.
func (d *desk) hosts() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.watches {
		if w.who.Server == "" {
			n++
		}
	}
	return n
}

// newest is the number of the newest watch that a node has open, 0 when it has none.
func (d *desk) newest(who Identity) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.watches[who.UID]; w != nil {
		return w.number
	}
	return 0
}

// take is what is to be sent to the host of a watch now.
func (d *desk) take(w *watch) []wire.Question {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := w.unsent
	w.unsent = nil
	return all
}

// Hosts is how many hosts are connected to this server, those through relays too.
func (s *Server) Hosts() int { return s.desk.hosts() }

// Ask asks the host of a node, and of no earlier node by its name, and returns its answer as it comes. The caller closes it. ctx bounds the wait until the answer begins; the
// whole takes at most q.Seconds, 30 s when that is 0. q.ID is set by Ask. The errors are HostNotConnected, TransferBusy, DeadlineOver,
// and what the host says why it does not answer.
func (s *Server) Ask(ctx context.Context, node, uid string, q wire.Question) (io.ReadCloser, error) {
	doing := "ask node " + node
	open, err := s.desk.ask(node, uid, q, time.Now())
	if err != nil {
		return nil, err
	}
	result := "late"
	defer func() { s.metrics.questions.WithLabelValues(open.What, result).Inc() }()
	timer := time.NewTimer(time.Until(open.until))
	defer timer.Stop()
	select {
	case a := <-open.answer:
		result = "answered"
		if a.err != nil {
			result = "refused"
		}
		return a.body, a.err
	case <-open.watch.ended:
		err = notConnected(doing, errors.New("its connection has ended"))
		result = "unconnected"
	case <-timer.C:
		err = &reason.Error{Code: reason.DeadlineOver, Doing: doing, Cause: fmt.Errorf("no answer within %d s", open.Seconds)}
	case <-s.stopping:
		err = notConnected(doing, errors.New("this server stops"))
	case <-ctx.Done():
		err = &reason.Error{Code: reason.DeadlineOver, Doing: doing, Cause: context.Cause(ctx)}
	}
	s.desk.drop(open)
	return nil, err
}

func notConnected(doing string, cause error) error {
	return &reason.Error{
		Code: reason.HostNotConnected, Doing: doing, Cause: cause,
		Hint: "on the host itself `tako-agent status`, `tako-agent why` and `tako-agent history` answer without a server",
	}
}

// ask puts a question to the newest watch of a node.
func (d *desk) ask(node, uid string, q wire.Question, now time.Time) (*question, error) {
	doing := "ask node " + node
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.watches[uid]
	if w == nil {
		d.metrics.questions.WithLabelValues(q.What, "unconnected").Inc()
		return nil, notConnected(doing, nil)
	}
	if w.open >= openMax {
		d.metrics.questions.WithLabelValues(q.What, "busy").Inc()
		return nil, &reason.Error{Code: reason.TransferBusy, Doing: doing, Cause: fmt.Errorf("%d questions to it are open", w.open), After: time.Second}
	}
	d.last++
	w.open++
	if most := uint32(askMax / time.Second); q.Seconds == 0 || q.Seconds > most {
		q.Seconds = most
	}
	q.ID = d.last
	open := &question{Question: q, watch: w, until: now.Add(time.Duration(q.Seconds) * time.Second), answer: make(chan answer, 1)}
	d.questions[q.ID] = open
	w.unsent = append(w.unsent, q)
	select {
	case w.asked <- struct{}{}:
	default: // it has been told, and takes all that there are
	}
	return open, nil
}

// drop gives a question up.
func (d *desk) drop(q *question) {
	if d.claim(q.ID, func(who Identity) bool { return who == q.watch.who }) != nil {
		d.end(q)
		return
	}
	// Its answer has begun to come in this moment.
	if a := <-q.answer; a.body != nil {
		_ = a.body.Close()
	}
}

// claim takes a question for which the answer comes, if it is of one who may answer; nil when nobody waits for it. It counts as open until it has
// ended.
func (d *desk) claim(id uint64, may func(Identity) bool) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.questions[id]
	if q == nil || !may(q.watch.who) {
		return nil
	}
	delete(d.questions, id)
	q.watch.unsent = slices.DeleteFunc(q.watch.unsent, func(u wire.Question) bool { return u.ID == id })
	return q
}

func (d *desk) end(q *question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q.watch.open--
}

// pace is how long a host has to wait with so many bytes more of answers.
func (d *desk) pace(w *watch, n int, now time.Time) time.Duration {
	const each = answerRate / answerPiece
	r := bucket.Rate{Burst: each, Second: each}
	d.mu.Lock()
	defer d.mu.Unlock()
	w.rate.Leak(r, now)
	w.rate.Used += float64(n) / answerPiece
	return max(0, time.Duration((w.rate.Used-r.Burst)/r.Second*float64(time.Second)))
}

// mayAnswer says whether the caller may answer what a host was asked: the host itself, or the relay or server that the question has gone
// through.
func (q *request) mayAnswer(asked Identity) bool {
	if q.who.Relay {
		by := asked.Server == "" && asked.Through == q.who.Name && q.who.Server == "" || asked.Server != "" && asked.Server == q.who.Server
		return by && asked.UID == q.URL.Query().Get(wire.ParamNode)
	}
	return asked == q.who
}

// answer brings the answer of a host to whoever has asked.
func (s *Server) answer(q *request) error {
	const doing = "take an answer"
	id, err := strconv.ParseUint(q.URL.Query().Get(wire.ParamID), 10, 64)
	if err != nil {
		return malformed(doing, errors.New("it does not say to which question"))
	}
	open := s.desk.claim(id, q.mayAnswer)
	if open == nil {
		return &reason.Error{Code: reason.ObjectUnknown, Doing: doing, Cause: fmt.Errorf("nobody waits for an answer to question %d of %s", id, q.who.words())}
	}
	host := open.watch.who
	defer s.desk.end(open)
	if err := http.NewResponseController(q.w).SetReadDeadline(open.until); err != nil {
		open.answer <- answer{err: notConnected(doing, err)}
		return err
	}
	if q.URL.Query().Get(wire.ParamRefused) != "" {
		var p wire.Problem
		err := wire.ReadAll(q.Body, problemMax, &p)
		open.answer <- answer{err: hostRefuses(host, p, err)}
		if err != nil {
			return malformed(doing, err)
		}
		return s.reply(q, struct{}{})
	}
	body, to := io.Pipe()
	open.answer <- answer{body: body}
	ctx, cancel := context.WithDeadline(q.Context(), open.until)
	defer cancel()
	// Who has asked may have stopped to read.
	stop := context.AfterFunc(ctx, func() { _ = to.CloseWithError(cut(host, context.Cause(ctx))) })
	defer stop()
	err = s.pass(ctx, q.Body, to, open.watch)
	if err != nil {
		_ = to.CloseWithError(cut(host, err)) // never fails
		return nil                            // the host has been told by the end of the stream, if it was not its own
	}
	_ = to.Close()
	return s.reply(q, struct{}{})
}

// pass copies an answer, at the pace that a host may have.
func (s *Server) pass(ctx context.Context, from io.Reader, to io.Writer, w *watch) error {
	piece := make([]byte, answerPiece)
	for total := 0; ; {
		n, err := from.Read(piece)
		total += n
		if total > wire.AnswerMax {
			return fmt.Errorf("it has more than %d bytes", wire.AnswerMax)
		}
		if n > 0 {
			if _, err := to.Write(piece[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if wait := s.desk.pace(w, n, time.Now()); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return context.Cause(ctx)
			}
		}
	}
}

// cut is what the reader of an answer gets that does not come to its end.
func cut(who Identity, cause error) error {
	return &reason.Error{Code: reason.ServerUnreachable, Doing: "read the answer of node " + who.Name, Cause: cause}
}

// hostRefuses is what a host says why it does not answer.
func hostRefuses(who Identity, p wire.Problem, err error) error {
	e := &reason.Error{Code: reason.AnswerRefused, Doing: "ask node " + who.Name, Hint: wire.Text(p.Hint)}
	if err != nil || p.Message == "" {
		return e
	}
	e.Cause = errors.New(wire.Text(p.Message))
	return e
}
