package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/rollouts"
	"tako.dev/tako/internal/cli/selection"
)

func (p *program) newRollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "See and steer the way of a change over the hosts, or over the instances of a workload",
		Example: `  tako rollout status nodeconfig/web -n prod
  tako rollout status workload/web -n prod --wait
  tako rollout history workload/web -n prod
  tako rollout promote workload/web -n prod
  tako rollout undo nodeconfig/web -n prod`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var to string
	undo := p.rolloutCommand("undo", "Declare again what was proven last, or an older revision", func(ctx context.Context, r rolling) error {
		to, err := r.Undo(ctx, to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Out, "%s declares %s again\n", r.Ref(), to)
		return err
	})
	undo.Flags().StringVar(&to, "to-revision", "", "name of the revision to go back to, of a workload its number too (default what was proven last)")
	set := func(verb, short, said string, fields map[string]any) *cobra.Command {
		return p.rolloutCommand(verb, short, func(ctx context.Context, r rolling) error {
			if verb == "confirm" {
				if err := r.Triable(); err != nil {
					return err
				}
			}
			_, err := r.server.Patch(ctx, r.Ref(), map[string]any{"spec": map[string]any{"rollout": fields}}, remote.EditManager)
			if err != nil {
				return failure.Of(err, verb+" the rollout of "+r.Ref().Long())
			}
			_, err = fmt.Fprintf(p.Out, "%s %s\n", r.Ref(), said)
			return err
		})
	}
	cmd.AddCommand(p.newRolloutStatus(), p.newRolloutHistory(), undo, p.newPromote(),
		set("pause", "Stop a change where it is", "paused", map[string]any{"pause": true}),
		set("resume", "Let a change that was paused go on", "resumed", map[string]any{"pause": nil}),
		set("confirm", "Keep what was applied with --try", "confirmed", map[string]any{"try": nil}))
	return cmd
}

func (p *program) newRolloutStatus() *cobra.Command {
	var form string
	var wait bool
	var timeout time.Duration
	cmd := p.rolloutCommand("status", "Show how far a change is, and what holds it up", func(ctx context.Context, r rolling) error {
		if err := checkJSON(form); err != nil {
			return err
		}
		var waited error
		if wait {
			if waited = p.waitReady(ctx, r, timeout); ctx.Err() == nil {
				found, err := rollouts.Find(ctx, r.server, r.Ref())
				if err != nil {
					return err
				}
				r.Rollout = found
			}
		}
		status, title, found := r.Status(ctx)
		if err := p.write(form, status, func() string { return fleet.Explain(title, found, time.Now(), p.style()) }); err != nil {
			return err
		}
		return waited
	})
	cmd.Long = `With --wait it shows that when it is over, which is one of three ways, each at once when it is known: everything has the
change and is ready (exit code 0), it cannot go on until somebody changes something (4), or the deadline is over (3).`
	addJSON(cmd, &form)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is over")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "with --wait: how long")
	return cmd
}

// waitReady waits until what is declared is everywhere, stalls or takes too long.
func (p *program) waitReady(ctx context.Context, r rolling, timeout time.Duration) error {
	goal, err := await.Parse("condition=" + v1alpha1.ConditionReady)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return follow.Wait(ctx, r.server, r.Ref(), goal)
}

func (p *program) newRolloutHistory() *cobra.Command {
	var form string
	cmd := p.rolloutCommand("history", "List the revisions, the newest first, with what has them", func(ctx context.Context, r rolling) error {
		if err := checkJSON(form); err != nil {
			return err
		}
		list, write, err := r.History(ctx)
		if err != nil {
			return err
		}
		if form == "json" {
			return json.NewEncoder(p.Out).Encode(list)
		}
		return write(p.Out, p.style())
	})
	addJSON(cmd, &form)
	return cmd
}

func (p *program) newPromote() *cobra.Command {
	var all bool
	cmd := p.rolloutCommand("promote", "Let a workload's rollout go on that waits for approval", func(ctx context.Context, r rolling) error {
		said, err := r.Promote(ctx, all)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Out, "%s promoted: %s\n", r.Ref(), said)
		return err
	})
	cmd.Example = "  tako rollout promote workload/web -n prod\n  tako rollout promote workload/web -n prod --all"
	cmd.Flags().BoolVar(&all, "all", false, "of a canary: all steps that are left")
	return cmd
}

// rolling is what a command steers, and where it was found.
type rolling struct {
	rollouts.Rollout
	server *remote.Server
}

func (p *program) rolloutCommand(verb, short string, run func(context.Context, rolling) error) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " KIND/NAME",
		Short:             short,
		Example:           "  tako rollout " + verb + " nodeconfig/web -n prod",
		Args:              taking(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, namespace, err := p.connect()
			if err != nil {
				return err
			}
			ref, err := selection.Single(cmd.Context(), server, namespace, args, "workload/NAME, nodeconfig/NAME or clusternodeconfig/NAME")
			if err != nil {
				return err
			}
			found, err := rollouts.Find(cmd.Context(), server, ref)
			if err != nil {
				return err
			}
			return run(cmd.Context(), rolling{found, server})
		},
	}
}
