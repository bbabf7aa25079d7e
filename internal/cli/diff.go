package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

type diffFlags struct{ declared }

func (p *program) newDiff() *cobra.Command {
	f := &diffFlags{}
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what applying files would change",
		Example: `  tako diff -f site.yaml
  kustomize build prod | tako diff -f -
  tako diff -f prod/ -R --set prod --prune`,
		Long: `The server is asked what it would make of each document, and nothing is changed.
It exits with 0 when nothing would change, with 1 when something would, and with 2 or more on an error.
What is secret is never shown, only that it changes.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return errorFromTwo(p.diff(cmd.Context(), f)) },
	}
	f.files.addTo(cmd)
	f.inSet.addTo(cmd)
	f.ownership.addTo(cmd)
	return cmd
}

// errorFromTwo keeps exit code 1 for differences: a failure that has it ends with 2.
func errorFromTwo(err error) error {
	var differs ended
	var refused *failure.Refused // its exit code is never that of a difference
	if err == nil || errors.As(err, &differs) || errors.As(err, &refused) {
		return err
	}
	f := *failure.Of(err, "compare")
	if f.Exit == reason.ExitFailed {
		f.Exit = reason.ExitUsage
	}
	return &f
}

func (p *program) diff(ctx context.Context, f *diffFlags) error {
	if err := f.inSet.check(); err != nil {
		return err
	}
	d, err := p.decide(ctx, &f.declared)
	if err != nil {
		return err
	}
	texts, err := differences(d.changes, d.leftovers)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := present.WriteDiff(p.Out, text, p.style()); err != nil {
			return err
		}
	}
	if len(texts) > 0 {
		return ended{reason.ExitFailed}
	}
	return nil
}

// differences are the texts of what would be changed, and of what would be deleted.
func differences(changes []*plan.Change, leftovers []prune.Leftover) ([]string, error) {
	var texts []string
	for _, c := range changes {
		text, err := c.Diff()
		if err != nil {
			return nil, err
		}
		if text != "" {
			texts = append(texts, text)
		}
	}
	for _, l := range leftovers {
		text, err := plan.DiffOfDeletion(l.Ref, l.Object)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}
