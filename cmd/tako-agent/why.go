package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func newWhy(c *common) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why RESOURCE",
		Short: "Say why a resource is as it is",
		Example: `  tako-agent why /etc/motd
  tako-agent why service/nginx`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			state, err := c.stateDir()
			if err != nil {
				return err
			}
			a, running, err := agent.WhyOf(cmd.Context(), state, args[0])
			if err != nil {
				return err
			}
			if c.json {
				return json.NewEncoder(os.Stdout).Encode(a)
			}
			if err := c.showAnswer(a, args[0], running); err != nil {
				return err
			}
			if r, running, err := agent.StatusOf(cmd.Context(), state, false); err == nil {
				fmt.Print(cutOffText(r.Cluster, running, time.Now()))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON")
	return cmd
}

func (c *common) showAnswer(a *agent.Answer, subject string, running bool) error {
	if len(a.Candidates) > 0 {
		return &reason.Error{Code: reason.ResourceUnknown, Doing: "explain " + subject, Cause: fmt.Errorf("several resources are called so"),
			Hint: "say which: " + strings.Join(a.Candidates, ", ")}
	}
	now, style := time.Now(), c.style(os.Stdout)
	fmt.Print(strings.TrimPrefix(resourceText(&a.Resource, now, style), "  "))
	fmt.Printf("  %s, declared by %s", present.Escape(a.Resource.Claim), present.Quote(a.Resource.Config))
	if a.Resource.Place != "" {
		fmt.Printf(" at %s", present.Quote(a.Resource.Place))
	}
	fmt.Println()
	switch {
	case !running:
		fmt.Println("  the agent is not running: this is what it left behind")
	case a.Watched:
		fmt.Println("  watched: a change is noticed at once")
	case a.Resource.Outcome != reason.NotApplicable && a.Resource.Removal == "":
		fmt.Println("  not watched by the kernel: it is checked slowly")
	}
	for _, b := range a.Because {
		fmt.Print("  because of\n", indent(resourceText(&b, now, style)))
	}
	for _, r := range a.Requires {
		why := r.Kind
		if r.Why != "" {
			why += ": " + r.Why
		}
		fmt.Printf("  after %s (%s)  %s\n", present.Quote(r.Title), why, present.Outcome(r.Outcome, "").Render(style))
	}
	if len(a.History) > 0 {
		fmt.Println("  history")
		showHistory(a.History, "    ")
	}
	return nil
}

func newHistory(c *common) *cobra.Command {
	limit := 50
	cmd := &cobra.Command{
		Use:   "history [RESOURCE]",
		Short: "List what happened on this host, newest first",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			state, err := c.stateDir()
			if err != nil {
				return err
			}
			list, err := agent.HistoryOf(state, strings.Join(args, ""), limit)
			if err != nil {
				return err
			}
			if c.json {
				return json.NewEncoder(os.Stdout).Encode(list)
			}
			showHistory(list, "")
			return nil
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", limit, "how many at most")
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON")
	return cmd
}

func showHistory(list []agent.Happening, prefix string) {
	for _, h := range list {
		o, err := reason.ParseOutcome(h.Outcome)
		if err != nil {
			o = reason.Unknown // written by a later version
		}
		text := fmt.Sprintf("%s%s  %-22s %s", prefix, h.At.Local().Format("2006-01-02 15:04:05.000"), present.Outcome(o, reason.Detail(h.Detail)), present.Quote(h.Title))
		for _, part := range []string{strings.Join(h.Changes, ", "), h.Message} {
			if part != "" {
				text += ": " + present.Escape(part)
			}
		}
		if h.Writer != "" {
			text += "; changed by " + present.Escape(h.Writer)
		}
		fmt.Println(text)
	}
}
