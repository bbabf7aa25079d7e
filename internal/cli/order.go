package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/order"
	"tako.dev/tako/internal/cli/settings"
)

func (p *program) orders() *order.Shell {
	return &order.Shell{In: p.In, Out: p.Out, Err: p.Err, Connect: p.connect, Namespace: p.offlineNamespace, Refused: refusedFiles}
}

func (p *program) newSign() *cobra.Command { return p.below(p.orders().NewSign()) }

func (p *program) newExport() *cobra.Command { return p.below(p.orders().NewExport()) }

// below completes a command that has others below it.
func (p *program) below(cmd *cobra.Command) *cobra.Command {
	checkArguments(cmd)
	cmd.Args = onlyCommands
	return cmd
}

// offlineNamespace is the namespace of what names none, also where no server is known.
func (p *program) offlineNamespace() string {
	target, err := settings.Resolve(p.flags, p.Getenv)
	if err != nil {
		return cmp.Or(p.flags.Namespace, p.Getenv("TAKO_NAMESPACE"), "default")
	}
	return target.Namespace
}
