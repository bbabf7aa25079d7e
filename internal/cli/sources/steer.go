package sources

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/await"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/remote"
)

func (s *Shell) newReconcile() *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reconcile NAME",
		Short: "Have a source look at its repository now",
		Example: `  tako source reconcile fleet -n prod
  tako source reconcile fleet -n prod --wait --timeout 5m`,
		Long: "With --wait it ends with 0 when the newest commit is applied, with 4 when it is refused or cannot be\n" +
			"applied, and with 3 when it is not known in time.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete(v1alpha1.ResourceSources),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.reconcile(cmd.Context(), args[0], wait, timeout)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "until it is applied, or cannot be")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "with --wait: how long")
	return cmd
}

func (s *Shell) reconcile(ctx context.Context, name string, wait bool, timeout time.Duration) error {
	server, namespace, err := s.Connect("", nil)
	if err != nil {
		return err
	}
	ref, src, err := s.find(ctx, server, namespace, name)
	if err != nil {
		return err
	}
	if u := src.Spec.Suspend; u != nil && time.Now().Before(u.Until.Time) {
		return failure.Stalled("reconcile "+ref.Long(), fmt.Sprintf("it is suspended by %s until %s: %s", u.Owner, u.Until.UTC().Format(time.RFC3339), u.Reason),
			"tako source resume "+src.Name+" -n "+src.Namespace)
	}
	request := time.Now().UTC().Format(time.RFC3339Nano)
	changes := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationReconcile: request}}}
	if _, err := server.Patch(ctx, ref, changes, ""); err != nil {
		return failure.Of(err, "reconcile "+ref.Long())
	}
	if !wait {
		s.Say(ref.String() + " is asked to look at its repository")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := follow.Wait(ctx, server, ref, await.Handled(request)); err != nil {
		return err
	}
	_, src, err = s.find(ctx, server, namespace, name)
	if err != nil {
		return err
	}
	if a := src.Status.Applied; a != nil {
		_, err = fmt.Fprintf(s.Out, "%s applied %s, %s\n", ref, commitText(a), count(int(src.Status.Objects), "object"))
	}
	return err
}

func (s *Shell) newSuspend() *cobra.Command {
	var why, until string
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "suspend NAME",
		Short: "Stop a source for a while and for a reason; what it has applied stays",
		Example: `  tako source suspend fleet -n prod --reason 'change freeze' --for 12h
  tako source suspend fleet -n prod --reason 'move of the forge' --until 2026-12-01T06:00:00Z
  tako source resume fleet -n prod`,
		Long:              "Drift is not put back meanwhile. It goes on by itself at the end, or with tako source resume before.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete(v1alpha1.ResourceSources),
		RunE: func(cmd *cobra.Command, args []string) error {
			end, err := endOf(time.Now(), length, until)
			if err == nil && strings.TrimSpace(why) == "" {
				err = failure.Usage("suspend", "no reason is given", "write --reason 'why', for whoever finds it")
			}
			if err != nil {
				return err
			}
			return s.suspend(cmd.Context(), args[0], why, end)
		},
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, for whoever finds it")
	cmd.Flags().DurationVar(&length, "for", 0, "how long, such as 30m or 12h")
	cmd.Flags().StringVar(&until, "until", "", "until when, such as 2026-12-01T06:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

// endOf is when a suspension ends. The API keeps whole seconds.
func endOf(now time.Time, length time.Duration, until string) (time.Time, error) {
	const hint = "write --for 12h or --until 2026-12-01T06:00:00Z"
	switch {
	case until != "":
		end, err := time.Parse(time.RFC3339, until)
		if err != nil {
			return end, failure.Usage("read --until "+until, "it is no time", hint)
		}
		return end.UTC().Truncate(time.Second), nil
	case length >= time.Second:
		return now.Add(length).UTC().Truncate(time.Second), nil
	case length != 0:
		return now, failure.Usage("read --for "+length.String(), "it must end after now", hint)
	}
	return now, failure.Usage("suspend", "it has no end", hint)
}

func (s *Shell) suspend(ctx context.Context, name, why string, until time.Time) error {
	return s.change(ctx, name, "suspend", func(ctx context.Context, server *remote.Server, src *v1alpha1.Source) (any, string, error) {
		owner, err := server.WhoAmI(ctx)
		if err != nil {
			return nil, "", failure.Of(err, "ask the server who asks it")
		}
		return v1alpha1.SourceSuspension{Reason: why, Owner: owner, Until: metav1.NewTime(until)}, "suspended until " + until.Format(time.RFC3339), nil
	})
}

func (s *Shell) newResume() *cobra.Command {
	return &cobra.Command{
		Use:               "resume NAME",
		Short:             "Let a source go on before its suspension ends",
		Example:           "  tako source resume fleet -n prod",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete(v1alpha1.ResourceSources),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.change(cmd.Context(), args[0], "resume", func(_ context.Context, _ *remote.Server, src *v1alpha1.Source) (any, string, error) {
				if src.Spec.Suspend == nil {
					return nil, "", nil
				}
				return nil, "resumed", nil
			})
		},
	}
}

// change changes spec.suspend of a Source. to returns the new value and what to say; nothing to say is nothing to change.
func (s *Shell) change(ctx context.Context, name, verb string, to func(context.Context, *remote.Server, *v1alpha1.Source) (any, string, error)) error {
	server, namespace, err := s.Connect("", nil)
	if err != nil {
		return err
	}
	ref, src, err := s.find(ctx, server, namespace, name)
	if err != nil {
		return err
	}
	value, said, err := to(ctx, server, src)
	if err != nil {
		return err
	}
	if said == "" {
		s.Say(ref.String() + " unchanged: it is not suspended")
		return nil
	}
	if _, err := server.Patch(ctx, ref, map[string]any{"spec": map[string]any{"suspend": value}}, ""); err != nil {
		return failure.Of(err, verb+" "+ref.Long())
	}
	_, err = fmt.Fprintf(s.Out, "%s %s\n", ref, said)
	return err
}

// commitText is a commit as people name it: the ref, and the first digits.
func commitText(c *v1alpha1.SourceCommit) string {
	if c.Ref == "" {
		return short(c.ID)
	}
	return c.Ref + "@" + short(c.ID)
}
