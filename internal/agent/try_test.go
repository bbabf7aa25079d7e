package agent

import (
	"context"
	"testing"

	"tako.dev/tako/internal/agent/book"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/agent/subscribe"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// TestTimeOverMeanwhile: a state whose time is over while it is handed over once more, and read, stays given up.
func TestTimeOverMeanwhile(t *testing.T) {
	s, c := joinedSite(t)
	stop := s.watch()
	good := c.assign(nil, c.config("NodeConfig/web", 5, fileOf("a")))
	c.settles(good, wire.Applied)
	m := c.assign(func(h *catalog.Head) { h.Try = &catalog.Try{Seconds: 600, Fallback: good.Root} }, c.config("NodeConfig/web", 5, textOf("a", "tried")))
	c.settles(m, wire.Applied)
	stop()

	opts := s.opts
	opts.Watch = true
	a, err := New(opts)
	must(t, err)
	defer func() { must(t, a.Close()) }()
	subs, err := subscribe.New(subscribe.Options{Root: s.opts.Root, Lasting: true})
	must(t, err)
	defer subs.Close()
	timers, err := newTimers()
	must(t, err)
	defer timers.alarm.Close()
	ctx, cancel := context.WithCancel(t.Context())
	l := &loop{
		opts: &a.opts, store: a.store, subs: subs, inbox: make(chan func(), inboxSize), timers: timers,
		bodies: load.NewBodies(a.store), book: book.New(a.store, nil), source: a.joined, joined: a.joined,
	}
	defer func() {
		cancel()
		l.end()
	}()
	must(t, l.keepInstances(ctx))
	must(t, l.begin(ctx))

	head, _ := c.current()
	_, h, err := catalog.DecodeHead(head)
	must(t, err)
	again := candidate{mark: m, head: h}
	if v, err := l.setOut(&again); err != nil || v.Type != wire.Pending {
		t.Fatalf("it is not read: %+v, %v", v, err)
	}
	again.content, again.err = l.joined.held.Contents(m.Root)
	l.joined.life.Try.Until = 1
	l.appointment(ctx)
	if l.joined.life.Enforced != good {
		t.Fatalf("it has not fallen back: %+v", l.joined.life)
	}
	v, err := l.activate(ctx, again)
	if err != nil || v.Type != wire.Rejected || v.Code != reason.TryNotConfirmed {
		t.Errorf("it is %+v, %v", v, err)
	}
	if l.joined.life.Enforced != good || l.joined.life.Try != nil {
		t.Errorf("enforced is %+v", l.joined.life)
	}
}
