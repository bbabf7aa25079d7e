package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// askTime bounds how long the transfer waits for the loop. A loop that is busy loading 100,000 resources takes a second.
const askTime = 30 * time.Second

// transfer talks to the servers until the context ends.
func (l *loop) transfer(ctx context.Context) error {
	j := l.joined
	log := l.opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	h := &hosted{loop: l, log: log, damaged: make(chan struct{}, 1)}
	// What a state sets going outlives the call that hands it over: it ends with the run.
	h.activate = func(c candidate) (wire.Verdict, error) { return l.activate(ctx, c) }
	h.report = func() (wire.Report, error) {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		return ask(ctx, l, func() (wire.Report, error) { return l.tell(), nil })
	}
	store := j.held.Telling(func() { l.post(ctx, func() { l.outlive(ctx) }) })
	opts := client.Options{Store: store, Host: h, Identity: j.identity, Log: log, Links: &j.links, Names: j.naming.Names(), Spool: l.opts.StateDir, Heard: j.instances.Heard, Hungry: j.instances.Hungry,
		Session: wire.Session{ID: string(trust.NewToken(trust.TokenJoin).ID()), Start: j.held.Life().Starts}}
	j.peering.Open(ctx, log)
	defer j.peering.Close()
	j.peering.Ask(&opts)
	c, err := client.New(opts)
	if err != nil {
		return err
	}
	j.client.Store(c)
	defer j.client.Store(nil)
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { l.lookThrough(ctx, h, c) })
	beside.Go(func() { j.peering.Run(ctx, log) })
	return c.Run(ctx)
}

// lookThrough has what is held verified anew where it was found damaged: by whoever read it, or by the look at all of it that goes with each
// audit.
func (l *loop) lookThrough(ctx context.Context, h *hosted, c *client.Client) {
	var due <-chan time.Time // never, where there are no audits
	if l.opts.Audit > 0 {
		ticker := time.NewTicker(l.opts.Audit)
		defer ticker.Stop()
		due = ticker.C
	}
	for {
		select {
		case <-h.damaged:
			c.Reread(ctx)
		case <-due:
			whole, err := l.joined.held.Check(ctx)
			if err != nil && ctx.Err() == nil {
				h.log.Warn("look through what is held", "err", err)
			}
			if !whole {
				c.Reread(ctx)
			}
		case <-ctx.Done():
			return
		}
	}
}

// hosted is the loop as the transfer sees it. It is a client.Host.
type hosted struct {
	loop     *loop
	log      *slog.Logger
	activate func(candidate) (wire.Verdict, error) // in the loop's goroutine
	report   func() (wire.Report, error)
	// damaged has something when what is held is to be looked through; room for one.
	damaged chan struct{}

	mu   sync.Mutex // guards what follows
	last wire.Report
}

var _ client.Host = (*hosted)(nil)

// Activate is part of client.Host. What is read from the disk is read here, beside the loop.
func (h *hosted) Activate(ctx context.Context, s core.State) (wire.Verdict, error) {
	l := h.loop
	c := candidate{mark: s.Enforces(), head: s.Head, trying: s.Trying}
	if v, err := ask(ctx, l, func() (wire.Verdict, error) { return l.setOut(&c) }); err != nil || v.Type != wire.Pending {
		return v, err
	}
	c.content, c.err = l.joined.held.Contents(c.mark.Root)
	if reason.Is(c.err, reason.StateCorrupt) && !errors.As(c.err, &held.Unusable{}) {
		select {
		case h.damaged <- struct{}{}:
		default:
		}
	}
	if c.err == nil {
		c.lost = l.joined.held.Losing(s.Mark.Root)
	}
	return ask(ctx, l, func() (wire.Verdict, error) { return h.activate(c) })
}

// Report is part of client.Host. The last one is repeated where the loop does not answer.
func (h *hosted) Report() wire.Report {
	r, err := h.report()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.last = r
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	instances, sampled, ago := h.loop.joined.instances.Report(ctx)
	h.last.Instances, h.last.Echo = instances, h.loop.joined.instances.Echo()
	if u := h.last.Usage; u != nil {
		is := *u // reports that are under way have the one before
		is.Sampled, is.SampledAgo = uint64(time.Duration(sampled).Milliseconds()), uint64(ago.Milliseconds())
		h.last.Usage = &is
	}
	return h.last
}

// Changed is part of client.Host.
func (h *hosted) Changed() <-chan struct{} { return h.loop.joined.news }

// Answer is part of client.Host.
func (h *hosted) Answer(ctx context.Context, q wire.Question, w io.Writer) error {
	return h.loop.respond(ctx, q, w)
}
