package sources

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

// Shell is what the commands need of the program that they are part of. All fields but Builder must be set.
type Shell struct {
	Out io.Writer
	// Connect finds the server and the namespace, as the person who asks or, with a user's name, as that user. It sends nothing.
	Connect func(user string, groups []string) (*remote.Server, string, error)
	// Style is how Out is written.
	Style func() present.Style
	// Say tells a person how things go on, Warn what may be wrong.
	Say, Warn func(text string)
	// Complete offers objects to a shell, of a kind that is put in front of the name where one is given.
	Complete func(kind string) cobra.CompletionFunc
	// Resource asks a host by which config it has a resource: the config's ID.
	Resource func(ctx context.Context, node, resource string) (config string, err error)
	// Differs is what a command returns that has found differences.
	Differs error
	// FromTwo keeps exit code 1 for Differs.
	FromTwo func(error) error
	// Builder is the program with its arguments that builds kustomizations; empty: they are refused.
	Builder []string
}

// Commands are those below `tako source`. get shows Sources as it shows everything.
func (s *Shell) Commands(get *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "source",
		Short: "See and steer what keeps repositories applied",
		Example: `  tako source get -A                         what is applied, and of which commit
  tako source reconcile fleet -n prod --wait look at the repository now
  tako source diff fleet -n prod --ref main  what a commit would change
  tako source suspend fleet -n prod --reason 'change freeze' --for 12h
  tako why source/fleet -n prod              why it is not Ready`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(get, s.newReconcile(), s.newSuspend(), s.newResume(), s.newDiff())
	return cmd
}

// find reads a Source. What is given is its name, or source/NAME.
func (s *Shell) find(ctx context.Context, server *remote.Server, namespace, name string) (remote.Ref, *v1alpha1.Source, error) {
	if _, behind, ok := strings.Cut(name, "/"); ok {
		name = behind
	}
	kind, err := server.Find(ctx, v1alpha1.ResourceSources+"."+v1alpha1.GroupName)
	if err != nil {
		return remote.Ref{}, nil, failure.Of(err, "ask which kinds there are")
	}
	ref := remote.Ref{Kind: kind, Namespace: namespace, Name: name}
	object, err := server.Get(ctx, ref)
	if err != nil {
		return ref, nil, failure.Of(err, "get "+ref.Long())
	}
	src := &v1alpha1.Source{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, src); err != nil {
		return ref, nil, failure.Of(err, "read "+ref.Long())
	}
	return ref, src, nil
}

// argument is how a Source is named on a command line.
func argument(namespace, name string) string { return fmt.Sprintf("source/%s -n %s", name, namespace) }

// short is as much of a commit as people look at.
func short(commit string) string { return commit[:min(len(commit), 8)] }
