package agent

import (
	"context"
	"fmt"
	"time"

	"tako.dev/tako/internal/agent/clock"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/relations"
)

// answer answers one question, from any goroutine. What it sets going goes on for as long as lasting does, which is the agent's own.
func (l *loop) answer(ctx, lasting context.Context, q local.Request) (r local.Reply, err error) {
	switch q.Do {
	case "check":
		depth := converge.Shallow
		if q.Deep {
			depth = converge.Deep
		}
		_, err = ask(ctx, l, func() (struct{}, error) {
			l.step(lasting, converge.Examine{Depth: depth})
			return struct{}{}, nil
		})
		if err != nil {
			return r, err
		}
		r.Report, err = l.whenQuiet(ctx)
	case "status":
		if r.Report, err = ask(ctx, l, func() (*Report, error) { return l.report(q.All), nil }); err == nil && l.joined != nil {
			r.Report.Instances, err = l.joined.instances.Accounts(ctx)
		}
	case "why":
		var is bool
		if r.Answer, is, err = l.instance(ctx, q.Subject); is {
			return r, err
		}
		r.Answer, err = ask(ctx, l, func() (*Answer, error) { return l.why(q.Subject) })
	case "graph":
		r.Graph, err = ask(ctx, l, func() (*relations.Graph, error) { return l.graph(q.Subject, 0) })
	case "hold", "resume":
		r.Holds, err = ask(ctx, l, func() ([]Hold, error) { return l.changeHolds(lasting, q) })
	case "accept":
		r.Brought, err = l.accept(ctx, q.Path)
	case "now":
		if _, err = ask(ctx, l, func() (struct{}, error) { return struct{}{}, l.goOn(lasting, q.Subject) }); err == nil {
			r.Report, err = l.whenQuiet(ctx)
		}
	default:
		err = &reason.Error{Code: reason.Usage, Doing: fmt.Sprintf("answer %q", q.Do), Hint: "the agent is of another version than the command"}
	}
	return r, err
}

// whenQuiet waits until nothing is due, and reports then.
func (l *loop) whenQuiet(ctx context.Context) (*Report, error) {
	for {
		r, err := ask(ctx, l, func() (*Report, error) {
			if !l.engine.Quiet() {
				return nil, nil
			}
			return l.report(false), nil
		})
		// The question waits its turn behind the operations that it waits for, so it is asked a few times at most.
		if err != nil || r != nil || !clock.Pause(ctx, time.Millisecond) {
			return r, err
		}
	}
}
