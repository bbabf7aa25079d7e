package swarm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"time"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/client/clienttest"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// work is what a simulated host takes to do what it was told: a durable write of one small file.
const work = 3 * time.Millisecond

// againMax is the longest pause between two watches that a server may ask for.
const againMax = time.Minute

// host is one simulated host. All but tally belongs to the goroutine of run.
type host struct {
	node        catalog.Node
	chain       *trust.Chain
	certificate tls.Certificate
	from        netip.Addr // the zero address is any
	random      *rand.Rand

	store   client.Store
	machine *core.Machine
	state   core.State // handed over last
	since   time.Time  // it was acted on
	acts    time.Time  // when the host has acted on it; zero: it has
	report  reporter
	runs    []wire.Instance // instances of the state that was acted on, all running
	list    []byte          // that came with a head

	line  *line // nil while there is no connection
	tally tally
}

// line is a connection of a host, with the calls that are open on it.
type line struct {
	*link
	calls map[uint32]*call
	watch uint32    // the stream of the watch; 0: none is open
	again time.Time // when to open one; zero: not
	fails core.Backoff
}

// call is one that is open.
type call struct {
	kind   kind
	id     uint64 // of the machine's request
	status int
	data   []byte
	// running is how many instances a report says run.
	running int
}

type kind uint8

const (
	watching kind = iota
	syncing
	asking // for nodes
	reporting
)

func newHost(node catalog.Node, chain *trust.Chain, certificate tls.Certificate, from netip.Addr) *host {
	seed := fnv.New64()
	seed.Write([]byte(node.UID))
	return &host{
		node: node, chain: chain, certificate: certificate, from: from, random: rand.New(rand.NewPCG(seed.Sum64(), 1)), store: &clienttest.Memory{},
	}
}

// errDropped is of a connection that the command says to end.
var errDropped = errors.New("the connection was dropped")

// run follows a server until the context ends. Where it is, and when to end the connection, is told by gate.
func (h *host) run(ctx context.Context, g *gate) error {
	kept, err := h.store.Kept()
	if err != nil {
		return err
	}
	h.machine = core.New(core.Options{Node: h.node, Chain: h.chain, Kept: kept, Held: h.store, Sources: 1, Random: h.random})
	h.step(core.Began{})
	var fails core.Backoff
	for {
		to, err := g.open(ctx)
		if err != nil {
			return nil
		}
		began := time.Now()
		err = h.connect(ctx, to)
		h.lost()
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) >= time.Minute {
			fails.Reset()
		}
		if errors.Is(err, errDropped) {
			continue // it is back at once
		}
		h.tally.fail(err)
		if wait(ctx, fails.Next(h.random)) != nil {
			return nil
		}
	}
}

// connect has one connection, until it ends.
func (h *host) connect(ctx context.Context, to *target) error {
	h.tally.dials.Add(1)
	l, err := dial(ctx, h.from, to.address, to.config(h))
	if err != nil {
		return err
	}
	h.line = &line{link: l, calls: map[uint32]*call{}, again: time.Now()}
	messages, ended, gone := make(chan message), make(chan error, 1), make(chan struct{})
	to.tasks.Go(func() {
		ended <- l.read(func(m message) bool {
			select {
			case messages <- m:
				return true
			case <-gone:
				return false
			}
		})
	})
	defer close(gone)
	defer l.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := h.due(time.Now()); err != nil {
			return err
		}
		timer.Reset(time.Until(h.wake()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-to.drop:
			return errDropped
		case err := <-ended:
			return err
		case m := <-messages:
			if err := h.message(m); err != nil {
				return err
			}
		case <-timer.C:
		}
	}
}

// lost ends all calls whose answers do not come any more.
func (h *host) lost() {
	h.tally.watching.Store(false)
	l := h.line
	h.line = nil
	if l == nil {
		return
	}
	for _, c := range l.calls {
		h.fail(c, errors.New("the connection has ended"), 0)
	}
	if h.report.sent { // it could not be written any more, so it is no call
		h.report.failed(time.Now(), 0, h.random)
	}
}

// forever is further away than a process lives.
const forever = 24 * time.Hour

// wake is when something is due by itself.
func (h *host) wake() time.Time {
	at := time.Now().Add(forever)
	for _, other := range []time.Time{h.acts, h.line.again, h.report.dueAt()} {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	if other, due := h.machine.Wake(); due && other.Before(at) {
		at = other
	}
	return at
}

// due does what is.
func (h *host) due(now time.Time) error {
	if !h.acts.IsZero() && !h.acts.After(now) {
		h.acts, h.since = time.Time{}, now
		if err := h.start(now); err != nil {
			return err
		}
		h.tally.done.Store(h.state.Mark.Version)
		h.report.changed(now)
	}
	if at, due := h.machine.Wake(); due && !at.After(now) {
		h.step(core.Ticked{})
	}
	l := h.line
	if !l.again.IsZero() && !l.again.After(now) {
		l.again = time.Time{}
		r := h.next()
		stream, err := h.call(&call{kind: watching}, wire.PathWatch, wire.WatchRequest{Protocol: wire.Protocol, Report: r})
		if err != nil {
			return err
		}
		l.watch = stream
	}
	if h.report.take(now, h.tally.watching.Load()) {
		r := h.next()
		if _, err := h.call(&call{kind: reporting, running: runningOf(r.Instances)}, wire.PathStatus, r); err != nil {
			return err
		}
		h.tally.reports.Add(1)
	}
	return nil
}

// call opens a call.
func (h *host) call(c *call, path string, body any) (uint32, error) {
	data, err := wire.Encode(body)
	if err != nil {
		return 0, err
	}
	stream, err := h.line.post(path, data)
	if err == nil {
		h.line.calls[stream] = c
	}
	return stream, err
}

// message takes in a piece of an answer. The error ends the connection.
func (h *host) message(m message) error {
	c := h.line.calls[m.stream]
	if c == nil {
		return nil // nobody waits for it any more
	}
	if m.status != 0 {
		c.status = m.status
	}
	c.data = append(c.data, m.data...)
	if c.status == 200 && (c.kind == watching || c.kind == syncing) {
		if err := h.frames(m.stream, c); err != nil {
			return err
		}
	}
	if !m.end || h.line.calls[m.stream] == nil {
		return nil
	}
	delete(h.line.calls, m.stream)
	switch {
	case m.broken != nil:
		h.fail(c, m.broken, 0)
	case c.status != 200:
		err := problemOf(c)
		h.fail(c, err, reason.Of(err).After)
	default:
		return h.answered(c)
	}
	return nil
}

// problemOf is why a server does not serve a call.
func problemOf(c *call) error {
	var p wire.Problem
	if err := wire.Decode(c.data, &p); err != nil {
		return fmt.Errorf("HTTP %d: %w", c.status, err)
	}
	code, err := reason.ParseCode(p.Code)
	if err != nil {
		return fmt.Errorf("HTTP %d: %s", c.status, p.Message)
	}
	return &reason.Error{Code: code, Doing: "call the server", Cause: errors.New(p.Message), After: time.Duration(p.RetryAfter) * time.Millisecond}
}

// frames takes in what has come whole of a stream of messages.
func (h *host) frames(stream uint32, c *call) error {
	for {
		data, rest, whole, err := frameOf(c.data)
		if err != nil || !whole {
			return err
		}
		c.data = rest
		if c.kind == watching {
			var f wire.Frame
			if err := wire.Decode(data, &f); err != nil {
				return err
			}
			h.frame(f)
			continue
		}
		var part wire.SyncPart
		if err := wire.Decode(data, &part); err != nil {
			return err
		}
		if part.Last {
			delete(h.line.calls, stream)
		}
		if part.Kind == wire.SyncSnapshot && part.Last {
			h.tally.snapshots.Add(1)
		}
		h.step(core.PartCame{ID: c.id, Part: part})
	}
}

// frame takes in what a watch says.
func (h *host) frame(f wire.Frame) {
	h.tally.watching.Store(true)
	h.line.fails.Reset()
	switch {
	case f.Again != nil:
		h.tally.watching.Store(false)
		delete(h.line.calls, h.line.watch)
		h.line.watch = 0
		h.line.again = time.Now().Add(min(max(time.Duration(*f.Again), 1)*time.Millisecond, againMax))
	case f.Head != nil:
		h.tally.heads.Add(1)
		if f.List != nil {
			h.list = f.List
		}
		h.step(core.HeadCame{Signed: f.Head})
		h.report.lazy(time.Now()) // a head that is known already is a question whether the host is there
	case f.Trust > h.chain.Current().Number:
		h.tally.fail(errors.New("there are later trust documents, which a simulated host does not follow"))
	}
}

// answered takes in a whole answer.
func (h *host) answered(c *call) error {
	switch c.kind {
	case watching: // without a word when to come again
		h.tally.watching.Store(false)
		h.line.watch = 0
		return errors.New("the server has ended the watch")
	case syncing:
		h.step(core.Failed{ID: c.id, Err: errors.New("the answer ended before its last part")})
	case asking:
		var reply wire.NodesReply
		if err := wire.Decode(c.data, &reply); err != nil {
			return err
		}
		h.step(core.NodesCame{ID: c.id, Reply: reply})
	case reporting:
		var reply wire.StatusReply
		if err := wire.Decode(c.data, &reply); err != nil {
			return err
		}
		h.tally.running.Store(int64(c.running))
		h.report.answered(time.Now(), time.Duration(reply.RetryAfter)*time.Second)
	}
	return nil
}

// fail ends a call that was not answered.
func (h *host) fail(c *call, err error, after time.Duration) {
	switch c.kind {
	case watching:
		h.tally.watching.Store(false)
		if h.line != nil {
			h.line.watch = 0
			h.line.again = time.Now().Add(max(h.line.fails.Next(h.random), min(after, againMax)))
		}
	case syncing, asking:
		h.step(core.Failed{ID: c.id, Err: err, After: after})
	case reporting:
		h.report.failed(time.Now(), after, h.random)
	}
	if h.line != nil {
		h.tally.fail(err)
	}
}

// frameOf is the first message of a stream, when it has come whole.
func frameOf(data []byte) (first, rest []byte, whole bool, err error) {
	const lengthBytes = 4
	if len(data) < lengthBytes {
		return nil, data, false, nil
	}
	n := int(data[0])<<24 | int(data[1])<<16 | int(data[2])<<8 | int(data[3])
	if n > wire.FrameMax {
		return nil, data, false, fmt.Errorf("a message of %d bytes", n)
	}
	if len(data) < lengthBytes+n {
		return nil, data, false, nil
	}
	return data[lengthBytes : lengthBytes+n], data[lengthBytes+n:], true, nil
}
