package follower

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/core"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// silenceMax is how long the leader may say nothing: it says at least once a minute that it is there.
	silenceMax = 150 * time.Second
	// signPause is how often this server says so.
	signPause = time.Minute
	// againMax is the longest pause between two streams that the leader may ask for, and pauseMax the longest after failures: it says how hosts
	// stand, and another leader is known at once.
	againMax, pauseMax = time.Minute, 5 * time.Second
	// questionsMax is how many questions are on their way at once.
	questionsMax = 64
)

// StreamOptions are what a Stream works with; all are required.
type StreamOptions struct {
	Reports  *Reports
	Identity client.Credential
	// Leader is the address of the leader for hosts, empty where there is none but this server; a channel that is closed when that is another one;
	// and one that is closed when there is something new.
	Leader func() (address string, ended, changed <-chan struct{})
	// Ask asks a host that is connected here.
	Ask func(ctx context.Context, node, uid string, q wire.Question) (io.ReadCloser, error)
	Log *slog.Logger
}

// Stream tells the leader what hosts say, and brings it answers. Use NewStream.
type Stream struct {
	options StreamOptions
	asking  chan struct{}  // holds one for each question that is on its way
	tasks   sync.WaitGroup // those of questions
}

// NewStream starts nothing.
func NewStream(o StreamOptions) *Stream {
	return &Stream{options: o, asking: make(chan struct{}, questionsMax)}
}

// Run has a stream open to whichever server leads, until the context ends. It may be called once.
func (s *Stream) Run(ctx context.Context) {
	defer s.tasks.Wait()
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil {
		address, ended, changed := s.options.Leader()
		if address == "" {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		s.with(ctx, address, ended, random)
	}
}

// with has streams open to one leader, as long as that is the one.
func (s *Stream) with(ctx context.Context, address string, ended <-chan struct{}, random *rand.Rand) {
	ctx, stop := until(ctx, ended)
	defer stop()
	connections := client.NewConnections(nil)
	defer connections.HangUp()
	var backoff core.Backoff
	var said reason.Code
	for ctx.Err() == nil {
		pause, err := s.once(ctx, client.NewUpstream(connections.Dial, address, s.options.Identity), backoff.Reset)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e := reason.Of(err)
			if e.Code != said {
				s.options.Log.Warn("tell the leader what hosts say", "server", address, "err", err, "hint", e.Hint)
			}
			said = e.Code
			pause = min(backoff.Next(random), pauseMax)
		} else {
			said = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

var errAgain = errors.New("the stream was ended")

// once has one stream open, as long as it goes well. With no error, again is until the next one.
func (s *Stream) once(ctx context.Context, to *client.Upstream, answered func()) (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer to.Close()
	body, up := io.Pipe()
	s.options.Reports.begin(time.Now())
	var all sync.WaitGroup
	all.Go(func() { s.say(ctx, up) })
	defer func() {
		_ = body.CloseWithError(context.Canceled) // never fails
		cancel()
		all.Wait()
		s.options.Reports.end()
	}()
	err = to.Relay(ctx, body, silenceMax, func() {
		answered()
		s.options.Log.Info("the leader is told what hosts say", "server", to.Address())
	}, func(down *wire.RelayDown) error {
		if err := down.Validate(); err != nil {
			return &reason.Error{Code: reason.TransferWrong, Doing: "read what server " + to.Address() + " says", Cause: err}
		}
		if down.Again != nil {
			again = min(max(time.Duration(*down.Again), 1)*time.Millisecond, againMax)
			return errAgain
		}
		for _, q := range s.options.Reports.came(down) {
			s.question(ctx, to, q)
		}
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

// say tells the leader whenever there is something to tell, and now and then that this server is there.
func (s *Stream) say(ctx context.Context, up *io.PipeWriter) {
	sign := time.NewTicker(signPause)
	defer sign.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	first := true
	for ctx.Err() == nil {
		agents, next := s.options.Reports.take(time.Now())
		if first || len(agents) > 0 {
			if first = false; !s.write(up, agents) {
				return
			}
			continue
		}
		due.Stop()
		if !next.IsZero() {
			due.Reset(time.Until(next))
		}
		select {
		case <-s.options.Reports.nudge:
		case <-due.C:
		case <-sign.C:
			if !s.write(up, nil) {
				return
			}
		case <-ctx.Done():
		}
	}
}

// write writes messages about agents, of which as many go into one as fit; false when the stream has ended.
func (s *Stream) write(up *io.PipeWriter, agents []wire.RelayedAgent) bool {
	var b bytes.Buffer
	err := wire.WriteFrame(&b, wire.RelayUp{Protocol: wire.Protocol, Agents: agents})
	if half := len(agents) / 2; err != nil && half > 0 {
		return s.write(up, agents[:half]) && s.write(up, agents[half:])
	}
	if err != nil { // one agent alone is within the bounds of a message, as its report is
		s.options.Log.Error("tell the leader of hosts", "err", err)
		return true
	}
	_, err = up.Write(b.Bytes())
	return err == nil
}

// question asks a host what the leader asks, and brings the answer back as it comes.
func (s *Stream) question(ctx context.Context, from *client.Upstream, q asked) {
	busy := false
	select {
	case s.asking <- struct{}{}:
	default:
		busy = true
	}
	s.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(max(q.question.Seconds, 1))*time.Second)
		defer cancel()
		var err error
		if busy {
			err = refuse(ctx, from, q, &reason.Error{Code: reason.TransferBusy, Doing: "ask node " + q.node})
		} else {
			defer func() { <-s.asking }()
			err = s.answer(ctx, from, q)
		}
		if err != nil && ctx.Err() == nil {
			s.options.Log.Info("answer a question", "node", q.node, "what", q.question.What, "err", err)
		}
	})
}

func (s *Stream) answer(ctx context.Context, from *client.Upstream, q asked) error {
	body, err := s.options.Ask(ctx, q.node, q.uid, q.question)
	if err != nil {
		return refuse(ctx, from, q, err)
	}
	err = from.Answer(ctx, q.question.ID, q.uid, nil, body)
	_ = body.Close() // it is of the host, which has been told by the end of its call
	return err
}

// refuse says why there will be no answer.
func refuse(ctx context.Context, from *client.Upstream, q asked, why error) error {
	e := reason.Of(why)
	return from.Answer(ctx, q.question.ID, q.uid, &wire.Problem{Code: e.Code.String(), Message: wire.Text(e.Error()), Hint: wire.Text(e.Hint)}, nil)
}
