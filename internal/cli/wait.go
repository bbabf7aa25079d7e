package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

type waitFlags struct {
	selection.Scope
	goal    string
	timeout time.Duration
}

func (p *program) newWait() *cobra.Command {
	f := &waitFlags{}
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME...",
		Short: "Wait until objects are as they should be",
		Example: `  tako wait nodeconfig/web                        until it is Ready
  tako wait node/web-7                            until its host answers
  tako wait node/web-7 --for=converged            until all on it is as declared
  tako wait workload/web --timeout=10m            until as many as are declared are available
  tako wait source/fleet --for=converged          until its hosts are as the newest commit declares
  tako wait nodeconfigs -l app=web --timeout=10m
  tako wait configmap/old --for=delete
  tako wait node/web-7 --for=jsonpath='{.status.promises.failed}'=0`,
		Long: `It ends in one of three ways, each at once when it is known: reached (exit code 0), stalled, which
means that it cannot come until somebody changes something (4), or the deadline is over (3).

A node is Ready when its agent answers, whatever it has to say; it is converged when it answers, has what
every config that selects it declares now, and all of that is as declared. A config is Ready when all
nodes that it selects have what was applied. A workload is Ready when all its instances have what was applied and are available. They
count what was applied before the wait began; another
value in a Secret or ConfigMap that a config takes is seen a moment later.`,
		ValidArgsFunction: p.completeObjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.wait(cmd.Context(), f, args) },
	}
	f.AddTo(cmd)
	cmd.Flags().StringVar(&f.goal, "for", "condition=Ready", "delete, create, condition=TYPE[=STATUS], jsonpath={PATH}[=VALUE] or, of nodes and sources, converged")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait")
	complete(cmd, "for", "condition=Ready", "converged", "create", "delete")
	return cmd
}

func (p *program) wait(ctx context.Context, f *waitFlags, args []string) error {
	goal, err := await.Parse(f.goal)
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return err
	}
	refs, err := selection.Refs(ctx, server, list, f.Scope)
	if err != nil {
		return err
	}
	if len(refs) == 0 && !goal.Deletion() {
		return failure.NotFound("wait for "+goal.String(), "no object is meant", "name objects, or look at what the selector meets with tako get")
	}
	for _, ref := range refs {
		if !goal.Fits(ref.Kind.Kind) {
			return failure.Usage("wait for "+goal.String()+" of "+ref.Long(), "only nodes and sources converge", "a config is Ready when all its nodes have it: --for=condition=Ready")
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	declared := follow.NewDeclared(server, p.warn)
	for _, ref := range refs {
		wait := follow.Wait
		if goal.Converged() && ref.Kind.Kind == v1alpha1.KindNode {
			wait = func(ctx context.Context, server *remote.Server, ref remote.Ref, goal await.Goal) error {
				return follow.Converged(ctx, server, ref, goal, declared)
			}
		}
		group.Go(func() error {
			if err := wait(ctx, server, ref, goal); err != nil {
				return err
			}
			p.say(fmt.Sprintf("%s: %s reached", ref, goal))
			return nil
		})
	}
	return group.Wait()
}

// say tells a person how things go on.
func (p *program) say(text string) {
	p.warnings.Lock()
	defer p.warnings.Unlock()
	fmt.Fprintln(p.Err, text)
}
