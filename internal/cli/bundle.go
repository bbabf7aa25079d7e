package cli

import (
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/bundles"
)

func (p *program) newBundle() *cobra.Command {
	cmd := (&bundles.Shell{Out: p.Out, Err: p.Err, Connect: p.connect}).New()
	checkArguments(cmd)
	cmd.Args = onlyCommands
	return cmd
}
