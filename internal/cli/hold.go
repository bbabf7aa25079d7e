package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/until"
)

// held are the flags that say what of a host is held.
type held struct {
	config   string
	resource string
	all      bool
}

func (h *held) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.config, "config", "", "only resources of this config: KIND/NAME or KIND/NAMESPACE/NAME")
	cmd.Flags().BoolVar(&h.all, "all", false, "on every node")
	cmd.Flags().StringVar(&h.resource, "resource", "", "only what claims this, such as path:/etc/motd")
}

func (p *program) newHold() *cobra.Command {
	var h held
	var why string
	lasts := until.Lifetime{Duration: time.Hour}
	var end until.Moment
	cmd := &cobra.Command{
		Use:   "hold node/NAME... | nodeconfig/NAME | --all",
		Short: "Let hosts look at something and not change it, for a while and for a reason",
		Example: `  tako hold node/web-7 --reason 'looking at a hung disk' --for 2h
  tako hold node/web-7 --resource path:/etc/motd --reason 'mine for now' --for 30m
  tako hold nodeconfig/web -n prod --reason 'change freeze' --for 12h
  tako hold --all --reason 'change freeze' --until '2026-12-27 08:00'
  tako resume node/web-7`,
		Long:              "A config is held on the nodes that have it now. tako resume ends a hold before its time.",
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			if end.IsZero() {
				end.Time = time.Now().Add(lasts.Duration)
			}
			if strings.TrimSpace(why) == "" || !end.After(time.Now()) {
				return failure.Usage("hold", "a hold needs a reason and an end", "write --reason 'why' --for 1h")
			}
			return p.changeHolds(cmd.Context(), args, h, func(owner string, n *v1alpha1.Node, x v1alpha1.NodeHold) string {
				x.Reason, x.Owner, x.Until = why, owner, metav1.NewTime(end.Truncate(time.Second))
				return fleet.Hold(n, x)
			})
		},
	}
	h.addTo(cmd)
	cmd.Flags().StringVar(&why, "reason", "", "why, for whoever finds it")
	cmd.Flags().Var(&lasts, "for", "how long, such as 30m or 2h")
	cmd.Flags().Var(&end, "until", "until when, such as 18:00 or '2026-12-27 08:00'")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

func (p *program) newResume() *cobra.Command {
	var h held
	cmd := &cobra.Command{
		Use:   "resume node/NAME... | nodeconfig/NAME | --all",
		Short: "End holds, and let a host go on to what it has withheld",
		Example: `  tako resume node/web-7
  tako resume node/web-7 --resource path:/etc/motd
  tako resume nodeconfig/web -n prod`,
		Long: "Of a node without further flags all holds end, and a state that it withheld, because it deletes much, may\n" +
			"come. A rollout that is paused goes on with tako rollout resume.",
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeHolds(cmd.Context(), args, h, func(_ string, n *v1alpha1.Node, x v1alpha1.NodeHold) string { return fleet.Resume(n, x) })
		},
	}
	h.addTo(cmd)
	return cmd
}

// changeHolds changes what is held on the nodes that are meant. change returns what to say, or nothing where it changed nothing.
func (p *program) changeHolds(ctx context.Context, args []string, h held, change func(owner string, n *v1alpha1.Node, x v1alpha1.NodeHold) string) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	if h.all {
		names, err := fleet.NodeNames(ctx, server)
		if err != nil {
			return err
		}
		for _, name := range names {
			args = append(args, "node/"+name)
		}
	}
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return err
	}
	owner, err := server.WhoAmI(ctx)
	if err != nil {
		return failure.Of(err, "ask the server who asks it")
	}
	for _, t := range list {
		names, x := t.Names, v1alpha1.NodeHold{Config: h.config, Resource: h.resource}
		if len(names) == 0 {
			return failure.Usage("read the arguments", "no name is given", "write "+t.Kind.Name()+"/NAME")
		}
		if t.Kind.Kind != v1alpha1.KindNode {
			if t.Kind.Kind != v1alpha1.KindNodeConfig && t.Kind.Kind != v1alpha1.KindClusterNodeConfig || len(t.Names) != 1 {
				return failure.Usage("read the arguments", t.Kind.Name()+" cannot be held", "write node/NAME or one nodeconfig/NAME")
			}
			if names, x.Config, err = fleet.NodesHaving(ctx, server, t.Refs()[0]); err != nil {
				return err
			}
			if len(names) == 0 {
				return failure.NotFound("hold or resume "+t.Refs()[0].Long(), "no node that you may see has it", "tako get nodes")
			}
		}
		for _, name := range names {
			if err := p.changeNode(ctx, server, name, "nothing of it is held", func(n *v1alpha1.Node) string { return change(owner, n, x) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeNode changes the spec of a node, and says what came of it, or why nothing has.
func (p *program) changeNode(ctx context.Context, server *remote.Server, name, unchanged string, change func(*v1alpha1.Node) string) error {
	ref, said, err := fleet.ChangeNode(ctx, server, name, change)
	switch {
	case err != nil:
		return err
	case said == "":
		p.say(ref.String() + " unchanged: " + unchanged)
		return nil
	}
	_, err = fmt.Fprintf(p.Out, "%s %s\n", ref, said)
	return err
}
