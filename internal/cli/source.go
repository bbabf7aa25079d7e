package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/sources"
	"tako.dev/tako/internal/reason"
)

// sources are the commands about Sources, and what they need.
func (p *program) sources() *sources.Shell {
	return &sources.Shell{
		Out: p.Out, Style: p.style, Say: p.say, Warn: p.warn, Connect: p.connectAs, Complete: p.completeNames, Builder: p.Kustomize,
		Differs: ended{reason.ExitFailed}, FromTwo: errorFromTwo,
		Resource: func(ctx context.Context, node, resource string) (string, error) {
			a, err := p.explained(ctx, node, question{what: v1alpha1.NodeEvidence, subject: resource})
			if err != nil {
				return "", err
			}
			return a.Resource.Config, nil
		},
	}
}

func (p *program) newSource() *cobra.Command {
	cmd := p.sources().Commands(p.newSourceGet())
	checkArguments(cmd)
	cmd.Args = onlyCommands
	return cmd
}

func (p *program) newTrace() *cobra.Command {
	cmd := p.sources().NewTrace()
	checkArguments(cmd)
	return cmd
}

// newSourceGet shows Sources as tako get shows everything.
func (p *program) newSourceGet() *cobra.Command {
	f := &getFlags{}
	cmd := &cobra.Command{
		Use:   "get [NAME...]",
		Short: "Show sources: what is applied, what is seen, and on how many hosts it is",
		Example: `  tako source get -A
  tako source get fleet -n prod -o wide     and why it is not Ready
  tako source get -A -w                     and what changes, until Ctrl-C`,
		ValidArgsFunction: p.completeNames(v1alpha1.ResourceSources),
		RunE: func(cmd *cobra.Command, args []string) error {
			args = append([]string{v1alpha1.ResourceSources + "." + v1alpha1.GroupName}, args...)
			for i := range args {
				args[i] = strings.TrimPrefix(args[i], "source/")
			}
			return p.get(cmd.Context(), f, args)
		},
	}
	f.addTo(cmd)
	return cmd
}

// completeNames offers the names of one kind; of no kind, KIND/NAME.
func (p *program) completeNames(kind string) cobra.CompletionFunc {
	if kind == "" {
		return p.completeObjects
	}
	return func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, namespace string) ([]string, error) {
			return selection.Names(ctx, server, namespace, kind+"."+v1alpha1.GroupName, start)
		})
	}
}
