package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

func (p *program) newRollout() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "See and steer the way of a change over the hosts",
		Example: `  tako rollout status nodeconfig/web -n prod
  tako rollout undo nodeconfig/web -n prod`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var form string
	status := p.rolloutCommand("status", "Show how far a config is, and what holds it up", func(ctx context.Context, r rolling) error {
		found := r.all.OfConfig(r.config)
		return p.write(form, r.config.Status.Rollout, func() string { return r.text(found, p) })
	})
	addJSON(status, &form)
	var to string
	undo := p.rolloutCommand("undo", "Declare again what all hosts had converged on before, or an older revision", func(ctx context.Context, r rolling) error {
		return p.undo(ctx, r, to)
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
	cmd.AddCommand(status, undo,
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
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return rolling{}, err
	}
	if len(list) != 1 || len(list[0].Names) != 1 {
		return rolling{}, failure.Usage("read the arguments", "exactly one config is meant", "write nodeconfig/NAME or clusternodeconfig/NAME")
	}
	ref := list[0].Refs()[0]
	all, err := fleet.Read(ctx, server, "")
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

// undo declares the resources of an earlier revision again. Everything else that is declared stays.
func (p *program) undo(ctx context.Context, r rolling, to string) error {
	s := r.config.Status.Rollout
	if to == "" && s != nil {
		to = s.Proven
	}
	doing := "undo the rollout of " + r.config.Ref().Long()
	if to == "" || to == r.config.Status.Revision {
		return failure.Stalled(doing, "there is no earlier state that all hosts had converged on", "tako get revisions lists what there is; name one with --to-revision")
	}
	resources, err := r.resourcesOf(ctx, to)
	if err != nil {
		return failure.Of(err, doing)
	}
	object, err := r.server.Get(ctx, r.config.Ref())
	if err != nil {
		return failure.Of(err, doing)
	}
	declared := output.Declared(object)
	if err := unstructured.SetNestedSlice(declared.Object, resources, "spec", "resources"); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	unstructured.RemoveNestedField(declared.Object, "spec", "rollout", "try") // what is gone back to was proven
	declared.SetResourceVersion(object.GetResourceVersion())                  // what somebody changes meanwhile is not undone with it
	// Under the name of whoever applied it last, so that the next apply of a mended file is no conflict.
	options := remote.ApplyOptions{Force: true, Manager: applier(object)}
	if _, err := r.server.Apply(ctx, r.config.Ref(), declared, options); err != nil {
		return failure.Of(err, doing)
	}
	_, err = fmt.Fprintf(p.Out, "%s declares %s again\n", r.config.Ref(), to)
	return err
}

// applier is who applied an object last; empty where nobody did.
func applier(object *unstructured.Unstructured) string {
	var last metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		newer := last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time)
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" && newer {
			last = entry
		}
	}
	return last.Manager
}

// resourcesOf are the resources of a revision of the config.
func (r rolling) resourcesOf(ctx context.Context, name string) ([]any, error) {
	resource := v1alpha1.ResourceRevisions
	if r.config.Meta.Namespace == "" {
		resource = v1alpha1.ResourceClusterRevisions
	}
	kind, err := r.server.Find(ctx, resource+"."+v1alpha1.GroupName)
	if err != nil {
		return nil, err
	}
	revision, err := r.server.Get(ctx, remote.Ref{Kind: kind, Namespace: r.config.Meta.Namespace, Name: name})
	if err != nil {
		return nil, err
	}
	list, _, err := unstructured.NestedSlice(revision.Object, "spec", "resources")
	if err != nil {
		return nil, err
	}
	uid, _, _ := unstructured.NestedString(revision.Object, "spec", "source", "uid")
	if cmp.Or(uid, string(r.config.Meta.UID)) != string(r.config.Meta.UID) {
		return nil, fmt.Errorf("revision %s is of another config", name)
	}
	if list == nil {
		list = []any{}
	}
	return list, nil
}
