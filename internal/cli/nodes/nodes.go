// Package nodes decides about hosts: who may be one, and whether instances may be there.
package nodes

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/remote"
)

// Shell is what the commands have of the program that they are in.
type Shell struct {
	Out     io.Writer
	Connect func() (server *remote.Server, namespace string, err error)
	// Say tells a person what is no result. It may be called by several goroutines.
	Say func(text string)
	// Change changes the spec of a node, and says what came of it, or why nothing has: unchanged, where change returns nothing to say.
	Change func(ctx context.Context, server *remote.Server, name, unchanged string, change func(*v1alpha1.Node) string) error
	// Complete offers the names of nodes.
	Complete cobra.CompletionFunc
}

// New returns the command, which has one below it for each decision.
func (s *Shell) New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "node",
		Short:   "Decide about hosts: who may be one, and whether instances may be there",
		Example: "  tako node approve web-7\n  tako node cordon web-7\n  tako node drain web-7 --deadline 30m\n  tako node uncordon web-7",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "approve NAME",
		Short:   "Let the host in that wants to join under the name of a node, in the place of the one before",
		Example: "  tako why node/web-7            says who wants to join\n  tako node approve web-7",
		Long: "The host gets in when it asks again: repeat tako-agent join there. The key of the host before is refused from then on,\n" +
			"and the secrets that it could read stay readable for whoever has its disk, until they are changed.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, _, err := s.Connect()
			if err != nil {
				return err
			}
			return s.Change(cmd.Context(), server, args[0], "no host waits to join under this name", func(n *v1alpha1.Node) string {
				r := n.Status.JoinRequest
				if r == nil || n.Spec.ApprovedKey == r.Key {
					return ""
				}
				n.Spec.ApprovedKey = r.Key
				if n.Spec.RejectedKey == r.Key {
					n.Spec.RejectedKey = ""
				}
				return "approved: the host at " + r.From + " gets in when it asks again"
			})
		},
	})
	cmd.AddCommand(s.newReject(), s.newCordon(), s.newUncordon(), s.newDrain())
	return cmd
}

func (s *Shell) newReject() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:     "reject NAME",
		Short:   "Dismiss the host that wants to join under the name of a node, and keep the one that is it",
		Example: "  tako why node/web-7            says who wants to join, and with which key\n  tako node reject web-7\n  tako node reject web-7 --key sha256:1f0c…",
		Long: "It is refused either way; this says that nobody needs to hear of it any more. An approval of it that it has not used is taken back.\n" +
			"A host with yet another key is shown again. To see this one again, empty spec.rejectedKey: tako edit node/NAME.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, _, err := s.Connect()
			if err != nil {
				return err
			}
			unchanged := "no host waits to join under this name"
			if key != "" {
				unchanged = "no host with that key waits to join under this name"
			}
			return s.Change(cmd.Context(), server, args[0], unchanged, func(n *v1alpha1.Node) string {
				r := n.Status.JoinRequest
				if r == nil || key != "" && key != r.Key {
					return ""
				}
				n.Spec.RejectedKey = r.Key
				if n.Spec.ApprovedKey == r.Key {
					n.Spec.ApprovedKey = ""
				}
				return "rejected: the host at " + r.From + " with key " + r.Key + " does not get in, and is not shown any more"
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "only if the host that waits has this key: sha256: and 64 digits, as tako why says")
	return cmd
}
