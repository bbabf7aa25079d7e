package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Streams are what a command reads, writes and starts. An output that is an *os.File of a terminal gets columns and colour.
type Streams struct {
	In     io.Reader
	Out    io.Writer
	Err    io.Writer
	Getenv func(name string) string
	// Kustomize is the program with its arguments that builds kustomizations; default none: they are refused.
	Kustomize []string
}

// program is what all commands of one run share.
type program struct {
	Streams
	flags    settings.Flags
	color    string
	patience time.Duration // --request-timeout
	prefs    *settings.Prefs
	warnings sync.Mutex // warnings of requests that run at once
}

// New returns the command tree. Further commands, such as those that run a server, stand beside its own.
func New(streams Streams, further ...*cobra.Command) *cobra.Command {
	p := &program{Streams: streams, prefs: &settings.Prefs{}}
	root := &cobra.Command{
		Use:   "tako",
		Short: "Declare what every host must have, and see why one is not as declared",
		Example: `  tako apply -f site.yaml            declare what is in a file
  tako diff -f site.yaml             what that would change
  tako plan -f web.yaml              where its instances would go
  tako status                        the fleet on one page
  tako why node/web-7                why a host is not as declared
  tako get nodeconfigs -A            what is declared
  tako explain nodeconfig.spec       what can be declared
  tako help config                   how tako finds its server`,
		Version:       clientVersion(),
		SilenceErrors: true, SilenceUsage: true,
		Args:              onlyCommands,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return p.prepare(cmd) },
	}
	f := root.PersistentFlags()
	f.StringVar(&p.flags.Kubeconfig, "kubeconfig", "", "kubeconfig file that says which server and as whom")
	f.StringVar(&p.flags.Context, "context", "", "context of contexts.yaml, or of the kubeconfig")
	f.StringVarP(&p.flags.Namespace, "namespace", "n", "", "namespace (default that of the context, or default)")
	f.StringVar(&p.color, colorFlag, "", "colour the output: auto, always or never")
	f.DurationVar(&p.patience, "request-timeout", 30*time.Second, "how long one answer of the server is waited for")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return wrongFlag(c, err)
	})
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	root.AddCommand(p.newApply(), p.newDiff(), p.newPlan(), p.newGet(), p.newDescribe(), p.newDelete(), p.newEdit(), p.newWait(), p.newEvents(),
		p.newStatus(), p.newTop(), p.newWhy(), p.newHistory(), p.newLogs(), p.newHold(), p.newResume(), p.newAdopt(), p.newRollout(), p.newNode(),
		p.newExplain(), p.newSource(), p.newTrace(), p.newToken(), p.newContent(), p.newBundle(), p.newSign(), p.newExport(), p.newVersion(), p.newMan())
	for _, c := range further {
		checkArguments(c)
	}
	root.AddCommand(further...)
	root.SetHelpCommand(p.newHelp())
	root.SetVersionTemplate("client {{.Version}}\n")
	root.SetHelpTemplate(helpTemplate)
	root.SetUsageTemplate(usageTemplate)
	p.completeFlags(root)
	return root
}

const colorFlag = "color"

// taking is a check of arguments with the words that all wrong usage has.
func taking(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case cobra.NoArgs(cmd, args) != nil && check(cmd, nil) == nil && cmd.Flags().Lookup(filenameFlag) != nil:
			return failure.Usage(cmd.CommandPath(), fmt.Sprintf("%q is no flag, and only flags are taken", args[0]), "did you mean -f "+args[0]+"?")
		case cobra.NoArgs(cmd, args) != nil && err.Error() == cobra.NoArgs(cmd, args).Error():
			return failure.Usage(cmd.CommandPath(), fmt.Sprintf("it takes no arguments, and %q is one", args[0]), "usage: "+cmd.UseLine())
		}
		return failure.Usage(cmd.CommandPath(), err.Error(), "usage: "+cmd.UseLine())
	}
}

// wrongFlag says what is wrong with a flag. The flags of a mistyped command are unknown to the one above it, which reads them: then
// the command is what is wrong.
func wrongFlag(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return onlyCommands(cmd, args)
	}
	hint := cmd.CommandPath() + " --help"
	if strings.Contains(err.Error(), "time: ") {
		hint = "a time is a number with its unit: 30s, 5m or 2h"
	}
	return failure.Usage(cmd.CommandPath(), err.Error(), hint)
}

// onlyCommands refuses an argument of a command that only has others below it: it was meant to be one of these.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := cmd.CommandPath() + " --help lists the commands"
	cmd.SuggestionsMinimumDistance = 2 // letters
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return failure.Usage(cmd.CommandPath(), fmt.Sprintf("there is no command %q", args[0]), hint)
}

// Quiet silences what the client library logs, because a command says it as its error. The library has one log for a process:
// a program calls Quiet before Run, and a command that runs a server sets that log itself.
func Quiet() { klog.SetLogger(logr.Discard()) }

// Run runs the command line, prints its failure and returns the exit code.
func Run(ctx context.Context, root *cobra.Command, streams Streams) reason.Exit {
	err := root.ExecuteContext(ctx)
	if err == nil {
		return reason.ExitOK
	}
	// The flag is read here because a command that was never reached has no other way to say how its error looks.
	mode, wrong := present.ParseColorMode(root.PersistentFlags().Lookup(colorFlag).Value.String())
	if wrong != nil {
		mode = present.ColorAuto // that is then the error
	}
	return show(err, streams.Err, styleOf(streams.Err, mode))
}

// ended is an error that has been told already, or that is nothing but an exit code.
type ended struct{ exit reason.Exit }

func (ended) Error() string { return "ended" }

// show prints an error and returns the exit code that fits. That it cannot be printed is nothing that could be said.
func show(err error, w io.Writer, style present.Style) reason.Exit {
	var done ended
	var refused *failure.Refused
	var faults declare.Faults
	switch {
	case errors.As(err, &done):
		return done.exit
	case errors.As(err, &refused):
		_ = present.Faults(w, refused.Faults, refused.Source, style)
		return refused.Exit
	case errors.As(err, &faults):
		_ = present.Faults(w, faults, os.ReadFile, style)
		return present.ExitOf(faults)
	}
	f := failure.Of(err, "")
	_ = present.Error(w, f.Code, f.Error(), f.Hint, style)
	return f.Exit
}

// checkArguments gives the checks of a command, and of all below it, the words that all wrong usage has.
func checkArguments(c *cobra.Command) {
	if c.Args != nil {
		c.Args = taking(c.Args)
	}
	for _, below := range c.Commands() {
		checkArguments(below)
	}
}

// prepare checks what the library would check later with words of its own, and reads what a person prefers.
func (p *program) prepare(cmd *cobra.Command) error {
	if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
		return failure.Usage(cmd.CommandPath(), err.Error(), cmd.CommandPath()+" --help")
	}
	prefs, err := settings.ReadPrefs(settings.Directory(p.Getenv))
	if err != nil {
		return err
	}
	p.prefs = prefs
	if p.color == "" {
		p.color = prefs.Color
	}
	_, err = present.ParseColorMode(p.color)
	return err
}

// style is how standard output is written.
func (p *program) style() present.Style { return p.styleOf(p.Out) }

func (p *program) styleOf(w io.Writer) present.Style {
	mode, err := present.ParseColorMode(p.color)
	if err != nil {
		mode = present.ColorAuto // refused before any command ran
	}
	return styleOf(w, mode)
}

func styleOf(w io.Writer, mode present.ColorMode) present.Style {
	if f, ok := w.(*os.File); ok {
		return present.StyleOf(f, mode)
	}
	return present.Style{Color: mode == present.ColorAlways}
}

// connect finds the server and the namespace. It sends nothing.
func (p *program) connect() (*remote.Server, string, error) { return p.connectAs("", nil) }

// connectAs is connect as somebody else, whom the person must be allowed to impersonate.
func (p *program) connectAs(user string, groups []string) (*remote.Server, string, error) {
	target, err := settings.Resolve(p.flags, p.Getenv)
	if err != nil {
		return nil, "", err
	}
	if user != "" {
		target.Config.Impersonate.UserName, target.Config.Impersonate.Groups = user, groups
	}
	server, err := remote.New(target.Config, remote.Options{RequestTimeout: p.patience, Warn: p.warn, UserAgent: "tako/" + clientVersion()})
	if err != nil {
		return nil, "", &failure.Error{Code: reason.Usage, Exit: reason.ExitUsage, Doing: "use " + target.Name, Cause: err,
			Hint: "check the certificates and the address in the context or kubeconfig"}
	}
	return server, target.Namespace, nil
}

// warn tells a person on standard error.
func (p *program) warn(text string) {
	p.warnings.Lock()
	defer p.warnings.Unlock()
	_ = present.Warning(p.Err, text, p.styleOf(p.Err))
}
