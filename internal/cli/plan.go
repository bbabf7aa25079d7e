package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/placement"
	"tako.dev/tako/internal/reason"
)

type planFlags struct {
	declared
	output string
}

func (p *program) newPlan() *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what applying files would change, and where instances would go",
		Example: `  tako plan -f web.yaml
  tako plan -f prod/ -R --set prod --prune
  tako plan -f web.yaml -o json            all of it, for programs`,
		Long: `The server is asked what it would make of each document, and nothing is changed. Of workloads it says on which nodes
their instances would be, all together and as the fleet is now: what would be replaced, changed in place or have to
make room, and what would not fit and why. It takes for granted that what starts becomes ready; a rollout that waits
for people is shown as far as it goes by itself, and a scheduled job as if a run began now.
It exits with 0 when nothing would change, with 1 when something would, and with 2 or more on an error.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return errorFromTwo(p.plan(cmd.Context(), f)) },
	}
	f.files.addTo(cmd)
	f.inSet.addTo(cmd)
	f.ownership.addTo(cmd)
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json or yaml: for programs")
	complete(cmd, "output", placement.Forms()...)
	return cmd
}

func (p *program) plan(ctx context.Context, f *planFlags) error {
	if f.output != "" && !slices.Contains(placement.Forms(), f.output) {
		return failure.Usage("read -o "+f.output, "this is written as text, "+strings.Join(placement.Forms(), " or "), "")
	}
	if err := f.inSet.check(); err != nil {
		return err
	}
	d, err := p.decide(ctx, &f.declared)
	if err != nil {
		return err
	}
	o, err := placement.Ask(ctx, d.server, d.changes, d.leftovers)
	if err != nil {
		return err
	}
	for _, text := range o.Unchecked() {
		p.warn(text)
	}
	if err := o.Write(p.Out, f.output); err != nil {
		return failure.Of(err, "write the plan")
	}
	if len(o.Changes) > 0 {
		return ended{reason.ExitFailed}
	}
	if f.output == "" {
		fmt.Fprintln(p.Err, "nothing would change")
	}
	return nil
}
