// Command tako-agent keeps one host as declared. This file is its command tree; what the commands do is elsewhere.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := newCommand().ExecuteContext(ctx)
	stop()
	os.Exit(int(exit(err)))
}

// common are the flags that every command has.
type common struct {
	root  string
	state string
	color string
	json  bool
}

// stateDir is where the agent's state lives: below the root, unless said otherwise.
func (c *common) stateDir() (string, error) {
	if c.state != "" {
		return filepath.Abs(c.state)
	}
	root, err := filepath.Abs(c.root)
	if err != nil {
		return "", &reason.Error{Code: reason.Usage, Doing: "find --root " + c.root, Cause: err}
	}
	return filepath.Join(root, "var/lib/tako"), nil
}

func (c *common) style(f *os.File) present.Style {
	mode, err := present.ParseColorMode(c.color)
	if err != nil {
		mode = present.ColorAuto // the flag was checked before any command ran
	}
	return present.StyleOf(f, mode)
}

func newCommand() *cobra.Command {
	flags := &common{}
	root := &cobra.Command{
		Use:   "tako-agent",
		Short: "Keep this host as declared",
		Long: `tako-agent makes this host as declared, notices at once when it drifts, repairs it,
and says why where it cannot.

  tako-agent converge -f site.yaml --diff     what would change
  tako-agent converge -f site.yaml            make it so, once
  tako-agent converge -f site.yaml --watch    keep it so
  tako-agent join -                           let the servers of a cluster say what is declared
  tako-agent run                              keep this host as they say
  tako-agent accept FILE                      take what is signed for it, from hand to hand
  tako-agent why /etc/motd                    why something is as it is`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			_, err := present.ParseColorMode(flags.color)
			return err
		},
	}
	f := root.PersistentFlags()
	f.StringVar(&flags.root, "root", "/", "directory that stands for /: nothing outside it is touched")
	f.StringVar(&flags.state, "state", "", "state directory (default ROOT/var/lib/tako)")
	f.StringVar(&flags.color, "color", "auto", "colour the output: auto, always or never")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &reason.Error{Code: reason.Usage, Doing: c.CommandPath(), Cause: err, Hint: c.CommandPath() + " --help"}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newJoin(flags), newRun(flags), newConverge(flags), newStatus(flags), newWhy(flags), newHistory(flags), newFacts(flags), newData(flags), newHold(flags), newResume(flags), newAccept(flags), newRestore(flags), newVersion(), newWarden(), newRehearse(flags), newPutBack(flags))
	root.AddCommand(newMinders()...)
	root.SetHelpCommand(newHelp(flags))
	return root
}

// shown is an error that has been printed already.
type shown struct{ exit reason.Exit }

func (s shown) Error() string { return fmt.Sprintf("exit %d", s.exit) }

// exitCode is the exit code that fits an error.
func exitCode(err error) reason.Exit {
	var done shown
	var faults declare.Faults
	var coded *reason.Error
	switch {
	case err == nil:
		return reason.ExitOK
	case errors.As(err, &done):
		return done.exit
	case errors.As(err, &faults):
		return present.ExitOf(faults)
	case errors.As(err, &coded):
		return coded.Entry().Exit
	}
	return reason.ExitUsage
}

// exit prints an error and returns the exit code that fits.
func exit(err error) reason.Exit {
	code := exitCode(err)
	var done shown
	if err == nil || errors.As(err, &done) {
		return code
	}
	style := present.StyleOf(os.Stderr, present.ColorAuto)
	var faults declare.Faults
	if errors.As(err, &faults) {
		if present.Faults(os.Stderr, faults, os.ReadFile, style) != nil {
			return reason.ExitFailed
		}
		return code
	}
	var coded *reason.Error
	if !errors.As(err, &coded) {
		coded = &reason.Error{Code: reason.Usage, Doing: "tako-agent", Cause: err, Hint: "tako-agent --help"}
	}
	_ = present.Error(os.Stderr, coded.Code, coded.Error(), coded.Hint, style) // there is nobody else to tell
	return code
}
