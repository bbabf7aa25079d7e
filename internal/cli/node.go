package cli

import (
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/nodes"
)

func (p *program) newNode() *cobra.Command {
	cmd := (&nodes.Shell{Out: p.Out, Connect: p.connect, Say: p.say, Change: p.changeNode, Complete: p.completeNodes}).New()
	checkArguments(cmd)
	cmd.Args = onlyCommands
	return cmd
}
