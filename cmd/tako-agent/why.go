package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/agent/local"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func newWhy(c *common) *cobra.Command {
	var graph bool
	var form string
	cmd := &cobra.Command{
		Use:   "why RESOURCE | --graph [RESOURCE]",
		Short: "Say why a resource is as it is, or why it comes when it comes",
		Example: `  tako-agent why /etc/motd
  tako-agent why service/nginx
  tako-agent why instance/prod/web-3                an instance of a workload: its tasks, probes and attempts
  tako-agent why --graph service/nginx              what it waits for, what waits for it, and why
  tako-agent why --graph -o dot | dot -Tsvg >g.svg  all of it, drawn by Graphviz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if graph {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if graph {
				return c.graph(cmd.Context(), strings.Join(args, ""), form)
			}
			if err := c.readOutput(form, "json"); err != nil {
				return err
			}
			return c.why(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVar(&graph, "graph", false, "show the order of the resources, with the reason of each")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json, or of a graph dot: for programs")
	cmd.Flags().BoolVar(&c.json, "json", false, "the same as -o json")
	return cmd
}

// readOutput reads --output, which is empty or one of some forms.
func (c *common) readOutput(form string, forms ...string) error {
	for _, f := range forms {
		if form == f || form == "" {
			c.json = c.json || form == "json"
			return nil
		}
	}
	return &reason.Error{Code: reason.Usage, Doing: "read -o " + form, Hint: "write " + strings.Join(forms, " or ")}
}

func (c *common) why(ctx context.Context, subject string) error {
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	a, running, err := local.WhyOf(ctx, state, subject)
	if err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(os.Stdout).Encode(a)
	}
	if err := c.showAnswer(a, subject, running); err != nil {
		return err
	}
	if r, running, err := local.StatusOf(ctx, state, false); err == nil {
		fmt.Print(cutOffText(r.Cluster, running, time.Now()))
	}
	return nil
}

// graph shows the order of the resources: of all, or of those around one.
func (c *common) graph(ctx context.Context, subject, form string) error {
	if err := c.readOutput(form, "json", "dot"); err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	g, running, err := local.GraphOf(ctx, state, subject)
	switch {
	case err != nil:
		return err
	case c.json:
		return json.NewEncoder(os.Stdout).Encode(g)
	case form == "dot":
		fmt.Print(g.Dot())
		return nil
	}
	fmt.Print(g.Tree(c.style(os.Stdout)))
	if !running {
		fmt.Println("the agent is not running: this is what it left behind")
	}
	return nil
}

func (c *common) showAnswer(a *agent.Answer, subject string, running bool) error {
	if a.Instance != nil {
		showInstance(a.Instance, func() {
			if len(a.History) > 0 {
				fmt.Println("  history")
				showHistory(a.History, "    ")
			}
		})
		return nil
	}
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
