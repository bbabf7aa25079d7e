package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/answer"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/logs"
	"tako.dev/tako/internal/transfer/wire"
)

func (p *program) newHistory() *cobra.Command {
	return p.asking(&cobra.Command{
		Use:   "history node/NAME [RESOURCE]",
		Short: "List what happened on a host, the newest first: the host itself is asked",
		Example: `  tako history node/web-7
  tako history node/web-7 service/nginx --lines 10
  tako history node/web-7 --since 2h -o json
  tako history node/web-7 --until 2026-01-02T15:04:05Z --lines 1000     what was before`,
		Long: "The host keeps 7 days of it, and at most 16 MiB. One answer has what room is for in 1 MiB of the host's disk: where there is more, the\n" +
			"time is said with which to go on.",
	}, v1alpha1.NodeHistory, historyLines, p.history)
}

// historyLines is how many lines of a history a person reads.
const historyLines = 50

func (p *program) newLogs() *cobra.Command {
	shell := &logs.Shell{Out: p.Out, Say: p.say, Connect: p.connect, Ask: func(ctx context.Context, s logs.Source, a logs.Asked, w io.Writer) error {
		return p.ask(ctx, s.Node, question{what: v1alpha1.NodeLogs, subject: s.Subject(), lines: a.Lines, since: a.Since, previous: a.Previous}, w)
	}}
	return shell.Complete(p.asking(logs.Command(), v1alpha1.NodeLogs, 100, p.logs), func(arg string) bool {
		_, err := nodeArgument(arg)
		return err == nil
	})
}

// asking completes a command that asks a host for lines about one thing or about all; show shows them to a person.
func (p *program) asking(cmd *cobra.Command, what string, lines int, show func(context.Context, string, question) error) *cobra.Command {
	var form, since, until string
	cmd.Args, cmd.ValidArgsFunction = taking(cobra.RangeArgs(1, 2)), p.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node, err := nodeArgument(args[0])
		if err != nil {
			return err
		}
		if err := checkJSON(form); err != nil {
			return err
		}
		if lines < 1 {
			return failure.Usage(fmt.Sprintf("read --lines %d", lines), "it is a number from 1", "")
		}
		q := question{what: what, subject: strings.Join(args[1:], ""), lines: lines, since: since, until: until}
		if form == "json" {
			return p.ask(cmd.Context(), node, q, p.Out)
		}
		return show(cmd.Context(), node, q)
	}
	cmd.Flags().IntVar(&lines, "lines", lines, "how many at most")
	cmd.Flags().StringVar(&since, "since", "", "only what is newer: 10m, 2h, or a time such as 2026-01-02T15:04:05Z")
	if what == v1alpha1.NodeHistory {
		cmd.Flags().StringVar(&until, "until", "", "only what is older: the same")
	}
	addJSON(cmd, &form)
	return cmd
}

// nodeArgument reads node/NAME.
func nodeArgument(arg string) (string, error) {
	kind, name, ok := strings.Cut(arg, "/")
	switch {
	case !ok || name == "":
		return "", failure.Usage("read the arguments", fmt.Sprintf("%q is no node", arg), "write node/NAME")
	case !slices.Contains([]string{"node", v1alpha1.ResourceNodes, "no", "node." + v1alpha1.GroupName, v1alpha1.ResourceNodes + "." + v1alpha1.GroupName}, kind):
		return "", failure.Usage("read the arguments", fmt.Sprintf("%q is no node", arg), "only hosts have this: write node/NAME")
	}
	return name, nil
}

func (p *program) history(ctx context.Context, node string, q question) error {
	var said bytes.Buffer
	if err := p.ask(ctx, node, q, &said); err != nil {
		return err
	}
	// Where something is cut off for want of room, there is more than half of that.
	whole := said.Len() < wire.HistoryMax/2
	lines, oldest, err := answer.History(&said, p.style())
	if err != nil {
		return failure.Of(err, "read the history of node "+node)
	}
	switch {
	case len(lines) == 0:
		p.say("node " + node + " has nothing to tell of that")
	case len(lines) == q.lines || !whole:
		defer p.say("there may be more: tako history node/" + node + " --until " + oldest.UTC().Format(time.RFC3339))
	}
	_, err = io.WriteString(p.Out, strings.Join(lines, ""))
	return err
}

// graph shows the order of the resources of a host: of all, or of those around one.
func (p *program) graph(ctx context.Context, node, subject, form string) error {
	var said bytes.Buffer
	if err := p.ask(ctx, node, question{what: v1alpha1.NodeGraph, subject: subject}, &said); err != nil {
		return err
	}
	text, err := answer.Graph(said.Bytes(), form, p.style())
	if err != nil {
		return failure.Of(err, "read the answer of node "+node)
	}
	_, err = io.WriteString(p.Out, text)
	return err
}

func (p *program) logs(ctx context.Context, node string, q question) error {
	var said bytes.Buffer
	if err := p.ask(ctx, node, q, &said); err != nil {
		return err
	}
	for _, line := range answer.LogLines(said.String(), p.style()) {
		if _, err := fmt.Fprintln(p.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// evidence shows why one of the resources of a host is as it is.
func (p *program) evidence(ctx context.Context, node string, q question, form string) error {
	if form == "json" {
		return p.ask(ctx, node, q, p.Out)
	}
	a, err := p.explained(ctx, node, q)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(p.Out, a.Text(node, time.Now(), p.style()))
	return err
}

// explained asks a host why one of its resources is as it is.
func (p *program) explained(ctx context.Context, node string, q question) (*answer.Answer, error) {
	var said bytes.Buffer
	if err := p.ask(ctx, node, q, &said); err != nil {
		return nil, err
	}
	var a answer.Answer
	if err := json.Unmarshal(said.Bytes(), &a); err != nil {
		return nil, failure.Of(err, "read the answer of node "+node)
	}
	if len(a.Candidates) > 0 {
		return nil, failure.Usage("explain "+q.subject, "several resources are called so", "say which: "+strings.Join(a.Candidates, ", "))
	}
	return &a, nil
}
