package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/cli/workloads"
)

// followEvery is how often hosts are asked again for what instances print: soon enough for who looks on, seldom enough for the hosts.
const followEvery = 2 * time.Second

// Shell is what the command needs of the command line that it is part of.
type Shell struct {
	Out     io.Writer
	Say     func(string) // beside the output
	Connect func() (*remote.Server, string, error)
	Ask     Ask
}

// Command is the command without what it does.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:   "logs workload/NAME [TASK] | instance/NAME [TASK] | node/NAME [UNIT]",
		Short: "Show what instances print, or the log of a host's agent, or of a unit that it manages",
		Example: `  tako logs workload/web -n prod --follow             of all instances, as it comes
  tako logs instance/web-3 -n prod --previous         of the attempt before
  tako logs node/web-7                                of the agent
  tako logs node/web-7 nginx.service --since 10m
  tako logs node/web-7 nginx.service -o json          as journalctl writes it`,
		Long: "The newest line is the last. The hosts are asked; of a workload, lines of all instances are merged by their time, each with the name of\n" +
			"its instance. Where a host has no journal, what its agent did stands for the agent's log.",
	}
}

// printing is what is wanted of what instances print.
type printing struct {
	Asked
	follow, json bool
}

// Complete has a command that shows logs of hosts show those of instances, too.
func (s *Shell) Complete(cmd *cobra.Command, isHost func(arg string) bool) *cobra.Command {
	var of printing
	ofHost := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if isHost(args[0]) {
			if of.follow || of.Previous {
				return failure.Usage("read the flags", "--follow and --previous are about instances", "tako logs "+strings.Join(args, " "))
			}
			return ofHost(cmd, args)
		}
		if err := of.read(cmd.Flags()); err != nil {
			return err
		}
		return s.show(cmd.Context(), args, of)
	}
	cmd.Flags().BoolVarP(&of.follow, "follow", "f", false, "go on with what comes, of instances")
	cmd.Flags().BoolVar(&of.Previous, "previous", false, "of the attempt before the newest one, of instances")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "tail" { // as other tools call it
			name = "lines"
		}
		return pflag.NormalizedName(name)
	})
	return cmd
}

// read reads the flags that are about hosts, too.
func (of *printing) read(f *pflag.FlagSet) (err error) {
	form := f.Lookup("output").Value.String()
	of.json, of.Since = form == "json", f.Lookup("since").Value.String()
	if of.Lines, err = f.GetInt("lines"); err != nil {
		return err
	}
	switch {
	case of.Lines < 1:
		return failure.Usage(fmt.Sprintf("read --lines %d", of.Lines), "it is a number from 1", "")
	case form != "" && !of.json:
		return failure.Usage("read -o "+form, "this is written as text or json", "")
	case of.follow && of.Previous:
		return failure.Usage("read the flags", "what has ended prints nothing more", "leave out --follow or --previous")
	}
	return nil
}

// show shows what instances have printed. One host that does not answer hides nothing of the others.
func (s *Shell) show(ctx context.Context, args []string, of printing) error {
	server, namespace, err := s.Connect()
	if err != nil {
		return err
	}
	ref, err := selection.Single(ctx, server, namespace, args[:1], "workload/NAME, instance/NAME or node/NAME")
	if err != nil {
		return err
	}
	reader := Reader{Ask: s.Ask, Asked: of.Asked}
	whose := ref.Kind.Resource == v1alpha1.ResourceWorkloads
	again := time.NewTicker(followEvery)
	defer again.Stop()
	for first := true; ; first = false {
		sources, more, err := sourcesOf(ctx, server, ref, strings.Join(args[1:], ""))
		if err != nil {
			return err
		}
		if more > 0 && first {
			s.Say(fmt.Sprintf("%d more tasks are not read: name an instance, or a task", more))
		}
		lines, failures := reader.Round(ctx, sources)
		if ctx.Err() != nil {
			return nil // who looks on has seen enough
		}
		if err := s.write(lines, whose, of.json); err != nil {
			return err
		}
		if !of.follow && len(sources) == 1 && len(failures) == 1 {
			return failures[0].Err
		}
		for _, f := range failures {
			s.Say(f.Subject() + " on node/" + f.Node + ": " + f.Err.Error())
		}
		if !of.follow && len(sources) > 0 && len(failures) == len(sources) {
			return failure.Of(failures[0].Err, "read what "+ref.Long()+" has printed")
		}
		if !of.follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

func (s *Shell) write(lines []Line, whose, asJSON bool) error {
	out := json.NewEncoder(s.Out)
	for i := range lines {
		var err error
		if asJSON {
			err = out.Encode(&lines[i])
		} else {
			_, err = fmt.Fprintln(s.Out, lines[i].Shown(whose))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sourcesOf are the tasks that an argument means, and how many there are beyond those.
func sourcesOf(ctx context.Context, server *remote.Server, ref remote.Ref, task string) (sources []Source, more int, err error) {
	switch ref.Kind.Resource {
	case v1alpha1.ResourceInstances:
		i, err := workloads.ReadInstance(ctx, server, ref)
		if err != nil {
			return nil, 0, err
		}
		return []Source{{i.Spec.Node, i.Namespace, i.Name, task}}, 0, nil
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
		tasks = nil
		for i := range w.Spec.Template.Tasks {
			tasks = append(tasks, w.Spec.Template.Tasks[i].Name)
		}
	}
	for i := range w.Instances {
		for _, t := range tasks {
			sources = append(sources, Source{w.Instances[i].Spec.Node, w.Namespace, w.Instances[i].Name, t})
		}
	}
	more = max(len(sources)-sourcesMax, 0)
	return sources[:len(sources)-more], more, nil
}
