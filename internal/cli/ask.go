package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// happening is one line of a host's history, as its agent keeps it.
type happening struct {
	At      time.Time `json:"at"`
	Claim   string    `json:"claim"`
	Title   string    `json:"title"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Writer  string    `json:"writer"`
	Changes []string  `json:"changes"`
}

func (p *program) newHistory() *cobra.Command {
	var form, since string
	lines := 50
	cmd := &cobra.Command{
		Use:   "history node/NAME [RESOURCE]",
		Short: "List what happened on a host, the newest first: the host itself is asked",
		Example: `  tako history node/web-7
  tako history node/web-7 service/nginx -n 10`,
		Args:              taking(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			if err := checkJSON(form); err != nil {
				return err
			}
			q := question{what: v1alpha1.NodeHistory, subject: strings.Join(args[1:], ""), lines: lines, since: since}
			if form == "json" {
				return p.ask(cmd.Context(), node, q, p.Out)
			}
			return p.history(cmd.Context(), node, q)
		},
	}
	cmd.Flags().IntVar(&lines, "lines", lines, "how many at most")
	cmd.Flags().StringVar(&since, "since", "", "only what is newer: 10m, 2h, or a time such as 2026-01-02T15:04:05Z")
	addJSON(cmd, &form)
	return cmd
}

// nodeArgument reads node/NAME.
func nodeArgument(arg string) (string, error) {
	kind, name, ok := strings.Cut(arg, "/")
	switch {
	case !ok || name == "":
		return "", failure.Usage("read the arguments", fmt.Sprintf("%q is no node", arg), "write node/NAME")
	case kind != "node" && kind != v1alpha1.ResourceNodes && kind != "no":
		return "", failure.Usage("read the arguments", fmt.Sprintf("%q is no node", arg), "only hosts have this: write node/NAME")
	}
	return name, nil
}

func (p *program) history(ctx context.Context, node string, q question) error {
	var answer bytes.Buffer
	if err := p.ask(ctx, node, q, &answer); err != nil {
		return err
	}
	decoder := json.NewDecoder(&answer)
	for decoder.More() {
		var h happening
		if err := decoder.Decode(&h); err != nil {
			return failure.Of(err, "read the history of node "+node)
		}
		if _, err := fmt.Fprintln(p.Out, h.line(p.style())); err != nil {
			return err
		}
	}
	return nil
}

func (h *happening) line(style present.Style) string {
	o, err := reason.ParseOutcome(h.Outcome)
	if err != nil {
		o = reason.Unknown // written by a later version
	}
	text := fmt.Sprintf("%s  %-22s %s", h.At.Local().Format("2006-01-02 15:04:05"), present.Outcome(o, reason.Detail(h.Detail)).Render(style), present.Quote(h.Title))
	for _, part := range []string{strings.Join(h.Changes, ", "), h.Message} {
		if part != "" {
			text += ": " + present.Escape(part)
		}
	}
	if h.Writer != "" {
		text += "; changed by " + present.Escape(h.Writer)
	}
	return text
}

func (p *program) newLogs() *cobra.Command {
	var since string
	lines := 100
	cmd := &cobra.Command{
		Use:   "logs node/NAME [UNIT]",
		Short: "Show the log of a host's agent, or of a unit that it manages",
		Example: `  tako logs node/web-7                      of the agent
  tako logs node/web-7 nginx.service --since 10m`,
		Args:              taking(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			return p.ask(cmd.Context(), node, question{what: v1alpha1.NodeLogs, subject: strings.Join(args[1:], ""), lines: lines, since: since}, p.Out)
		},
	}
	cmd.Flags().IntVar(&lines, "lines", lines, "how many at most")
	cmd.Flags().StringVar(&since, "since", "", "only what is newer: 10m, 2h, or a time such as 2026-01-02T15:04:05Z")
	return cmd
}

// answer is how a host explains one of its resources.
type answer struct {
	Resource resourceAnswer   `json:"resource"`
	Because  []resourceAnswer `json:"because"`
	Requires []struct {
		Title   string `json:"title"`
		Kind    string `json:"kind"`
		Why     string `json:"why"`
		Outcome string `json:"outcome"`
	} `json:"requires"`
	History    []happening `json:"history"`
	Candidates []string    `json:"candidates"`
}

// resourceAnswer is how a host sees one resource.
type resourceAnswer struct {
	Title    string    `json:"title"`
	Claim    string    `json:"claim"`
	Config   string    `json:"config"`
	Outcome  string    `json:"outcome"`
	Detail   string    `json:"detail"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	RetryAt  time.Time `json:"retryAt"`
	Problem  *struct {
		Code     string `json:"code"`
		Message  string `json:"message"`
		Hint     string `json:"hint"`
		Evidence string `json:"evidence"`
	} `json:"problem"`
}

// evidence asks a host why one of its resources is as it is.
func (p *program) evidence(ctx context.Context, node string, q question, form string) error {
	if form == "json" {
		return p.ask(ctx, node, q, p.Out)
	}
	var text bytes.Buffer
	if err := p.ask(ctx, node, q, &text); err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(text.Bytes(), &a); err != nil {
		return failure.Of(err, "read the answer of node "+node)
	}
	if len(a.Candidates) > 0 {
		return failure.Usage("explain "+q.subject, "several resources are called so", "say which: "+strings.Join(a.Candidates, ", "))
	}
	_, err := fmt.Fprint(p.Out, a.text(node, time.Now(), p.style()))
	return err
}

func (a *answer) text(node string, now time.Time, style present.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "● %s on node/%s\n", present.Quote(a.Resource.Title), present.Escape(node))
	b.WriteString(a.Resource.text("  ", now, style))
	fmt.Fprintf(&b, "  %s, declared by %s\n", present.Escape(a.Resource.Claim), present.Escape(a.Resource.Config))
	for i := range a.Because {
		b.WriteString("  because of\n" + a.Because[i].text("    ", now, style))
	}
	for _, r := range a.Requires {
		o, err := reason.ParseOutcome(r.Outcome)
		if err != nil {
			o = reason.Unknown
		}
		fmt.Fprintf(&b, "  after %s (%s)  %s\n", present.Quote(r.Title), present.Escape(strings.TrimSuffix(r.Kind+": "+r.Why, ": ")), present.Outcome(o, "").Render(style))
	}
	if len(a.History) > 0 {
		b.WriteString("  history\n")
		for i := range a.History {
			b.WriteString("    " + a.History[i].line(style) + "\n")
		}
	}
	return b.String()
}

func (r *resourceAnswer) text(indent string, now time.Time, style present.Style) string {
	o, err := reason.ParseOutcome(r.Outcome)
	if err != nil {
		o = reason.Unknown
	}
	text := indent + present.Outcome(o, reason.Detail(r.Detail)).Render(style) + "  " + present.Quote(r.Title)
	if !r.Since.IsZero() {
		text += "  " + present.Ago(r.Since, now)
	}
	if !r.RetryAt.IsZero() {
		text += fmt.Sprintf("  (attempt %d, next in %s)", r.Attempts, present.Duration(r.RetryAt.Sub(now)))
	}
	text += "\n"
	if r.Problem == nil {
		return text
	}
	text += fmt.Sprintf("%s  %s: %s\n", indent, r.Problem.Code, present.Escape(r.Problem.Message))
	for _, line := range strings.Split(r.Problem.Evidence, "\n") {
		if line != "" {
			text += indent + "  | " + present.Escape(line) + "\n"
		}
	}
	if r.Problem.Hint != "" {
		text += indent + "  help: " + present.Escape(r.Problem.Hint) + "\n"
	}
	return text
}
