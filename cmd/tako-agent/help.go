package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// newHelp is help with pages for codes beside those for commands.
func newHelp(*common) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | CODE | codes]",
		Short: "Explain a command, or a code such as TK0412",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				text, ok, err := present.HelpTopic(args[0], cmd.Root().Name())
				if err != nil {
					return err
				}
				if ok {
					_, err = io.WriteString(os.Stdout, text)
					return err
				}
			}
			about, _, err := cmd.Root().Find(args)
			if err != nil || about == nil {
				return &reason.Error{Code: reason.Usage, Doing: "help " + strings.Join(args, " "), Hint: "tako-agent help lists the commands"}
			}
			return about.Help()
		},
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(*cobra.Command, []string) {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
			}
			fmt.Println("tako-agent", version)
		},
	}
}
