package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/bring"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

const (
	// acceptWait is how long the command waits for the host to enforce what was brought, and acceptLook how often it looks.
	acceptWait = 30 * time.Second
	acceptLook = 100 * time.Millisecond
	// orderMax is of an order that comes through a pipe: it is kept in the state directory until the agent has read it.
	orderMax = 1 << 30
)

func newAccept(c *common) *cobra.Command {
	return &cobra.Command{
		Use:   "accept FILE | DIRECTORY | -",
		Short: "Take what is signed for this host, from hand to hand: no server is needed",
		Example: `  tako-agent accept motd.order            an order: tako sign layer has written it
  ssh web-7 tako-agent accept - < motd.order
  tako-agent accept /media/stick          what tako export heads has written`,
		Long: `An order is a layer statement with its layer, signed by an operator. A directory has heads, statements and what they name. The agent that
runs on this host verifies all of it, as it does what servers send, and enforces it until what they declare has caught up.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := c.stateDir()
			if err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return &reason.Error{Code: reason.Usage, Doing: "accept " + args[0], Cause: err}
			}
			if args[0] == "-" {
				if path, err = spooled(state, os.Stdin); err != nil {
					return err
				}
				defer os.Remove(path)
			}
			return c.accept(cmd.Context(), state, path)
		},
	}
}

// spooled keeps what comes through a pipe where the agent finds it.
func spooled(state string, r io.Reader) (path string, err error) {
	doing := "accept what comes through standard input"
	f, err := os.CreateTemp(state, ".tako-order-")
	if err != nil {
		return "", &reason.Error{Code: reason.StateUnwritable, Doing: doing, Cause: err, Hint: "run it as the user that the agent runs as, most often root"}
	}
	n, err := io.Copy(f, io.LimitReader(r, orderMax+1))
	if err == nil && n > orderMax {
		err = fmt.Errorf("it has more than %d MiB", orderMax>>20)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", &reason.Error{Code: reason.PlaceUnusable, Doing: doing, Cause: errors.Join(err, os.Remove(f.Name()))}
	}
	return f.Name(), nil
}

// accept hands a path to the agent, and waits for what the host makes of it. Of a directory whose head is news, statements count once that is enforced.
func (c *common) accept(ctx context.Context, state, path string) error {
	b, err := local.Accept(ctx, state, path)
	if err != nil {
		return err
	}
	if b.Version > 0 {
		if err := c.acceptedHead(ctx, state, b); err != nil {
			return err
		}
		if b.News {
			if b, err = local.Accept(ctx, state, path); err != nil {
				return err
			}
		}
	}
	for _, p := range b.Left {
		fmt.Fprintf(os.Stderr, "left out\n%s", indent(problemText(&agent.Problem{Code: p.Code, Message: p.Message, Hint: p.Hint})))
	}
	failed := false
	for _, s := range b.Statements {
		in, err := c.acceptedStatement(ctx, state, s)
		if err != nil {
			return err
		}
		failed = failed || !in
	}
	if failed {
		return shown{reason.ExitFailed}
	}
	return nil
}

// acceptedHead waits until the host enforces a head, or says why not.
func (c *common) acceptedHead(ctx context.Context, state string, b *bring.Brought) error {
	r, err := until(ctx, state, func(r *agent.Report) bool {
		return r.Cluster.Version >= b.Version && r.Cluster.Epoch >= b.Epoch || r.Cluster.Newest >= b.Version && slices.Contains([]string{"Rejected", "Withheld", "Quarantined"}, r.Cluster.Verdict)
	})
	if err != nil {
		return err
	}
	if r.Cluster.Version >= b.Version {
		fmt.Printf("✔ Accepted  version %d: %s\n", r.Cluster.Version, r.Cluster.Verdict)
		return nil
	}
	for _, p := range r.Refused {
		fmt.Fprint(os.Stderr, indent(problemText(&p)))
	}
	fmt.Fprintf(os.Stderr, "version %d was accepted, and is not enforced: %s\nnext: tako-agent status%s\n", b.Version, r.Cluster.Verdict, c.rootFlag())
	return shown{reason.ExitFailed}
}

// acceptedStatement waits until a statement is in force, and reports whether it is.
func (c *common) acceptedStatement(ctx context.Context, state string, b bring.Statement) (bool, error) {
	of := func(r *agent.Report) (agent.Statement, bool) {
		for _, s := range slices.Backward(r.Cluster.Statements) {
			if s.Layer == b.Layer && s.Number == b.Number {
				return s, true
			}
		}
		return agent.Statement{}, false
	}
	r, err := until(ctx, state, func(r *agent.Report) bool {
		s, found := of(r)
		return found && s.State != agent.StatementComing
	})
	if err != nil {
		return false, err
	}
	s, found := of(r)
	if found && s.State == agent.StatementInForce {
		fmt.Printf("✔ In force  statement %d about %s\n", s.Number, present.Quote(s.Layer))
		return true, nil
	}
	var why strings.Builder
	if s.Problem != nil {
		why.WriteString(indent(problemText(s.Problem)))
	}
	what := "is accepted, and not enforced yet"
	if s.State == agent.StatementRefused {
		what = "is refused, and what was enforced before stays"
	}
	fmt.Fprintf(os.Stderr, "statement %d about %s %s\n%snext: tako-agent status%s\n", b.Number, present.Quote(b.Layer), what, why.String(), c.rootFlag())
	return false, nil
}

// until looks at the report of the running agent until it is as wanted, or the time is over.
func until(ctx context.Context, state string, as func(*agent.Report) bool) (*agent.Report, error) {
	over := time.NewTimer(acceptWait)
	defer over.Stop()
	tick := time.NewTicker(acceptLook)
	defer tick.Stop()
	for {
		r, running, err := local.StatusOf(ctx, state, false)
		switch {
		case err != nil:
			return nil, err
		case !running || r.Cluster == nil:
			return nil, &reason.Error{Code: reason.AgentNotRunning, Doing: "see what the host makes of it", Cause: errors.New("the agent has ended meanwhile")}
		case as(r):
			return r, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over.C:
			return r, nil
		case <-tick.C:
		}
	}
}
