package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

// held are the flags that say what of a host is held.
type held struct {
	config   string
	resource string
}

func (h *held) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&h.config, "config", "", "only resources of this config: KIND/NAME or KIND/NAMESPACE/NAME")
	cmd.Flags().StringVar(&h.resource, "resource", "", "only what claims this, such as path:/etc/motd")
}

func (p *program) newHold() *cobra.Command {
	var h held
	var why string
	until := lifetime{time.Hour}
	cmd := &cobra.Command{
		Use:   "hold node/NAME... | nodeconfig/NAME",
		Short: "Let hosts look at something and not change it, for a while and for a reason",
		Example: `  tako hold node/web-7 --reason 'looking at a hung disk' --for 2h
  tako hold node/web-7 --resource path:/etc/motd --reason 'mine for now' --for 30m
  tako hold nodeconfig/web -n prod --reason 'change freeze' --for 12h
  tako resume node/web-7`,
		Long:              "A config is held on the nodes that have it now. tako resume ends a hold before its time.",
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(why) == "" || until.Duration <= 0 {
				return failure.Usage("hold", "a hold needs a reason and an end", "write --reason 'why' --for 1h")
			}
			return p.changeHolds(cmd.Context(), args, h, func(owner string, n *v1alpha1.Node, x v1alpha1.NodeHold) string {
				x.Reason, x.Owner, x.Until = why, owner, metav1.NewTime(time.Now().Add(until.Duration).Truncate(time.Second))
				n.Spec.Holds = append(without(n.Spec.Holds, x), x)
				return "held until " + x.Until.UTC().Format(time.RFC3339)
			})
		},
	}
	h.addTo(cmd)
	cmd.Flags().StringVar(&why, "reason", "", "why, for whoever finds it")
	cmd.Flags().Var(&until, "for", "how long, such as 30m or 2h")
	return cmd
}

// without is a list of holds without the one of the same thing.
func without(list []v1alpha1.NodeHold, x v1alpha1.NodeHold) []v1alpha1.NodeHold {
	return slices.DeleteFunc(slices.Clone(list), func(h v1alpha1.NodeHold) bool { return h.Config == x.Config && h.Resource == x.Resource })
}

func (p *program) newResume() *cobra.Command {
	var h held
	cmd := &cobra.Command{
		Use:   "resume node/NAME... | nodeconfig/NAME",
		Short: "End holds, and let a host go on to what it has withheld",
		Example: `  tako resume node/web-7
  tako resume node/web-7 --resource path:/etc/motd
  tako resume nodeconfig/web -n prod`,
		Long: "Of a node without further flags all holds end, and a state that it withheld, because it deletes much, may\n" +
			"come. A rollout that is paused goes on with tako rollout resume.",
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.changeHolds(cmd.Context(), args, h, resume)
		},
	}
	h.addTo(cmd)
	return cmd
}

// resume ends the holds of a thing on a node, or all, and consents to what is withheld.
func resume(_ string, n *v1alpha1.Node, x v1alpha1.NodeHold) string {
	before := len(n.Spec.Holds)
	if x.Config == "" && x.Resource == "" {
		n.Spec.Holds = nil
		if v := n.Status.Verdict; v != nil && v.Type == v1alpha1.VerdictWithheld {
			n.Spec.AllowDeletions = strings.TrimPrefix(v.Root, "sha256:")
			return "may go on to the state that it withheld"
		}
	} else {
		n.Spec.Holds = without(n.Spec.Holds, x)
	}
	if before == len(n.Spec.Holds) {
		return "" // nothing is held
	}
	return "resumed"
}

// changeHolds changes what is held on the nodes that are meant. change returns what to say, or nothing where it changed nothing.
func (p *program) changeHolds(ctx context.Context, args []string, h held, change func(owner string, n *v1alpha1.Node, x v1alpha1.NodeHold) string) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
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
			if names, x.Config, err = nodesOf(ctx, server, t); err != nil {
				return err
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

// nodesOf are the nodes that have a config, and its ID.
func nodesOf(ctx context.Context, server *remote.Server, t selection.Target) (nodes []string, id string, err error) {
	if t.Kind.Kind != v1alpha1.KindNodeConfig && t.Kind.Kind != v1alpha1.KindClusterNodeConfig || len(t.Names) != 1 {
		return nil, "", failure.Usage("read the arguments", t.Kind.Name()+" cannot be held", "write node/NAME or one nodeconfig/NAME")
	}
	all, err := fleet.Read(ctx, server, "")
	if err != nil {
		return nil, "", err
	}
	if c := all.ConfigOf(t.Refs()[0]); c != nil {
		return all.HavingConfig(c.ID), c.ID, nil
	}
	return nil, "", failure.NotFound("hold "+t.Refs()[0].Long(), "there is none", "tako get "+t.Kind.Resource)
}

// attemptsMax is how often a node that others change too is read again.
const attemptsMax = 5

// changeNode changes the spec of a node, and says what came of it, or why nothing has.
func (p *program) changeNode(ctx context.Context, server *remote.Server, name, unchanged string, change func(*v1alpha1.Node) string) error {
	kind, err := server.Find(ctx, v1alpha1.ResourceNodes+"."+v1alpha1.GroupName)
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	ref := remote.Ref{Kind: kind, Name: name}
	for range attemptsMax {
		object, err := server.Get(ctx, ref)
		if err != nil {
			return failure.Of(err, "get "+ref.String())
		}
		var n v1alpha1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &n); err != nil {
			return fmt.Errorf("read %s of the server: %w", ref, err)
		}
		said := change(&n)
		if said == "" {
			p.say(ref.String() + " unchanged: " + unchanged)
			return nil
		}
		if err := setSpec(object, n.Spec); err != nil {
			return err
		}
		_, err = server.Update(ctx, ref, object)
		if err == nil {
			_, err = fmt.Fprintf(p.Out, "%s %s\n", ref, said)
			return err
		}
		if !isConflict(err) {
			return failure.Of(err, "change "+ref.String())
		}
	}
	return failure.Of(cmp.Or(ctx.Err(), errBusy), "change "+ref.String())
}

// setSpec replaces the spec of an object.
func setSpec(object *unstructured.Unstructured, spec any) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write the spec of %s: %w", object.GetName(), err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("write the spec of %s: %w", object.GetName(), err)
	}
	object.Object["spec"] = fields
	return nil
}
