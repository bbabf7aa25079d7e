package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/until"
)

// drainTimeout is for how long a drain is waited for: ours, a rolling move of a host full of instances that take a minute each to start.
const drainTimeout = 15 * time.Minute

func (s *Shell) newCordon() *cobra.Command {
	return s.newChange("cordon", "Keep new instances off a node; what runs there stays", "it takes no new instances already", func(n *v1alpha1.Node) string {
		if n.Spec.Unschedulable {
			return ""
		}
		n.Spec.Unschedulable = true
		return "cordoned: no new instance comes there, and what runs there stays"
	})
}

func (s *Shell) newUncordon() *cobra.Command {
	return s.newChange("uncordon", "Let a node take instances again, and end its drain", "it takes instances", func(n *v1alpha1.Node) string {
		switch {
		case n.Spec.Drain != nil:
			n.Spec.Drain, n.Spec.Unschedulable = nil, false
			return "uncordoned: its drain is over, and it takes instances"
		case n.Spec.Unschedulable:
			n.Spec.Unschedulable = false
			return "uncordoned: it takes instances"
		}
		return ""
	})
}

// newChange is a command that changes the spec of each node that is named.
func (s *Shell) newChange(verb, short, unchanged string, change func(*v1alpha1.Node) string) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " NAME...",
		Short:             short,
		Example:           "  tako node " + verb + " web-7",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: s.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, _, err := s.Connect()
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := s.Change(cmd.Context(), server, strings.TrimPrefix(name, "node/"), unchanged, change); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// drainFlags are those of node drain.
type drainFlags struct {
	deadline until.Lifetime
	given    bool // the deadline was
	wait     bool
	timeout  time.Duration
}

func (s *Shell) newDrain() *cobra.Command {
	f := &drainFlags{}
	cmd := &cobra.Command{
		Use:   "drain NAME...",
		Short: "Move the instances of workloads off a node, within their disruption budgets",
		Example: `  tako node drain web-7                      and wait until nothing of any instance runs there
  tako node drain web-7 --deadline 30m       what is left then is ended, whatever budgets say
  tako node drain web-7 --wait=false         tako wait node/web-7 --for=condition=Drained waits later
  tako why node/web-7                        what is still there, and why
  tako node uncordon web-7                   takes it back`,
		Long: `Instances leave as the disruption budgets of their workloads allow, and others start on other nodes; no
new one comes to this one until tako node uncordon. It is drained when their processes have stopped.

It ends in one of three ways, each at once when it is known: drained (exit code 0), it cannot go on until
somebody changes something (4), or the time is over (3). The drain itself goes on in all of them, and after Ctrl-C.
Of a node that is being drained already the deadline stays unless another one is given.`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: s.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.given = cmd.Flags().Changed("deadline")
			if !cmd.Flags().Changed("timeout") {
				f.timeout += f.deadline.Duration
			}
			return s.drain(cmd.Context(), args, f)
		},
	}
	cmd.Flags().Var(&f.deadline, "deadline", "after how long what is left is ended whatever disruption budgets say, such as 30m, or never")
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until it is drained")
	cmd.Flags().DurationVar(&f.timeout, "timeout", drainTimeout, "how long to wait, by default after the deadline")
	return cmd
}

func (s *Shell) drain(ctx context.Context, names []string, f *drainFlags) error {
	server, _, err := s.Connect()
	if err != nil {
		return err
	}
	var refs []remote.Ref
	for _, name := range names {
		name = strings.TrimPrefix(name, "node/")
		ref, said, err := fleet.ChangeNode(ctx, server, name, func(n *v1alpha1.Node) string { return f.change(n, time.Now()) })
		if err != nil {
			return err
		}
		if said == "" {
			s.Say(ref.String() + " unchanged: it is being drained already")
		} else if _, err := fmt.Fprintf(s.Out, "%s %s\n", ref, said); err != nil {
			return err
		}
		refs = append(refs, ref)
	}
	if !f.wait {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	var group errgroup.Group
	var mu sync.Mutex // of what is written
	for _, ref := range refs {
		group.Go(func() error {
			if err := follow.Drained(waiting, server, ref, func(words string) { s.Say(ref.String() + ": " + words) }); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			_, err := fmt.Fprintf(s.Out, "%s drained: nothing of any instance runs there\n", ref)
			return err
		})
	}
	err = group.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		s.Say("the drain goes on: tako why node/NAME says how far it is, and tako node uncordon NAME takes it back")
	}
	return err
}

// change declares the drain, and says so; empty: it is declared already.
func (f *drainFlags) change(n *v1alpha1.Node, now time.Time) string {
	if n.Spec.Drain != nil && !f.given {
		return ""
	}
	n.Spec.Drain = &v1alpha1.NodeDrain{}
	if f.deadline.Duration == 0 {
		return "is being drained"
	}
	at := metav1.NewTime(now.Add(f.deadline.Duration).Truncate(time.Second))
	n.Spec.Drain.Deadline = &at
	return "is being drained: what is left at " + at.UTC().Format(time.RFC3339) + " is ended then"
}
