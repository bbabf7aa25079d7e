package client

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"tako.dev/tako/internal/transfer/core"
)

// Client is the host's end of the transfer. Use New, then Run once.
type Client struct {
	opts    Options
	machine *core.Machine   // of Run's goroutine
	events  chan core.Event // to it
	tasks   sync.WaitGroup  // all other goroutines
	lines   *lines
	reports *reports
	doubts  *doubts            // of Run's goroutine
	answers chan struct{}      // a slot for each answer that may be open
	fetch   context.CancelFunc // of the request that is open; of Run's goroutine
	hand    hand
	came    atomic.Pointer[[]byte] // the list that came with the newest head that had one
	brought chan brought           // to Run's goroutine
	peers   neighbours
	away    chan struct{} // something when a server is not there any more; room for one
	// disbelieved is why the machine did not believe what came last; of Run's goroutine.
	disbelieved error

	trust   chan struct{} // something when trust documents should be asked for
	renewed chan struct{} // something when the watch should use another certificate
}

const (
	// answersMax is how many questions are answered at once: as many as a server asks.
	answersMax = 4
	// activateMax is how long the host may take for its first judgement.
	activateMax = 2 * time.Minute
)

// New checks the options, and starts nothing.
func New(opts Options) (*Client, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		opts: opts, events: make(chan core.Event), brought: make(chan brought), answers: make(chan struct{}, answersMax), fetch: func() {}, away: make(chan struct{}, 1),
		trust: make(chan struct{}, 1), renewed: make(chan struct{}, 1), reports: newReports(opts.Host, opts.Session, opts.Links),
		lines: newLines(opts.Dial, opts.Identity), doubts: newDoubts(opts.Log),
	}
	return c, nil
}

// Run brings over what heads name until ctx ends. The errors are those of the store, when it cannot say what it has kept; nothing that
// a server does ends it.
func (c *Client) Run(ctx context.Context) error {
	kept, err := c.opts.Store.Kept()
	if err != nil {
		return err
	}
	c.machine = core.New(core.Options{
		Node: c.opts.Identity.Node(), Chain: c.opts.Identity.Trust(), Kept: kept, Held: c.opts.Store,
		Sources: c.lines.count(), Random: c.random(),
	})
	ctx, cancel := context.WithCancel(ctx)
	defer c.lines.HangUp()
	defer c.hand.close()
	defer c.tasks.Wait()
	defer cancel()
	c.opts.Links.began()
	c.step(ctx, core.Began{})
	watch, report, upkeep, fallback, peers := c.random(), c.random(), c.random(), c.random(), c.random()
	c.tasks.Go(func() { c.watch(ctx, watch) })
	c.tasks.Go(func() { c.report(ctx, report) })
	c.tasks.Go(func() { c.keepUp(ctx, upkeep) })
	c.tasks.Go(func() { c.fallBack(ctx, fallback) })
	if c.opts.Names != nil {
		names := c.random()
		c.tasks.Go(func() { c.names(ctx, names) })
	}
	if c.opts.Peers != nil {
		c.tasks.Go(func() { c.askPeers(ctx, peers) })
	}
	c.loop(ctx)
	return nil
}

// random is another source for another goroutine.
func (c *Client) random() *rand.Rand {
	return rand.New(rand.NewPCG(c.opts.Random.Uint64(), c.opts.Random.Uint64()))
}

// Reread has all that is held verified anew, because something in it is damaged. What is missing is fetched.
func (c *Client) Reread(ctx context.Context) { c.send(ctx, core.Reread{}) }

// send feeds the machine; false when ctx has ended.
func (c *Client) send(ctx context.Context, e core.Event) bool {
	select {
	case c.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Stop()
		if at, due := c.machine.Wake(); due {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case e := <-c.events:
			c.step(ctx, e)
		case b := <-c.brought:
			b.said <- c.heed(ctx, b.event)
		case <-timer.C:
			c.step(ctx, core.Ticked{})
		}
	}
}

// step feeds the machine with an event, and with what becomes of its effects.
func (c *Client) step(ctx context.Context, e core.Event) {
	for e != nil && ctx.Err() == nil {
		effects := c.machine.Step(time.Now(), e)
		status := c.machine.Status()
		c.reports.set(status)
		c.opts.Links.set(status)
		e = c.perform(ctx, effects)
	}
}

// perform does effects, and returns the answer to the last one; nil when there is none, or it comes later.
func (c *Client) perform(ctx context.Context, effects []core.Effect) core.Event {
	for _, e := range effects {
		answer, err := c.do(ctx, e)
		if err != nil {
			c.opts.Log.Warn("keep what was transferred", "err", err)
			return core.Stored{Err: err}
		}
		if answer != nil {
			return answer
		}
	}
	return nil
}

// do does one effect. Its answer is nil when it has none, or it comes later; its error is that of what stores.
func (c *Client) do(ctx context.Context, e core.Effect) (core.Event, error) {
	switch e := e.(type) {
	case core.Accept:
		return core.Stored{}, c.opts.Store.Accept(e.Mark, e.Signed)
	case core.AcceptStatements:
		return core.Stored{}, c.opts.Store.SetStatements(e.Statements)
	case core.PutList:
		return core.Stored{}, c.opts.Store.PutList(e.Encoded)
	case core.Begin:
		staged, err := c.opts.Store.Begin(e.Fetch)
		return core.Stored{Staged: staged}, err
	case core.Commit:
		return core.Stored{}, c.opts.Store.Commit(e.Target)
	case core.Append:
		return nil, c.opts.Store.Append(e.Changes)
	case core.Settle:
		return core.Stored{}, nil // Append returns when it is done
	case core.Drop:
		return nil, c.opts.Store.Drop()
	case core.Activate:
		return c.activate(ctx, e.State), nil
	}
	c.tell(ctx, e)
	return nil, nil
}

// tell does an effect that has no answer, and no error that changes anything.
func (c *Client) tell(ctx context.Context, e core.Effect) {
	var err error
	switch e := e.(type) {
	case core.Prolong:
		err = c.opts.Store.Accept(e.Mark, e.Signed)
	case core.Remember:
		c.opts.Log.Warn("refuse a state", "version", e.Verdict.Version, "verdict", e.Verdict.Type.String(), "code", e.Verdict.Code.String(), "why", e.Verdict.Message)
		err = c.opts.Store.Remember(e.Verdict)
	case core.RememberStatements:
		err = c.opts.Store.SetStatements(e.Statements)
	case core.Count:
		err = c.opts.Store.Count(e.Refused)
	case core.Sync:
		c.start(ctx, func(ctx context.Context) { c.sync(ctx, e) })
	case core.Nodes:
		c.start(ctx, func(ctx context.Context) { c.nodes(ctx, e) })
	case core.Cancel:
		c.fetch()
	case core.AskTrust:
		poke(c.trust)
	case core.Tell:
		poke(c.reports.lazy)
	case core.Disbelieve:
		c.disbelieved = e.Err
		c.doubts.hear(time.Now(), e)
		if e.Doubt == core.DoubtContent {
			c.blame()
		}
	case core.Alarm:
		evidence := base64.StdEncoding
		c.opts.Log.Error("two signed states under one number", "err", e.Err,
			"first", evidence.EncodeToString(e.Evidence[0]), "second", evidence.EncodeToString(e.Evidence[1]))
	}
	if err != nil {
		c.opts.Log.Warn("keep what is known of heads", "err", err)
	}
}

// poke leaves something in a channel that has room for one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *Client) activate(ctx context.Context, s core.State) core.Event {
	ctx, cancel := context.WithTimeout(ctx, activateMax)
	defer cancel()
	v, err := c.opts.Host.Activate(ctx, s)
	if err != nil && ctx.Err() == nil {
		c.opts.Log.Warn("hand a state over", "version", s.Mark.Version, "err", err)
	}
	return core.Judged{Verdict: v, Err: err}
}

// start runs a request beside the loop. One is open at a time.
func (c *Client) start(ctx context.Context, request func(context.Context)) {
	c.fetch()
	ctx, c.fetch = context.WithCancel(ctx)
	c.tasks.Go(func() { request(ctx) })
}
