package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

type deleteFlags struct {
	selection.Scope
	files
	cascade       string
	dryRun        string
	everything    bool
	ignoreMissing bool
	wait          bool
	timeout       time.Duration
}

func (p *program) newDelete() *cobra.Command {
	f := &deleteFlags{}
	cmd := &cobra.Command{
		Use:   "delete KIND NAME... | KIND/NAME... | -f FILE",
		Short: "Delete objects",
		Example: `  tako delete nodeconfig/web
  tako delete nodeconfigs -l app=old
  tako delete -f site.yaml                       what the file declares
  tako delete nodeconfig/web --cascade=orphan    keep what belongs to it`,
		ValidArgsFunction: p.completeObjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.delete(cmd.Context(), f, args) },
	}
	f.Scope.AddTo(cmd)
	f.files.addTo(cmd)
	cmd.Flags().StringVar(&f.cascade, "cascade", "background", "what becomes of objects that belong to it: background, foreground or orphan")
	cmd.Flags().StringVar(&f.dryRun, "dry-run", "none", "none, or server: ask the server and delete nothing")
	cmd.Flags().BoolVar(&f.everything, "all", false, "every object of the kind in the namespace")
	cmd.Flags().BoolVar(&f.ignoreMissing, "ignore-not-found", false, "exit with 0 when something does not exist")
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until everything is gone")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait")
	complete(cmd, "cascade", "background", "foreground", "orphan")
	return cmd
}

func (f *deleteFlags) options() (remote.DeleteOptions, error) {
	options := remote.DeleteOptions{DryRun: f.dryRun == "server"}
	switch f.cascade {
	case "background":
		options.Cascade = metav1.DeletePropagationBackground
	case "foreground":
		options.Cascade = metav1.DeletePropagationForeground
	case "orphan":
		options.Cascade = metav1.DeletePropagationOrphan
	default:
		return options, failure.Usage("read --cascade="+f.cascade, "it is background, foreground or orphan", "")
	}
	if f.dryRun != "none" && f.dryRun != "server" {
		return options, failure.Usage("read --dry-run="+f.dryRun, "it is none or server", "")
	}
	return options, nil
}

func (p *program) delete(ctx context.Context, f *deleteFlags, args []string) error {
	options, err := f.options()
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	refs, err := p.doomed(ctx, server, namespace, f, args)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		p.say("nothing to delete")
	}
	gone, err := p.deleteAll(ctx, server, refs, f, options)
	if !f.wait || options.DryRun {
		return err
	}
	return errors.Join(err, p.waitGone(ctx, server, gone, f.timeout))
}

// doomed are the objects that are meant, in the order in which they go.
func (p *program) doomed(ctx context.Context, server *remote.Server, namespace string, f *deleteFlags, args []string) ([]remote.Ref, error) {
	if len(f.paths) > 0 {
		if len(args) > 0 {
			return nil, failure.Usage("delete", "a file and names are given", "use one of them")
		}
		return p.doomedOfFiles(ctx, server, namespace, f)
	}
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if len(t.Names) == 0 && f.Labels == "" && f.Fields == "" && !f.everything {
			return nil, failure.Usage("delete "+t.Kind.Resource, "no name and no selector is given", "--all means every one of them")
		}
	}
	return selection.Refs(ctx, server, list, f.Scope)
}

func (p *program) doomedOfFiles(ctx context.Context, server *remote.Server, namespace string, f *deleteFlags) ([]remote.Ref, error) {
	source, err := f.load(p)
	if err != nil {
		return nil, err
	}
	refs, err := plan.Refs(ctx, server, source, plan.Options{Namespace: namespace, Only: p.flags.Namespace != ""})
	slices.Reverse(refs)
	return refs, err
}

// going is an object that was asked to go.
type going struct {
	remote.Ref
	uid types.UID // another object may take its name
}

// deleteAll asks for the end of every object, and goes on after one that cannot be deleted. It returns those that are going.
func (p *program) deleteAll(ctx context.Context, server *remote.Server, refs []remote.Ref, f *deleteFlags, options remote.DeleteOptions) ([]going, error) {
	var gone []going
	var failures []error
	for _, ref := range refs {
		uid, err := server.Delete(ctx, ref, options)
		if apierrors.IsConflict(err) {
			uid, err = alreadyGoing(ctx, server, ref, err)
		}
		if apierrors.IsNotFound(err) && f.ignoreMissing {
			continue
		}
		if err != nil {
			failures = append(failures, failure.Of(err, "delete "+ref.Long()))
			continue
		}
		gone = append(gone, going{ref, uid})
		word := "deleted"
		if options.DryRun {
			word += " (dry run)"
		}
		if _, err := fmt.Fprintf(p.Out, "%s %s\n", ref, word); err != nil {
			return gone, err
		}
	}
	return gone, p.several(failures)
}

// alreadyGoing is which object is on its way already where the server refuses to have that asked once more; otherwise the refusal
// stays.
func alreadyGoing(ctx context.Context, server *remote.Server, ref remote.Ref, refusal error) (types.UID, error) {
	now, err := server.Get(ctx, ref)
	if err != nil || now.GetDeletionTimestamp() == nil {
		return "", refusal
	}
	return now.GetUID(), nil
}

// failuresShownMax bounds what is printed of failures that are alike.
const failuresShownMax = 10

// several prints all failures but the last, which it returns.
func (p *program) several(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	last := len(failures) - 1
	for i, err := range failures[:last] {
		if i == failuresShownMax {
			p.say(fmt.Sprintf("and %d more failures", last-i))
			break
		}
		show(err, p.Err, p.styleOf(p.Err))
	}
	return failures[last]
}

// waitGone waits until objects are gone, for all of them together no longer than the timeout.
func (p *program) waitGone(ctx context.Context, server *remote.Server, list []going, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, g := range list {
		if now, err := server.Get(ctx, g.Ref); apierrors.IsNotFound(err) || err == nil && now.GetUID() != g.uid {
			continue // gone at once, as almost everything is
		}
		if err := follow.Gone(ctx, server, g.Ref, g.uid); err != nil {
			return err
		}
	}
	return nil
}
