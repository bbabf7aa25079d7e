package top

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// Shell is what the command has of the program that it is in.
type Shell struct {
	Out     io.Writer
	Connect func() (server *remote.Server, namespace string, err error)
	Style   func() present.Style
	// Say tells a person what is no result.
	Say func(text string)
}

type flags struct {
	all    bool
	sort   string
	output string
}

// New returns the command.
func (s *Shell) New() *cobra.Command {
	f := &flags{}
	kinds, orders := []string{ofWorkloads, ofInstances, ofNodes}, []string{"cpu", "memory", "name"}
	cmd := &cobra.Command{
		Use:   "top [workloads | instances | nodes]",
		Short: "Show what instances take of what they request",
		Example: `  tako top -n prod                     by workload
  tako top instances -n prod --sort memory
  tako top nodes                       what all instances of a node take, beside what it offers`,
		Long: `Processors are those used on average since the host has looked before, in thousandths (250m is a quarter of one), and
memory is what is held now. A percentage is of what those that are measured request. SEEN is how old the oldest of the samples is:
hosts send one a minute, or every 15 s where the scale of a workload follows it. An instance that has just started has none yet.`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: kinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			what := ofWorkloads
			if len(args) > 0 {
				what = args[0]
			}
			switch {
			case !slices.Contains(kinds, what):
				return failure.Usage(cmd.CommandPath(), fmt.Sprintf("%q is none of %s", what, strings.Join(kinds, ", ")), "usage: "+cmd.UseLine())
			case !slices.Contains(orders, f.sort):
				return failure.Usage("read --sort "+f.sort, "it is none of "+strings.Join(orders, ", "), "")
			case f.output != "" && f.output != "json":
				return failure.Usage("read -o "+f.output, "this is written as text or json", "")
			}
			return s.show(cmd.Context(), f, what)
		},
	}
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().StringVar(&f.sort, "sort", "cpu", "which come first: those that use most cpu or memory, or by name")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json: for programs")
	for flag, values := range map[string][]string{"sort": orders, "output": {"json"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flags are there
	}
	return cmd
}

func (s *Shell) show(ctx context.Context, f *flags, what string) error {
	server, namespace, err := s.Connect()
	if err != nil {
		return err
	}
	if f.all {
		namespace = ""
	}
	instances, nodes, err := read(ctx, server, what, namespace)
	if err != nil {
		return err
	}
	rows := rowsOf(what, instances, nodes)
	sortRows(rows, f.sort)
	if f.output == "json" {
		return json.NewEncoder(s.Out).Encode(rows)
	}
	if len(rows) == 0 {
		s.Say("no instances found")
		return nil
	}
	return write(s.Out, what, rows, f.all, time.Now(), s.Style())
}
