package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli"
	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/cli/up"
	"tako.dev/tako/internal/reason"
)

// upCommand runs a server and an agent in a directory.
func upCommand() *cobra.Command {
	o := up.Options{}
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a server and a sandboxed agent on this machine, without root, to try things",
		Example: `  tako up
  tako up -f examples/hello
  tako up --watch examples/hello   what is in the directory is kept applied
  tako down --purge`,
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Agent, err = agentProgram(); err != nil {
				return err
			}
			if o.Dir, err = filepath.Abs(o.Dir); err != nil {
				return err
			}
			if o.Watch != "" {
				if o.Watch, err = filepath.Abs(o.Watch); err != nil {
					return err
				}
			}
			o.Out, o.Command, o.Kustomize = c.OutOrStdout(), command, kustomizeChild()
			return up.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	dirFlag(c, &o.Dir)
	f.StringArrayVarP(&o.Files, "filename", "f", nil, "file or directory to apply; may be repeated")
	f.StringVar(&o.Watch, "watch", "", "directory or Git repository to keep applied: its files, or what is committed")
	f.StringVar(&o.Listen, "listen", "", "where the API is served, HOST:PORT (default a free port of this machine)")
	f.StringVar(&o.Node, "node", "", "name of the node (default the name of this machine)")
	return c
}

// downCommand stops them.
func downCommand() *cobra.Command {
	var dir string
	var purge bool
	c := &cobra.Command{
		Use:               "down",
		Short:             "Stop what tako up runs",
		Example:           "  tako down\n  tako down --purge",
		Args:              cobra.NoArgs,
		PersistentPreRunE: withoutSettings,
		RunE: func(*cobra.Command, []string) error {
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			return up.Down(dir, purge)
		},
	}
	dirFlag(c, &dir)
	c.Flags().BoolVar(&purge, "purge", false, "and remove everything that it made")
	return c
}

func dirFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVar(dir, "dir", filepath.Join(settings.StateDirectory(os.Getenv), "up"), "where everything is kept")
}

// agentProgram finds tako-agent: beside this program, as it is packaged, or where the shell would.
func agentProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), "tako-agent")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("tako-agent")
	if err != nil {
		return "", &reason.Error{Code: reason.Usage, Doing: "find the program tako-agent", Cause: err, Hint: "it belongs beside the program tako"}
	}
	return filepath.Abs(path)
}

// command runs a command of tako in this process, as the administrator of a server.
func command(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	env := func(name string) string {
		switch {
		case name == "KUBECONFIG":
			return kubeconfig
		case strings.HasPrefix(name, "TAKO_"):
			return "" // what a person has set for another server
		}
		return os.Getenv(name)
	}
	streams := cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: env}
	root := cli.New(streams)
	root.SetArgs(args)
	exit := cli.Run(ctx, root, streams)
	if exit != reason.ExitOK {
		_, _ = io.Copy(os.Stderr, &errs)
		return "", &reason.Error{Code: reason.NotConverged, Doing: "tako " + args[0]}
	}
	return out.String(), nil
}
