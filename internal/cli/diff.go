package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/mask"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func (p *program) newDiff() *cobra.Command {
	f := &files{}
	force := false
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what applying files would change",
		Example: `  tako diff -f site.yaml
  kustomize build prod | tako diff -f -`,
		Long: `The server is asked what it would make of each document, and nothing is changed.
It exits with 0 when nothing would change, with 1 when something would, and with 2 or more on an error.
What is secret is never shown, only that it changes.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return errorFromTwo(p.diff(cmd.Context(), f, force)) },
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&force, "force-conflicts", false, "show what applying with --force-conflicts would change")
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

func (p *program) diff(ctx context.Context, f *files, force bool) error {
	source, err := f.load(p)
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	changes, err := p.plan(ctx, server, namespace, source, force)
	if err != nil {
		return err
	}
	differs := false
	for _, c := range changes {
		text, err := c.diff()
		if err != nil {
			return fmt.Errorf("compare %s: %w", c.ref.Long(), err)
		}
		if text == "" {
			continue
		}
		differs = true
		if err := present.WriteDiff(p.Out, text, p.style()); err != nil {
			return err
		}
	}
	if differs {
		return ended{reason.ExitFailed}
	}
	return nil
}

// diff is the difference between what there is and what there would be, as text; "" for none.
func (c *change) diff() (string, error) {
	after := c.after
	if after == nil {
		after = c.document.Object // the server could not say; this is what would be sent
	}
	before, after := mask.Secrets(c.before, after)
	a, err := c.text(before)
	if err != nil {
		return "", err
	}
	b, err := c.text(after)
	if err != nil {
		return "", err
	}
	return present.UnifiedDiff(a, b, c.ref.Long()+" (now)", c.ref.Long()+" (declared)"), nil
}

// text is an object as it is compared, empty for one that does not exist.
func (c *change) text(object *unstructured.Unstructured) ([]byte, error) {
	if object == nil {
		return nil, nil
	}
	return yaml.Marshal(c.compared(object))
}
