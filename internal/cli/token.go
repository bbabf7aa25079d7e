package cli

import (
	"context"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/tokens"
)

func (p *program) newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens with which hosts and relays join and people work",
		Example: `  tako token create join --environment web --pattern 'web-*' --count 10 --expires 1h
  tako token create user ann --group operators --expires 30d
  tako token create relay edge-1
  tako token list
  tako token revoke ann-x7k2m`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	create := (&tokens.Shell{Out: p.Out, Connect: p.connect, Say: p.say}).NewCreate()
	checkArguments(create)
	create.Args = onlyCommands
	cmd.AddCommand(create, p.newTokenList(), p.newTokenRevoke())
	return cmd
}

func (p *program) newTokenList() *cobra.Command {
	f := &getFlags{}
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tokens, without what they are",
		Example: `  tako token list`,
		Args:    taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.get(cmd.Context(), f, []string{v1alpha1.ResourceTokens + "." + v1alpha1.GroupName})
		},
	}
	addOutput(cmd, &f.output)
	return cmd
}

func (p *program) newTokenRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke ID...",
		Short:   "End tokens at once",
		Example: `  tako token revoke ann-x7k2m`,
		Args:    taking(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := &deleteFlags{cascade: "background", dryRun: "none", wait: false}
			return p.delete(cmd.Context(), f, append([]string{v1alpha1.ResourceTokens + "." + v1alpha1.GroupName}, args...))
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
		return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, _ string) ([]string, error) {
			return selection.Names(ctx, server, "", v1alpha1.ResourceTokens, start)
		})
	}
	return cmd
}
