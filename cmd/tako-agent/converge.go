package main

import (
	"context"
	"encoding/json"
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
	now    bool
	dryRun bool
	diff   bool
	output string // empty, json or ndjson
	labels map[string]string
	audit  string
}

func newConverge(c *common) *cobra.Command {
	f := &convergeFlags{common: c}
	cmd := &cobra.Command{
		Use:   "converge -f FILE|DIR | --now [RESOURCE]",
		Short: "Make this host as declared, once or for good",
		Example: `  tako-agent converge -f site.yaml --dry-run          what would be done
  tako-agent converge -f site.yaml --diff             the same with the differences; exit 1 when there are any
  tako-agent converge -f site.yaml                    do it once
  tako-agent converge -f /etc/tako/conf.d --watch     keep it so; declarations are read again when they change
  tako-agent converge -f site.yaml --root ./sandbox   in a directory, without root rights
  tako-agent converge --now                           let the running agent do what waits for a window
  tako-agent converge -f site.yaml -o json            do it once, and tell a program what became of it`,
		Long: `converge makes this host as the declarations say: by itself, without a server. The same files can be applied to a cluster as they are.

The exit code is 0 when everything is as declared, 1 when something is not, 2 when the declarations are no good, and 4 when something
waits for a lock or its time. With --diff it is 0 when there is nothing to do, 1 when there is or would be waited for, and 2 when something would fail or the
declarations are no good.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.files, "file", "f", nil, "declaration file, or directory of them; may be repeated")
	fs.BoolVar(&f.once, "once", false, "end when nothing is left to do (the default)")
	fs.BoolVar(&f.watch, "watch", false, "stay, and keep the host converged")
	fs.BoolVar(&f.now, "now", false, "windows do not count, until everything is done once; without -f, for the running agent")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only say what would be done; write nothing")
	fs.BoolVar(&f.diff, "diff", false, "like --dry-run, with differences; exit 0 without, 1 with differences, 2 or more on errors")
	fs.StringVarP(&f.output, "output", "o", "", "json: a report at the end; ndjson: what happens line by line, and the report; for programs")
	fs.StringToStringVar(&f.labels, "label", nil, "label of this node, KEY=VALUE; may be repeated")
	fs.StringVar(&f.audit, "audit", "1h", "with --watch: how often everything is looked at to prove that no event was missed; never is allowed")
	cmd.MarkFlagsMutuallyExclusive("once", "watch", "dry-run", "diff")
	return cmd
}

func (f *convergeFlags) run(ctx context.Context, args []string) error {
	if len(f.files) == 0 && f.now && !f.watch && !f.previews() {
		return f.goOn(ctx, args)
	}
	if len(args) > 0 {
		return &reason.Error{Code: reason.Usage, Doing: "converge " + args[0], Hint: "declarations are named with -f; a resource is named only to let it go on: --now"}
	}
	if len(f.files) == 0 {
		return &reason.Error{Code: reason.Usage, Doing: "converge", Cause: fmt.Errorf("no declaration"), Hint: "name a file or directory with -f"}
	}
	if !f.previews() && os.Getuid() != 0 && f.root == "/" && f.state == "" {
		return &reason.Error{Code: reason.RootNeeded, Doing: "converge", Hint: "run it as root, or try it in a directory: --root ./sandbox"}
	}
	if err := f.checkOutput(); err != nil {
		return err
	}
	opts, host, err := f.options()
	if err != nil {
		return err
	}
	defer host.Close()
	if f.previews() {
		return f.preview(ctx, opts)
	}
	opts.Watch, opts.Now = f.watch, f.now
	if f.output != "" {
		return f.record(ctx, opts)
	}
	printer := &printer{watch: f.watch}
	opts.OnLine = printer.line
	err = f.converge(ctx, opts)
	printer.end()
	return err
}

// converge runs an agent.
func (f *convergeFlags) converge(ctx context.Context, opts agent.Options) error {
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	err = a.Run(ctx)
	if e := reason.Of(err); e != nil && strings.HasPrefix(e.Hint, "tako-agent ") {
		e.Hint += f.rootFlag() // the agent does not know how it was called
	}
	return err
}

// checkOutput refuses forms that there are not.
func (f *convergeFlags) checkOutput() error {
	hint := "write json or ndjson"
	switch {
	case f.output == "", f.output == "json" && !f.watch, f.output == "ndjson" && !f.previews():
		return nil
	case f.output == "json":
		hint = "what goes on without an end has no report: write ndjson, which begins with what happens"
	case f.output == "ndjson":
		hint = "a plan is one report: write json"
	}
	return &reason.Error{Code: reason.Usage, Doing: "read -o " + f.output, Hint: hint}
}

// record runs an agent and tells a program of it.
func (f *convergeFlags) record(ctx context.Context, opts agent.Options) error {
	c := &recorder{report: f.begin(modeConverge, opts.NodeName), last: map[string]agent.Line{}}
	if f.output == "ndjson" {
		c.stream = json.NewEncoder(os.Stdout)
		if err := c.stream.Encode(map[string]any{"version": reportVersion, "stream": modeConverge, "began": c.report.Began}); err != nil {
			return err
		}
	}
	opts.OnLine, opts.OnEnd = c.line, c.end
	return c.finish(f.converge(ctx, opts))
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
	limitMemory()
	host, err := all.Open(all.Options{Root: root, StateDir: state, ReadOnly: readOnly, Warden: wardenChild(), Rehearse: c.rehearseArgs(root, state)})
	if err != nil {
		return agent.Options{}, nil, err
	}
	opts := agent.Options{StateDir: state, Root: host.Root, Types: host.Types, Facts: host, Audit: audit, OnKept: host.Upgrade.Confirm}
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
