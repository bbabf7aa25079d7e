package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

func (p *program) newRollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "See and steer the way of a change over the hosts",
		Example: `  tako rollout status nodeconfig/web -n prod
  tako rollout history nodeconfig/web -n prod
  tako rollout undo nodeconfig/web -n prod`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var form string
	status := p.rolloutCommand("status", "Show how far a config is, and what holds it up", func(ctx context.Context, r rolling) error {
		if err := checkJSON(form); err != nil {
			return err
		}
		found := r.all.OfRollout(r.config)
		fleet.NameValues(ctx, r.server, r.config, found, time.Now())
		return p.write(form, r.config.Status.Rollout, func() string { return r.text(found, p) })
	})
	addJSON(status, &form)
	history := p.rolloutCommand("history", "List the revisions of a config, the newest first, with the nodes that are to have them", func(ctx context.Context, r rolling) error {
		if err := checkJSON(form); err != nil {
			return err
		}
		list, err := r.all.Revisions(ctx, r.server, r.config)
		if err != nil {
			return err
		}
		if form == "json" {
			return json.NewEncoder(p.Out).Encode(list)
		}
		return fleet.WriteRevisions(p.Out, list, time.Now(), p.style())
	})
	addJSON(history, &form)
	var to string
	undo := p.rolloutCommand("undo", "Declare again what all hosts had converged on before, or an older revision", func(ctx context.Context, r rolling) error {
		to, err := fleet.Undo(ctx, r.server, r.config, to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.Out, "%s declares %s again\n", r.config.Ref(), to)
		return err
	})
	undo.Flags().StringVar(&to, "to-revision", "", "name of the revision to go back to (default what was proven last)")
	set := func(verb, short, said string, fields map[string]any) *cobra.Command {
		return p.rolloutCommand(verb, short, func(ctx context.Context, r rolling) error {
			_, err := r.server.Patch(ctx, r.config.Ref(), map[string]any{"spec": map[string]any{"rollout": fields}}, remote.EditManager)
			if err != nil {
				return failure.Of(err, verb+" the rollout of "+r.config.Ref().Long())
			}
			_, err = fmt.Fprintf(p.Out, "%s %s\n", r.config.Ref(), said)
			return err
		})
	}
	cmd.AddCommand(status, history, undo,
		set("pause", "Stop a change where it is", "paused", map[string]any{"pause": true}),
		set("resume", "Let a change that was paused go on", "resumed", map[string]any{"pause": nil}),
		set("confirm", "Keep what was applied with --try", "confirmed", map[string]any{"try": nil}))
	return cmd
}

// rolling is a config that a command is about.
type rolling struct {
	server *remote.Server
	all    *fleet.Fleet
	config *fleet.Config
}

func (p *program) rolloutCommand(verb, short string, run func(context.Context, rolling) error) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " nodeconfig/NAME",
		Short:             short,
		Example:           "  tako rollout " + verb + " nodeconfig/web -n prod",
		Args:              taking(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: p.completeObjects,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := p.findConfig(cmd.Context(), args)
			if err != nil {
				return err
			}
			return run(cmd.Context(), r)
		},
	}
}

func (p *program) findConfig(ctx context.Context, args []string) (rolling, error) {
	server, namespace, err := p.connect()
	if err != nil {
		return rolling{}, err
	}
	ref, err := selection.Single(ctx, server, namespace, args, "nodeconfig/NAME or clusternodeconfig/NAME")
	if err != nil {
		return rolling{}, err
	}
	all, err := fleet.Read(ctx, server, "", ref.Namespace)
	if err != nil {
		return rolling{}, err
	}
	if c := all.ConfigOf(ref); c != nil {
		return rolling{server, all, c}, nil
	}
	return rolling{}, failure.NotFound("find "+ref.Long(), "there is no such config", "tako get nodeconfigs -A; tako get clusternodeconfigs")
}

func (r rolling) text(found []fleet.Finding, p *program) string {
	title := r.config.Argument()
	if s := r.config.Status.Rollout; s != nil {
		title += fmt.Sprintf("  %s  %d of %d nodes have %s", s.Phase, s.Done, s.Selected, s.Target)
	}
	return fleet.Explain(title, found, time.Now(), p.style())
}
