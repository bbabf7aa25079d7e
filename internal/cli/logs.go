package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/answer"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/logs"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/workloads"
	"tako.dev/tako/internal/reason"
)

// followEvery is how often hosts are asked again for what instances print: soon enough for who looks on, seldom enough for a journal's answer.
const followEvery = 2 * time.Second

func (p *program) newLogs() *cobra.Command {
	cmd := p.asking(&cobra.Command{
		Use:   "logs workload/NAME [TASK] | instance/NAME [TASK] | node/NAME [UNIT]",
		Short: "Show what instances print, or the log of a host's agent, or of a unit that it manages",
		Example: `  tako logs workload/web -n prod --follow    of all instances, as it comes
  tako logs instance/web-3 -n prod --previous         of the attempt before
  tako logs node/web-7                                of the agent
  tako logs node/web-7 nginx.service --since 10m
  tako logs node/web-7 nginx.service -o json          as journalctl writes it`,
		Long: "The newest line is the last. The hosts are asked; of a workload, lines of all instances are merged by their time, each with the name of\n" +
			"its instance. Where a host has no journal, what its agent did stands for the agent's log.",
	}, v1alpha1.NodeLogs, 100, p.logs)
	var follow, previous bool
	ofHost := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := nodeArgument(args[0]); err == nil {
			if follow || previous {
				return failure.Usage("read the flags", "--follow and --previous are about instances", "tako logs "+strings.Join(args, " "))
			}
			return ofHost(cmd, args)
		}
		f := cmd.Flags()
		lines, err := f.GetInt("lines")
		if err == nil && lines < 1 {
			return failure.Usage(fmt.Sprintf("read --lines %d", lines), "it is a number from 1", "")
		}
		if follow && previous {
			return failure.Usage("read the flags", "what has ended prints nothing more", "leave out --follow or --previous")
		}
		form := f.Lookup("output").Value.String()
		if err := checkJSON(form); err != nil {
			return err
		}
		return p.printed(cmd.Context(), args, printing{lines: lines, since: f.Lookup("since").Value.String(), follow: follow, previous: previous, json: form == "json"})
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes, of instances")
	cmd.Flags().BoolVar(&previous, "previous", false, "of the attempt before the newest one, of instances")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "tail" { // as other tools call it
			name = "lines"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

func (p *program) logs(ctx context.Context, node string, q question) error {
	var said bytes.Buffer
	if err := p.ask(ctx, node, q, &said); err != nil {
		return err
	}
	for _, line := range answer.LogLines(said.String(), p.style()) {
		if _, err := fmt.Fprintln(p.Out, line); err != nil {
			return err
		}
	}
	return nil
}

// printing is what is wanted of what instances print.
type printing struct {
	lines                  int
	since                  string
	follow, previous, json bool
}

// printed shows what instances have printed. One host that does not answer hides nothing of the others.
func (p *program) printed(ctx context.Context, args []string, of printing) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	ref, err := selection.Single(ctx, server, namespace, args[:1], "workload/NAME, instance/NAME or node/NAME")
	if err != nil {
		return err
	}
	task := strings.Join(args[1:], "")
	reader := logs.Reader{Since: of.since, Ask: func(ctx context.Context, s logs.Source, since string, w io.Writer) error {
		return p.ask(ctx, s.Node, question{what: v1alpha1.NodeLogs, subject: s.Subject(), lines: of.lines, since: since, previous: of.previous}, w)
	}}
	whose := ref.Kind.Resource == v1alpha1.ResourceWorkloads
	show := func(l *logs.Line) (err error) {
		if of.json {
			return json.NewEncoder(p.Out).Encode(l)
		}
		_, err = fmt.Fprintln(p.Out, l.Shown(whose))
		return err
	}
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for first := true; ; first = false {
		sources, more, err := p.printers(ctx, server, ref, task)
		if err != nil {
			return err
		}
		if more > 0 && first {
			p.say(fmt.Sprintf("%d more tasks are not read: name an instance, or a task", more))
		}
		lines, failures := reader.Round(ctx, sources)
		if ctx.Err() != nil {
			return nil // who looks on has seen enough
		}
		for i := range lines {
			if err := show(&lines[i]); err != nil {
				return err
			}
		}
		for _, f := range failures {
			p.say(f.Subject() + " on node/" + f.Node + ": " + f.Err.Error())
		}
		if !of.follow {
			if len(sources) > 0 && len(failures) == len(sources) {
				return ended{reason.ExitFailed}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// printers are the tasks that an argument means, and how many there are beyond those.
func (p *program) printers(ctx context.Context, server *remote.Server, ref remote.Ref, task string) (sources []logs.Source, more int, err error) {
	switch ref.Kind.Resource {
	case v1alpha1.ResourceInstances:
		i, err := workloads.ReadInstance(ctx, server, ref)
		if err != nil {
			return nil, 0, err
		}
		return []logs.Source{{Node: i.Spec.Node, Namespace: i.Namespace, Instance: i.Name, Task: task}}, 0, nil
	case v1alpha1.ResourceWorkloads:
	default:
		return nil, 0, failure.Usage("read the arguments", ref.Long()+" prints nothing", "write workload/NAME, instance/NAME or node/NAME")
	}
	w, err := workloads.Read(ctx, server, ref)
	if err != nil {
		return nil, 0, err
	}
	tasks := []string{task}
	if task == "" {
		tasks = tasks[:0]
		for i := range w.Spec.Template.Tasks {
			tasks = append(tasks, w.Spec.Template.Tasks[i].Name)
		}
	}
	for i := range w.Instances {
		for _, t := range tasks {
			sources = append(sources, logs.Source{Node: w.Instances[i].Spec.Node, Namespace: w.Namespace, Instance: w.Instances[i].Name, Task: t})
		}
	}
	more = max(len(sources)-logs.SourcesMax, 0)
	return slices.Clip(sources[:len(sources)-more]), more, nil
}
