package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	transfercore "tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/relay/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// silenceMax is how long a server may say nothing: it says at least once a minute that it is there.
	silenceMax = 150 * time.Second
	// signPause is how often the relay says that it is there.
	signPause = time.Minute
	// streamLong is how long a stream must have been open for its end not to count as another failure, and streamShort for the server's word
	// to be enough for the next one.
	streamLong, streamShort = time.Minute, 5 * time.Second
	// againMax is the longest pause between two streams that a server may ask for with its last word.
	againMax = time.Minute
)

var errAgain = errors.New("the stream was ended")

// stream keeps the stream to a server open until ctx ends.
func (r *Relay) stream(ctx context.Context, random *rand.Rand) {
	var backoff transfercore.Backoff
	var said reason.Code
	for ctx.Err() == nil {
		began, to := time.Now(), r.servers.current()
		again, err := r.streamOnce(ctx, to)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= streamLong {
			backoff.Reset()
		}
		if err != nil {
			e := reason.Of(err)
			if e.Code != said {
				r.opts.Log.Warn("be connected to a server", "server", to.Address(), "err", err, "hint", e.Hint)
			}
			if said = e.Code; reason.Is(err, reason.CertificateRefused) {
				poke(r.trusted) // it may be of an authority that only later documents name
			}
			again = max(backoff.Next(random), client.PauseOf(err))
			r.servers.failed(time.Now())
		} else if said = 0; time.Since(began) < streamShort {
			again = max(again, backoff.Next(random))
		}
		r.rest(ctx, again)
	}
}

// rest waits for a while. When the relay has been without a server for too long meanwhile, its agents learn it.
func (r *Relay) rest(ctx context.Context, d time.Duration) {
	until := time.Now().Add(d)
	r.agents.mu.Lock()
	abandoned, at := r.agents.roster.Abandoned(time.Now())
	r.agents.mu.Unlock()
	if !abandoned && !at.IsZero() && at.Before(until) {
		abandoned = pause(ctx, time.Until(at))
	}
	if abandoned {
		r.agents.changes()
	}
	pause(ctx, time.Until(until))
}

// streamOnce has one stream open, as long as it goes well. With no error, again is until the next one.
func (r *Relay) streamOnce(ctx context.Context, to *client.Upstream) (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, up := io.Pipe()
	r.agents.with(func(roster *core.Roster) { roster.Begun() })
	var all sync.WaitGroup
	all.Go(func() { r.say(ctx, up) })
	defer func() {
		_ = body.CloseWithError(context.Canceled) // never fails
		cancel()
		all.Wait()
		r.agents.with(func(roster *core.Roster) { roster.Ended(time.Now()) })
		r.metrics.connected.Set(0)
	}()
	err = to.Relay(ctx, body, silenceMax, func() {
		r.opts.Log.Info("connected to a server", "server", to.Address())
		r.metrics.connected.Set(1)
		r.agents.with(func(roster *core.Roster) { roster.Answered() })
	}, func(down *wire.RelayDown) error {
		if err := down.Validate(); err != nil {
			return &reason.Error{Code: reason.TransferWrong, Doing: "read what server " + to.Address() + " says", Cause: err}
		}
		if down.Again != nil {
			again = min(max(time.Duration(*down.Again), 1)*time.Millisecond, againMax)
			return errAgain
		}
		r.hear(ctx, to, down)
		return nil
	})
	switch {
	case errors.Is(err, errAgain):
		return again, nil
	case errors.Is(err, io.EOF):
		err = &reason.Error{Code: reason.ServerUnreachable, Doing: "be connected to server " + to.Address(), Cause: errAgain}
	}
	return 0, err
}

// say tells the server of agents whenever there is something to tell, and now and then that the relay is there.
func (r *Relay) say(ctx context.Context, up *io.PipeWriter) {
	sign := time.NewTicker(signPause)
	defer sign.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	first := true
	for ctx.Err() == nil {
		agents, next := r.agents.take(time.Now())
		if first || len(agents) > 0 {
			if first = false; !r.write(up, agents) {
				return
			}
			continue
		}
		due.Stop()
		if !next.IsZero() {
			due.Reset(time.Until(next))
		}
		select {
		case <-r.agents.nudge:
		case <-due.C:
		case <-sign.C:
			if !r.write(up, nil) {
				return
			}
		case <-ctx.Done():
		}
	}
}

// write writes messages about agents, of which as many go into one as fit; false when the stream has ended.
func (r *Relay) write(up *io.PipeWriter, agents []wire.RelayedAgent) bool {
	var b bytes.Buffer
	err := wire.WriteFrame(&b, wire.RelayUp{Protocol: wire.Protocol, Agents: agents})
	if half := len(agents) / 2; err != nil && half > 0 {
		return r.write(up, agents[:half]) && r.write(up, agents[half:])
	}
	if err != nil { // one agent alone is within the bounds of a message, as its report and its certificate are
		r.opts.Log.Error("tell the server of agents", "err", err)
		return true
	}
	_, err = up.Write(b.Bytes())
	return err == nil
}

// hear takes in what the server says.
func (r *Relay) hear(ctx context.Context, from *client.Upstream, down *wire.RelayDown) {
	if down.Trust > r.opts.Identity.Trust().Current().Number {
		poke(r.trusted)
	}
	if len(down.Servers) > 0 {
		r.servers.learn(down.Servers)
	}
	for _, q := range r.agents.came(down) {
		r.question(ctx, from, q)
	}
}
