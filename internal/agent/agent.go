package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/book"
	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/agent/ground"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/agent/socket"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/agent/subscribe"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// inboxSize bounds what waits for the loop. Senders wait for room; nothing is dropped.
const inboxSize = 64

// patience is how long a single run waits for what is deferred when nothing else is left to do: longer than the types' own
// waits for locks, shorter than a person's.
const patience = 10 * time.Second

// declarationQuiet is how long the declarations must have been left alone before they are read: a file that is being
// copied into place is not yet what somebody wants, and its first half may well be valid.
const declarationQuiet = 200 * time.Millisecond

// Agent keeps one host as declared. It is made by New and lives in Run.
type Agent struct {
	opts   Options
	store  *store.Store
	joined *joined // nil for a host that stands alone
}

// New opens the state directory, of which it becomes the only owner, and starts nothing.
func New(opts Options) (*Agent, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if err := opts.belongs(); err != nil {
		return nil, err
	}
	st, err := store.Open(opts.StateDir, time.Now())
	if err != nil {
		return nil, err
	}
	a := &Agent{opts: opts, store: st}
	if opts.Joined {
		if a.joined, err = openJoined(&opts); err != nil {
			return nil, errors.Join(err, st.Close())
		}
		a.opts.NodeName, a.opts.Labels = a.joined.identity.Node().Name, nil
	}
	return a, nil
}

// Close gives the state directory back, for an Agent that is not run.
func (a *Agent) Close() error {
	err := a.store.Close()
	if a.joined != nil {
		err = errors.Join(err, a.joined.held.Close())
	}
	return err
}

// Run converges, and with Options.Watch stays converged, until the context ends. Operations in flight are waited for. The
// error is nil when everything is converged, or when the context of a watching agent ended. It may be called once; the
// state directory is given back when it returns.
func (a *Agent) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.Close()) }()
	subs, err := subscribe.New(subscribe.Options{Root: a.opts.Root, Bus: a.opts.Bus, Lasting: a.opts.Watch})
	if err != nil {
		return err
	}
	defer subs.Close()
	timers, err := newTimers()
	if err != nil {
		return err
	}
	defer timers.alarm.Close()
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{
		opts: &a.opts, store: a.store, subs: subs, inbox: make(chan func(), inboxSize), timers: timers,
		bodies: load.NewBodies(a.store), book: book.New(a.store, a.opts.OnLine), source: declared(a.opts.Files), joined: a.joined,
	}
	if a.joined != nil {
		l.source, l.book.Scrub = a.joined, a.joined.vault.Scrub
		l.bodies.OpenWith(a.joined.vault.Open)
	}
	var sources sync.WaitGroup
	defer sources.Wait()
	defer cancel()
	if a.joined != nil {
		if err := l.keepInstances(ctx); err != nil {
			return err
		}
	}
	if err := l.begin(ctx); err != nil {
		return err
	}
	l.start(ctx, &sources, l.ready(ctx))
	return l.serve(ctx)
}

// loop is the state of a running agent. Only Run's goroutine touches it, but for what is said to be shared.
type loop struct {
	timers
	doubts
	flight
	opts   *Options
	source source
	joined *joined      // nil for a host that stands alone; what of it is shared is said there
	store  *store.Store // shared
	subs   *subscribe.Subscriptions
	bodies *load.Bodies  // shared
	inbox  chan func()   // shared: work for the loop's goroutine
	ground ground.Ground // shared
	book   *book.Book
	engine *converge.Engine
	lookup declare.Lookup // what the present state was compiled for
	parts  []*part        // by converge.ID
	// delivered is how many values of data the present state has.
	delivered int
	expiry    load.Expiry // of the present state
	told      bool        // OnKept was called
	waited    time.Time   // since when a single run has nothing to do but to wait for locks
}

// flight is what is under way.
type flight struct {
	work   sync.WaitGroup          // operations in flight
	took   map[*part]time.Duration // of the one whose results are being taken in
	ending bool                    // no new operation is started
}

// doubts are what keeps the loop from enforcing the newest declaration as the host is now.
type doubts struct {
	refuse []Problem // why the newest declaration is not the one enforced; empty when it is
	amiss  []Problem // of a host that has joined: why what is enforced could not be read anew; empty when it could
	unkept bool      // a state could not be written down, and is read again when there is room
	unread bool      // the facts could not be read
}

// post hands work to the loop, or gives up when the context ends.
func (l *loop) post(ctx context.Context, f func()) {
	select {
	case l.inbox <- f:
	case <-ctx.Done():
	}
}

// start starts everything that tells the loop something. What is asked comes over s.
func (l *loop) start(ctx context.Context, sources *sync.WaitGroup, s *socket.Socket) {
	run := func(what string, f func(context.Context) error) {
		sources.Go(func() {
			for err := f(ctx); err != nil && ctx.Err() == nil; err = f(ctx) {
				l.post(ctx, func() { l.book.Trouble(what, err) })
				if !reason.Is(err, reason.StateUnwritable) || !clock.Pause(ctx, retryPause) {
					return
				}
			}
		})
	}
	sources.Go(func() {
		l.subs.Run(ctx, func(what string, err error) { l.post(ctx, func() { l.book.Trouble(what, err) }) })
	})
	run("wait for a time", l.alarm.Run)
	if !l.opts.Watch {
		return
	}
	sources.Go(func() {
		l.opts.Facts.Watch(ctx, func() { l.post(ctx, func() { l.observe(ctx) }) },
			func(err error) { l.post(ctx, func() { l.book.Trouble("watch facts", err) }) })
	})
	run("answer questions", func(ctx context.Context) error {
		return socket.Serve(ctx, s, func(asked context.Context, q local.Request) (local.Reply, error) { return l.answer(asked, ctx, q) })
	})
	run("audit", l.audit)
	run("forget old content", l.forgetDaily)
	run("tell the watchdog", l.watchdog)
	if l.joined != nil {
		run("talk to the servers", l.transfer)
		run("keep instances", l.joined.instances.Run)
		run("answer for names", l.joined.naming.Run)
	}
}

// serve is the loop.
func (l *loop) serve(ctx context.Context) error {
	for {
		l.settled()
		if ctx.Err() == nil && !l.opts.Watch && l.engine.Quiet() && !l.patient() {
			break
		}
		select {
		case f := <-l.inbox:
			f()
		case <-l.subs.Wake():
			l.heard(ctx)
		case <-l.wake.C:
			l.step(ctx, converge.Tick{})
		case <-l.quiet.C:
			l.reload(ctx)
		case <-l.rest.Due():
			l.rested()
		case <-l.alarm.Rings():
			l.rang(ctx)
		case <-l.slow.C:
			l.unheard(ctx)
		case <-l.joined.due():
			l.appointment(ctx)
		case <-ctx.Done():
			l.end()
			l.goodbye()
			l.book.Save(l.report(false))
			l.ended()
			if l.opts.Watch {
				return nil
			}
			return &reason.Error{Code: reason.Interrupted, Doing: "converge", Hint: "run it again: it goes on where it stopped"}
		}
	}
	r := l.report(false)
	l.book.Save(r)
	l.ended()
	return r.Verdict()
}

// ended tells of everything at the end of a run.
func (l *loop) ended() {
	if l.opts.OnEnd != nil {
		l.opts.OnEnd(l.report(true))
	}
}

// patient reports whether a single run should wait a little longer: something is deferred that will soon be tried again, such
// as a unit that was not started while this very run changed packages.
func (l *loop) patient() bool {
	now := time.Now()
	for i := range l.parts {
		st := l.engine.Status(converge.ID(i))
		if st.Outcome != reason.Deferred || st.RetryAt.IsZero() || st.RetryAt.Sub(now) > patience {
			continue
		}
		if l.waited.IsZero() {
			l.waited = now
		}
		return now.Sub(l.waited) < patience
	}
	return false
}

// end waits for the operations in flight, taking in what they report, so that nothing that was done is forgotten. Their
// context has ended, so they stop where it is safe.
func (l *loop) end() {
	l.ending = true
	over := make(chan struct{})
	go func() { // ends with the operations, all of which have deadlines
		l.work.Wait()
		close(over)
	}()
	for {
		select {
		case f := <-l.inbox:
			f()
		case <-over:
			for len(l.inbox) > 0 {
				(<-l.inbox)()
			}
			return
		}
	}
}

// heard takes in what the kernel and systemd told.
func (l *loop) heard(ctx context.Context) {
	news := l.subs.Take()
	if news.Declarations {
		l.quiet.Reset(declarationQuiet)
	}
	if news.Everything {
		l.book.Trouble("hear of changes", &reason.Error{Code: reason.WatchOverflow, Doing: "hear of changes", Hint: "everything is checked again; raise fs.inotify.max_queued_events if it happens often"})
	}
	if news.Limits {
		l.rearm()
	}
	if ids := l.subs.Touched(news); len(ids) > 0 {
		l.step(ctx, converge.Touched{IDs: ids})
	}
}

// unheard looks at what the kernel does not tell about.
func (l *loop) unheard(ctx context.Context) {
	l.slowly = false
	n := l.subs.Unheard()
	if n.Declarations {
		l.reload(ctx)
	}
	if ids := l.subs.Touched(n); len(ids) > 0 {
		l.step(ctx, converge.Examine{IDs: ids})
	}
	l.rearm()
}

// step feeds the engine and carries out what it asks for.
func (l *loop) step(ctx context.Context, ev converge.Event) {
	l.carryOut(ctx, l.engine.Step(l.now(), ev))
}

// carryOut persists, reports and starts, in this order.
func (l *loop) carryOut(ctx context.Context, e converge.Effects) {
	failed := l.persist(e.Persist)
	for _, r := range e.Reports {
		l.reported(r)
	}
	l.wake.Stop()
	if e.Wake > 0 {
		l.wake.Reset(e.Wake)
	}
	l.opens = e.Opens
	l.setAlarm()
	if l.ending {
		return
	}
	for _, op := range e.Start {
		l.startOp(ctx, op, failed)
	}
}

// rearm sets the timer of the slow checks, if there is anything to check slowly. One that is set is not put off.
func (l *loop) rearm() {
	needed := l.opts.Watch && l.subs.Unwatched() != nil
	switch {
	case !needed:
		l.slow.Stop()
	case !l.slowly:
		l.slow.Reset(subscribe.SlowCheck)
	}
	l.slowly = needed
}
