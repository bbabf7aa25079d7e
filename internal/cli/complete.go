package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/settings"
)

// completionPatience is how long a person waits after Tab before pressing it again.
const completionPatience = 2 * time.Second

// complete gives a flag a fixed set of values.
func complete(cmd *cobra.Command, flag string, values ...string) {
	// Only a flag that does not exist can fail here, and a test walks over all commands.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlags gives the flags of all commands their values.
func (p *program) completeFlags(root *cobra.Command) {
	complete(root, "color", "auto", "always", "never")
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	_ = root.RegisterFlagCompletionFunc("context", p.completeContexts)
}

func (p *program) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	contexts, err := settings.ReadContexts(settings.Directory(p.Getenv))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for name := range contexts.Contexts {
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeNamespaces(cmd *cobra.Command, _ []string, start string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, _ string) ([]string, error) {
		return selection.Names(ctx, server, "", "namespaces", start)
	})
}

// completeObjects offers kinds, and behind a kind the names of its objects that are there now.
func (p *program) completeObjects(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, namespace string) ([]string, error) {
		if kind, name, ok := strings.Cut(start, "/"); ok {
			names, err := selection.Names(ctx, server, namespace, kind, name)
			for i := range names {
				names[i] = kind + "/" + names[i]
			}
			return names, err
		}
		if len(args) > 0 && !strings.Contains(args[0], "/") {
			return selection.Names(ctx, server, namespace, args[0], start)
		}
		return selection.KindNames(ctx, server, start)
	})
}

// completeKinds offers kinds for the first argument.
func (p *program) completeKinds(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.offer(cmd.Context(), func(ctx context.Context, server *remote.Server, _ string) ([]string, error) {
		return selection.KindNames(ctx, server, start)
	})
}

// offer asks the server for what a shell shows after Tab. What goes wrong is not shown: a shell has no place for it.
func (p *program) offer(ctx context.Context, f func(context.Context, *remote.Server, string) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background() // the shell's question comes before any command runs
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	server, namespace, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := f(ctx, server, namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
