// Package rollouts is what `tako rollout` steers: the way of a config over hosts, and that of a workload over its instances. Each says what the
// other one has not.
package rollouts

import (
	"context"
	"fmt"
	"io"
	"time"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/workloads"
	"tako.dev/tako/internal/present"
)

// Rollout is that of one config, or of one workload, as it was when it was found. The errors are *failure.Error.
type Rollout interface {
	Ref() remote.Ref
	// Argument is how its subject is named on a command line.
	Argument() string
	// Status is how it stands: for programs, and for people a title with what there is to say.
	Status(ctx context.Context) (status any, title string, found []fleet.Finding)
	// History is the revisions: for programs, and how they are written for people.
	History(ctx context.Context) (list any, write func(io.Writer, present.Style) error, err error)
	// Undo declares an earlier revision again, and returns its name; an empty name is the one that was proven last.
	Undo(ctx context.Context, to string) (string, error)
	// Promote lets it go on where it waits for approval, of a canary past all steps if that is said, and returns what was approved of.
	Promote(ctx context.Context, all bool) (string, error)
	// Triable is an error where nothing of it can be tried, and so confirmed.
	Triable() error
}

// Find finds the rollout of an object.
func Find(ctx context.Context, server *remote.Server, ref remote.Ref) (Rollout, error) {
	if ref.Kind.Group == v1alpha1.GroupName && ref.Kind.Kind == v1alpha1.KindWorkload {
		w, err := workloads.Read(ctx, server, ref)
		if err != nil {
			return nil, err
		}
		return &ofWorkload{w, server}, nil
	}
	all, err := fleet.Read(ctx, server, "", ref.Namespace)
	if err != nil {
		return nil, err
	}
	if c := all.ConfigOf(ref); c != nil {
		return &ofConfig{c, all, server}, nil
	}
	return nil, failure.NotFound("find "+ref.Long(), "there is no such config", "tako get nodeconfigs -A; tako get clusternodeconfigs; tako get workloads -A")
}

type ofConfig struct {
	*fleet.Config
	all    *fleet.Fleet
	server *remote.Server
}

// Status is how far it is on hosts.
func (r *ofConfig) Status(ctx context.Context) (status any, title string, found []fleet.Finding) {
	found = r.all.OfRollout(r.Config)
	fleet.NameValues(ctx, r.server, r.Config, found, time.Now())
	title = r.Argument()
	if s := r.Config.Status.Rollout; s != nil {
		title += fmt.Sprintf("  %s  %d of %d nodes have %s", s.Phase, s.Done, s.Selected, fleet.GoalOf(s))
	}
	return r.Config.Status.Rollout, title, found
}

// History is its revisions, with the nodes that are to have them.
func (r *ofConfig) History(ctx context.Context) (list any, write func(io.Writer, present.Style) error, err error) {
	revisions, err := r.all.Revisions(ctx, r.server, r.Config)
	return revisions, func(w io.Writer, style present.Style) error {
		return fleet.WriteRevisions(w, revisions, time.Now(), style)
	}, err
}

// Undo declares the resources of an earlier revision again.
func (r *ofConfig) Undo(ctx context.Context, to string) (string, error) {
	return fleet.Undo(ctx, r.server, r.Config, to)
}

// Promote is refused.
func (r *ofConfig) Promote(context.Context, bool) (string, error) {
	return "", failure.Usage("promote "+r.Ref().Long(), "rollouts over hosts wait for no approval", "tako rollout resume "+r.Argument()+" lets one go on that is paused; spec.rollout.waves and gates say what one waits for")
}

// Triable is nil.
func (*ofConfig) Triable() error { return nil }

type ofWorkload struct {
	*workloads.Workload
	server *remote.Server
}

// Status is how far it is on its instances.
func (r *ofWorkload) Status(context.Context) (status any, title string, found []fleet.Finding) {
	return &r.Workload.Status, r.Title(), r.Findings(time.Now())
}

// History is its revisions, with how many instances have them.
func (r *ofWorkload) History(ctx context.Context) (list any, write func(io.Writer, present.Style) error, err error) {
	revisions, err := r.Revisions(ctx, r.server)
	return revisions, func(w io.Writer, style present.Style) error {
		return workloads.WriteRevisions(w, revisions, time.Now(), style)
	}, err
}

// Undo declares the template of an earlier revision again.
func (r *ofWorkload) Undo(ctx context.Context, to string) (string, error) {
	return r.Workload.Undo(ctx, r.server, to)
}

// Promote writes that people approve of it.
func (r *ofWorkload) Promote(ctx context.Context, all bool) (string, error) {
	return r.Workload.Promote(ctx, r.server, all)
}

// Triable is that it cannot.
func (r *ofWorkload) Triable() error {
	return failure.Usage("confirm "+r.Ref().Long(), "workloads are not tried", "tako rollout promote "+r.Argument()+" lets one go on that waits for approval")
}
