package main

import (
	"os"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/command"
)

// wardenName is the command that the agent starts for each command that it runs, to mind that.
const wardenName = "mind-command"

// newWarden is that command. It is not for people: it takes an order and gives a report.
func newWarden() *cobra.Command {
	return &cobra.Command{
		Use: wardenName, Short: "Mind a command for an agent", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			os.Exit(command.Serve()) // nothing else is to run here
			return nil
		},
	}
}

// wardenChild is how this program is started as that command; nil where it cannot be said.
func wardenChild() []string { return child(wardenName) }

// child is how this program is started as one of its commands; nil where it cannot be said. The kernel's name for it leads to this very
// program, also when another has been put in its place.
func child(name string) []string {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err != nil {
		return nil
	}
	return []string{self, name}
}
