package relay

import (
	"context"
	"io"
	"time"

	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/client"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// questionsMax is how many questions are on their way at once: what some people and programs ask of the hosts behind one relay.
	questionsMax = 64
	// watchedMax is how long a question waits for the watch of its host to be open here: the server knows of one a moment earlier.
	watchedMax, watchedPause = 2 * time.Second, 50 * time.Millisecond
)

// question asks a host what the server asks, and brings the answer back. While too many are on their way, that is the answer.
func (r *Relay) question(ctx context.Context, from *client.Upstream, q asked) {
	limit := time.Duration(max(q.question.Seconds, 1)) * time.Second
	busy := false
	select {
	case r.asking <- struct{}{}:
	default:
		busy = true
	}
	r.metrics.questions.Inc()
	r.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		if busy {
			err = r.refuse(ctx, from, q, &reason.Error{Code: reason.TransferBusy, Doing: "ask node " + q.node})
		} else {
			defer func() { <-r.asking }()
			err = r.answer(ctx, from, q)
		}
		if err != nil && ctx.Err() == nil {
			r.opts.Log.Info("answer a question", "node", q.node, "what", q.question.What, "err", err)
		}
	})
}

// answer asks, and passes the answer on as it comes.
func (r *Relay) answer(ctx context.Context, from *client.Upstream, q asked) error {
	body, err := r.ask(ctx, q)
	if err != nil {
		return r.refuse(ctx, from, q, err)
	}
	err = from.Answer(ctx, q.question.ID, q.uid, nil, body)
	_ = body.Close() // it is of the host, which has been told by the end of its call
	return err
}

// ask asks the host by its watch here.
func (r *Relay) ask(ctx context.Context, q asked) (io.ReadCloser, error) {
	for late := time.Now().Add(watchedMax); ; {
		body, err := r.server.Ask(ctx, q.node, q.uid, q.question)
		if !reason.Is(err, reason.HostNotConnected) || time.Now().After(late) || !pause(ctx, watchedPause) {
			return body, err
		}
	}
}

// refuse says why there will be no answer.
func (r *Relay) refuse(ctx context.Context, from *client.Upstream, q asked, why error) error {
	e := reason.Of(why)
	return from.Answer(ctx, q.question.ID, q.uid, &wire.Problem{Code: e.Code.String(), Message: wire.Text(e.Error()), Hint: wire.Text(e.Hint)}, nil)
}
