package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/agent"
	"tako.dev/tako/internal/host/all"
	"tako.dev/tako/internal/reason"
)

// convergeFlags are what converge is told.
type convergeFlags struct {
	*common
	files  []string
	once   bool
	watch  bool
	dryRun bool
	diff   bool
	labels map[string]string
	audit  string
}

func newConverge(c *common) *cobra.Command {
	f := &convergeFlags{common: c}
	cmd := &cobra.Command{
		Use:   "converge -f FILE|DIR",
		Short: "Make this host as declared, once or for good",
		Example: `  tako-agent converge -f site.yaml --dry-run          what would be done
  tako-agent converge -f site.yaml --diff             the same with the differences; exit 1 when there are any
  tako-agent converge -f site.yaml                    do it once
  tako-agent converge -f /etc/tako/conf.d --watch     keep it so; declarations are read again when they change
  tako-agent converge -f site.yaml --root ./sandbox   in a directory, without root rights`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "file", "f", nil, "declaration file, or directory of them; may be repeated")
	fs.BoolVar(&f.once, "once", false, "end when nothing is left to do (the default)")
	fs.BoolVar(&f.watch, "watch", false, "stay, and keep the host converged")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only say what would be done; write nothing")
	fs.BoolVar(&f.diff, "diff", false, "like --dry-run, with differences; exit 0 without, 1 with differences, 2 or more on errors")
	fs.StringToStringVar(&f.labels, "label", nil, "label of this node, KEY=VALUE; may be repeated")
	fs.StringVar(&f.audit, "audit", "1h", "with --watch: how often everything is looked at to prove that no event was missed; never is allowed")
	cmd.MarkFlagsMutuallyExclusive("once", "watch", "dry-run", "diff")
	return cmd
}

func (f *convergeFlags) run(ctx context.Context) error {
	if len(f.files) == 0 {
		return &reason.Error{Code: reason.Usage, Doing: "converge", Cause: fmt.Errorf("no declaration"), Hint: "name a file or directory with -f"}
	}
	if !f.previews() && os.Getuid() != 0 && f.root == "/" && f.state == "" {
		return &reason.Error{Code: reason.RootNeeded, Doing: "converge", Hint: "run it as root, or try it in a directory: --root ./sandbox"}
	}
	opts, host, err := f.options()
	if err != nil {
		return err
	}
	defer host.Close()
	if f.previews() {
		return f.preview(ctx, opts)
	}
	printer := &printer{watch: f.watch}
	opts.OnLine, opts.Watch = printer.line, f.watch
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	err = a.Run(ctx)
	printer.end()
	if e := reason.Of(err); e != nil && strings.HasPrefix(e.Hint, "tako-agent ") {
		e.Hint += f.rootFlag() // the agent does not know how it was called
	}
	return err
}

func (f *convergeFlags) previews() bool { return f.dryRun || f.diff }

// options wires the agent together.
func (f *convergeFlags) options() (agent.Options, *all.Host, error) {
	opts, host, err := f.common.host(f.previews(), f.audit)
	if err != nil {
		return opts, nil, err
	}
	opts.Files, opts.NodeName, opts.Labels = f.files, nodeName(), f.labels
	return opts, host, nil
}

// host opens the host that the agent is to keep.
func (c *common) host(readOnly bool, auditEvery string) (agent.Options, *all.Host, error) {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return agent.Options{}, nil, &reason.Error{Code: reason.Usage, Doing: "find --root " + c.root, Cause: err}
	}
	state, err := c.stateDir()
	if err != nil {
		return agent.Options{}, nil, err
	}
	audit, err := auditInterval(auditEvery)
	if err != nil {
		return agent.Options{}, nil, err
	}
	host, err := all.Open(all.Options{Root: root, StateDir: state, ReadOnly: readOnly})
	if err != nil {
		return agent.Options{}, nil, err
	}
	opts := agent.Options{StateDir: state, Root: host.Root, Types: host.Types, Facts: host, Audit: audit}
	if host.Bus != nil {
		opts.Bus = host.Bus
	}
	return opts, host, nil
}

func auditInterval(audit string) (time.Duration, error) {
	if audit == "never" {
		return 0, nil
	}
	d, err := time.ParseDuration(audit)
	if err != nil || d < time.Minute {
		return 0, &reason.Error{Code: reason.Usage, Doing: "read --audit " + audit, Hint: "write never, or a time of at least a minute, such as 1h"}
	}
	return d, nil
}

func nodeName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.TrimSpace(name)
}
