package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/present"
)

// helpTemplate begins with what is read most: one line, and examples.
const helpTemplate = `{{.Short}}
{{if .HasExample}}
{{.Example}}
{{end}}{{with .Long}}
{{. | trimTrailingWhitespaces}}
{{end}}
{{.UsageString}}`

const usageTemplate = `Usage:
{{if .Runnable}}  {{.UseLine}}
{{end}}{{if .HasAvailableSubCommands}}  {{.CommandPath}} COMMAND

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`

// newHelp is help with pages for codes beside those for commands.
func (p *program) newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | CODE | codes | exit-codes | config]",
		Short: "Explain a command, a code such as TK0412, or the settings",
		Example: `  tako help apply
  tako help TK0412
  tako help codes       every code with its title
  tako help exit-codes  what each exit code means
  tako help config      how tako finds its server`,
		RunE: func(cmd *cobra.Command, args []string) error { return p.help(cmd.Root(), args) },
	}
}

func (p *program) help(root *cobra.Command, args []string) error {
	if len(args) == 1 {
		text, ok, err := present.HelpTopic(args[0], root.Name())
		if args[0] == "config" {
			text, ok = settings.Help(settings.Directory(p.Getenv)), true
		}
		if err != nil {
			return err
		}
		if ok {
			_, err = io.WriteString(p.Out, text)
			return err
		}
	}
	about, rest, err := root.Find(args)
	if err != nil || about == nil || len(rest) > 0 {
		return failure.Usage("help "+strings.Join(args, " "), "there is no such command or topic", "tako help lists the commands")
	}
	return about.Help()
}
