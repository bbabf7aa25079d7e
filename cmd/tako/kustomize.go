package main

import (
	"os"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/source/render/kustomize"
)

// kustomizeName is the command that the server starts to build the kustomizations of repositories, apart from itself.
const kustomizeName = "build-kustomizations"

// kustomizeCommand is that command. It is not for people: it shuts itself in.
func kustomizeCommand() *cobra.Command {
	return &cobra.Command{
		Use: kustomizeName, Short: "Build kustomizations for a server", Hidden: true, Args: cobra.NoArgs, PersistentPreRunE: withoutSettings,
		RunE: func(*cobra.Command, []string) error { return kustomize.Serve(os.Stdin, os.Stdout) },
	}
}

// kustomizeChild is how this program is started as that command; nil where it cannot be said.
func kustomizeChild() []string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{program, kustomizeName}
}
