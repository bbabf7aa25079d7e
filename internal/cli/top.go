package cli

import (
	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/top"
)

func (p *program) newTop() *cobra.Command {
	cmd := (&top.Shell{Out: p.Out, Connect: p.connect, Style: p.style, Say: p.say}).New()
	checkArguments(cmd)
	return cmd
}
