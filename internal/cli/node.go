package cli

import (
	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
)

func (p *program) newNode() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Short:   "Decide about hosts: who may be one",
		Example: "  tako node approve web-7",
		Args:    onlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "approve NAME",
		Short:   "Let the host in that wants to join under the name of a node, in the place of the one before",
		Example: "  tako why node/web-7            says who wants to join\n  tako node approve web-7",
		Long: "The host gets in when it asks again: repeat tako-agent join there. The key of the host before is refused from then on,\n" +
			"and the secrets that it could read stay readable for whoever has its disk, until they are changed.",
		Args:              taking(cobra.ExactArgs(1)),
		ValidArgsFunction: p.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, _, err := p.connect()
			if err != nil {
				return err
			}
			return p.changeNode(cmd.Context(), server, args[0], "no host waits to join under this name", func(n *v1alpha1.Node) string {
				r := n.Status.JoinRequest
				if r == nil || n.Spec.ApprovedKey == r.Key {
					return ""
				}
				n.Spec.ApprovedKey = r.Key
				return "approved: the host at " + r.From + " gets in when it asks again"
			})
		},
	})
	return cmd
}
