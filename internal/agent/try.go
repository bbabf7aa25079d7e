package agent

import (
	"context"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/held"
	"tako.dev/tako/internal/agent/load"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
	"tako.dev/tako/internal/transfer/wire"
)

// tryLook is how often what is left of a try is written down: so much longer may it last when the host is started anew meanwhile.
const tryLook = 5 * time.Second

// judgeTry says why a state to be tried may not be begun with: there would be nothing to fall back to.
func (j *joined) judgeTry(c *candidate) *reason.Error {
	t := c.head.Try
	if t == nil || t.Fallback == c.mark.Root || t.Fallback == j.life.Enforced.Root {
		return nil
	}
	if !j.holds(t.Fallback) {
		return &reason.Error{Code: reason.TryNotConfirmed, Doing: "begin with a trial", Cause: errors.New("the state to fall back to is not here"),
			Hint: "apply the change again when the host has caught up"}
	}
	return nil
}

// armTry notes until when a state may be enforced, if it is only tried.
func (j *joined) armTry(life *held.Life, c *candidate, enforced catalog.Mark) error {
	t := c.head.Try
	if t == nil || t.Fallback == c.mark.Root {
		return nil
	}
	boot, since, err := systemd.Uptime()
	if err != nil {
		return err
	}
	fallback := catalog.Mark{Root: t.Fallback}
	for _, m := range []catalog.Mark{life.Before, enforced} {
		if m.Root == t.Fallback {
			fallback = m
		}
	}
	all := time.Duration(t.Seconds) * time.Second
	life.Try = &held.Try{Mark: c.mark, Fallback: fallback, Boot: boot, Until: int64(since + all), Left: int64(all)}
	return nil
}

// resumeTry goes on counting after a start of the agent, or falls back before anything of what was tried is enforced again.
func (l *loop) resumeTry(life *held.Life) error {
	boot, since, err := systemd.Uptime()
	if err != nil {
		return err
	}
	t := life.Try
	rest := t.Rest(boot, since)
	t.Boot, t.Left, t.Until = boot, int64(rest), int64(since+rest)
	if rest > 0 || !l.joined.holds(t.Fallback.Root) {
		return nil
	}
	was, v := *life, giveUp(life)
	if err := l.joined.held.Remember(v); err != nil {
		*life = was // it falls back once that can be noted, see appointment
		return nil
	}
	l.refuseState(v)
	return nil
}

// holds tells whether a state can be fallen back to.
func (j *joined) holds(root catalog.Digest) bool {
	if root == (catalog.Digest{}) {
		return true
	}
	_, err := j.held.Catalog(root)
	return err == nil
}

// giveUp makes the state before a try the one that is enforced, and returns the verdict on the one that was tried.
func giveUp(life *held.Life) wire.Verdict {
	t := *life.Try
	life.Enforced, life.Before, life.Settled, life.Trial, life.Try = t.Fallback, catalog.Mark{}, true, held.Trial{}, nil
	return verdictOn(t.Mark, wire.Rejected, &reason.Error{Code: reason.TryNotConfirmed, Doing: "try the new state"})
}

// appointment is called when it is time to look at a try.
func (l *loop) appointment(ctx context.Context) {
	if l.joined.life.Try != nil {
		if err := l.continueTry(ctx); err != nil {
			l.book.Trouble("count the time of a trial", err)
			l.joined.next.Reset(tryLook) // a disk that is full now is full in a moment, too
			return
		}
	}
	l.makeAppointment(&l.joined.life)
}

// makeAppointment sets the timer for the next look at a try.
func (l *loop) makeAppointment(life *held.Life) {
	j := l.joined
	j.next.Stop()
	if life.Try == nil {
		return
	}
	rest := tryLook
	if boot, since, err := systemd.Uptime(); err == nil {
		rest = min(rest, max(life.Try.Rest(boot, since), 0))
	}
	j.next.Reset(rest)
}

func (l *loop) continueTry(ctx context.Context) error {
	j := l.joined
	boot, since, err := systemd.Uptime()
	if err != nil {
		return err
	}
	rest := j.life.Try.Rest(boot, since)
	if rest <= 0 {
		return l.fallBack(ctx)
	}
	life, t := j.life, *j.life.Try
	t.Left = int64(rest)
	life.Try = &t
	return j.live(life)
}

// fallBack goes back to the state before a try that nobody has confirmed.
func (l *loop) fallBack(ctx context.Context) error {
	j := l.joined
	life, was := j.life, j.life
	d, c, err := l.before(life.Try.Fallback.Root)
	v := giveUp(&life)
	life.Delivered = uint64(c.Delivered)
	if err != nil {
		life = j.life // there is nothing better than what was tried
		life.Try = nil
	}
	// One after the other: who has noted that it fell back, and no more, would look for nothing. What fails is tried again with the next look.
	if failed := j.held.Remember(v); failed != nil {
		return failed
	}
	if failed := j.live(life); failed != nil {
		return failed
	}
	l.refuseState(v)
	l.book.Show(&l.refuse[0])
	l.happened()
	if err != nil {
		return err
	}
	before, verdict := held.Contents{List: j.list, Own: j.own}, j.verdict
	j.take(c)
	j.verdict = verdictOn(life.Enforced, wire.Pending, nil)
	if err := l.adopt(ctx, d); err != nil {
		// What was tried is enforced still: it falls back with the next look, or with the next start, for which that is noted.
		j.take(before)
		j.life, j.verdict = was, verdict
		return err
	}
	return nil
}

// before is a state from before, out of what is held.
func (l *loop) before(root catalog.Digest) (*load.State, held.Contents, error) {
	var c held.Contents
	if root != (catalog.Digest{}) {
		var err error
		if c, err = l.joined.held.Contents(root); err != nil {
			return nil, c, err
		}
	}
	d, err := load.Layers(root, c.Layers, l.joined.proof(), l.store, load.Labelled(c.Own, l.lookup), l.opts.lane)
	if err == nil {
		d.Delivered = c.Delivered
	}
	return d, c, err
}
