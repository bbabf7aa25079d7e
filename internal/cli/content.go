package cli

import (
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/contents"
)

func (p *program) newContent() *cobra.Command {
	cmd := (&contents.Shell{Out: p.Out, Err: p.Err, Connect: p.connect}).New()
	checkArguments(cmd)
	cmd.Args = onlyCommands
	return cmd
}
