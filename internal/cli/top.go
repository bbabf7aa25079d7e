package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/top"
)

type topFlags struct {
	all    bool
	sort   string
	output string
}

func (p *program) newTop() *cobra.Command {
	f := &topFlags{}
	kinds, orders := []string{top.Workloads, top.Instances, top.Nodes}, []string{"cpu", "memory", "name"}
	cmd := &cobra.Command{
		Use:   "top [workloads | instances | nodes]",
		Short: "Show what instances take of what they request",
		Example: `  tako top -n prod                     by workload
  tako top instances -n prod --sort memory
  tako top nodes                       what all instances of a node take, beside what it offers`,
		Long: `Processors are those used on average since the host has looked before, in thousandths (250m is a quarter of one), and
memory is what is held now. A percentage is of what those that are measured request. SEEN is how old the oldest of the samples is:
hosts send one a minute, or every 15 s where the scale of a workload follows it. An instance that has just started has none yet.`,
		Args:      taking(cobra.MaximumNArgs(1)),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			what := top.Workloads
			if len(args) > 0 {
				what = args[0]
			}
			switch {
			case !slices.Contains(kinds, what):
				return failure.Usage(cmd.CommandPath(), fmt.Sprintf("%q is none of %s", what, strings.Join(kinds, ", ")), "usage: "+cmd.UseLine())
			case !slices.Contains(orders, f.sort):
				return failure.Usage("read --sort "+f.sort, "it is none of "+strings.Join(orders, ", "), "")
			}
			return p.top(cmd.Context(), f, what)
		},
	}
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().StringVar(&f.sort, "sort", "cpu", "which come first: those that use most cpu or memory, or by name")
	addJSON(cmd, &f.output)
	complete(cmd, "sort", orders...)
	return cmd
}

func (p *program) top(ctx context.Context, f *topFlags, what string) error {
	if err := checkJSON(f.output); err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	if f.all {
		namespace = ""
	}
	instances, nodes, err := top.Read(ctx, server, what, namespace)
	if err != nil {
		return err
	}
	rows := top.Rows(what, instances, nodes)
	top.Sort(rows, f.sort)
	if f.output == "json" {
		return json.NewEncoder(p.Out).Encode(rows)
	}
	if len(rows) == 0 {
		p.say("no instances found")
		return nil
	}
	return top.Write(p.Out, what, rows, f.all, time.Now(), p.style())
}
