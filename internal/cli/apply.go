package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/settings"
	"tako.dev/tako/internal/present"
)

// files are the flags that say which files are read.
type files struct {
	paths     []string
	recursive bool
}

// filenameFlag is the flag with which commands take files.
const filenameFlag = "filename"

func (f *files) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.paths, filenameFlag, "f", nil, "file or directory to read, - for standard input; may be repeated")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "read directories with all below them")
	_ = cmd.MarkFlagFilename(filenameFlag, "yaml", "yml", "json") // the flag is there
}

func (f *files) load(p *program) (*documents.Source, error) {
	if len(f.paths) == 0 {
		return nil, failure.Usage("read the documents", "no file is named", "write -f FILE, -f DIRECTORY or -f -")
	}
	source, err := documents.Load(f.paths, f.recursive, p.In)
	if err != nil {
		return nil, refusedFiles(err, source)
	}
	return source, nil
}

// inSet are the flags that say what belongs together, and whether what is left of it goes.
type inSet struct {
	set      string
	prune    bool
	pruneAll bool
}

func (s *inSet) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.set, "set", "", "name of all that these files declare, kept with the namespace in the label "+prune.Label)
	cmd.Flags().BoolVar(&s.prune, "prune", false, "delete what is of the set and in no file any more")
	cmd.Flags().BoolVar(&s.pruneAll, "prune-all", false, "with --prune: also when nothing that the set has is in the files")
}

func (s *inSet) check() error {
	switch {
	case s.prune && s.set == "":
		return failure.Usage("prune", "--prune without --set", "--set names what belongs together; without it nothing says what may be deleted")
	case s.pruneAll && !s.prune:
		return failure.Usage("prune", "--prune-all without --prune", "")
	}
	return nil
}

// checkFiles refuses to prune by a part of what a directory holds: all that the rest declares would be deleted.
func (s *inSet) checkFiles(source *documents.Source) error {
	if !s.prune || len(source.Below) == 0 {
		return nil
	}
	return failure.Usage("prune", strings.Join(source.Below, ", ")+": there are documents in it that are not read, and what they declare would be deleted",
		"-R reads directories with all below them")
}

// planOptions are how documents of the command line are meant.
func (p *program) planOptions(ctx context.Context, server *remote.Server, namespace string, s inSet, o ownership) (plan.Options, error) {
	set, err := prune.ParseSet(namespace, s.set)
	if err != nil {
		return plan.Options{}, err
	}
	manager, personal, err := o.managers(ctx, server, s.set != "")
	return plan.Options{Namespace: namespace, Only: p.flags.Namespace != "", Set: set.By(manager, personal), Manager: manager, Force: o.force}, err
}

// leftovers are what --prune would delete, none without it.
func (p *program) leftovers(ctx context.Context, server *remote.Server, s inSet, options plan.Options, changes []*plan.Change) ([]prune.Leftover, error) {
	if !s.prune {
		return nil, nil
	}
	return options.Set.Leftovers(ctx, server, plan.RefsOf(changes), prune.Options{All: s.pruneAll, Warn: p.warn})
}

type applyFlags struct {
	declared
	dryRun  string
	timeout time.Duration
	output  string
}

func (p *program) newApply() *cobra.Command {
	f := &applyFlags{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Declare what is in files",
		Example: `  tako apply -f site.yaml                  one file
  tako apply -f deploy/ -R                 a directory with all below it
  kustomize build prod | tako apply -f -   what another program writes
  tako apply -f site.yaml --dry-run=server nothing is changed, only checked
  tako apply -f prod/ -R --set prod --prune and what is not in the files any more is deleted
  tako apply -f net.yaml --try 2m          hosts go back by themselves unless it is confirmed`,
		Long: `Every document is checked before anything is changed: what is wrong in the files is told first and
all at once, then all that the server has against them. Then they are applied in an order in which
each finds what it needs. What the server itself writes, such as uid, resourceVersion and status, is
not sent: what ` + "`tako get -o yaml`" + ` writes can be applied. If one fails all the same, what was applied is listed
with the command that undoes it. Fields that somebody else owns are a conflict, unless
--force-conflicts takes them over. Who applies by hand owns the fields as tako:USER, so that two
people do not overwrite each other unseen; with --set it is the set that owns them, whoever applies
it, and --field-manager names any other owner that several people or programs share.

--set names what is applied together, within the namespace of the command line. --prune then deletes
what was applied under that name before and is in no document now, of any kind and in any namespace.
What others made does not come into a set without --force-conflicts, and is never deleted: a namespace
or a definition of a kind stays while it holds what is not of the set. When nothing that the set has
is in the documents, nothing is changed, unless --prune-all says that it is meant.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.apply(cmd.Context(), f) },
	}
	f.files.addTo(cmd)
	f.inSet.addTo(cmd)
	cmd.Flags().StringVar(&f.dryRun, "dry-run", "none", "none, or server: check everything and change nothing")
	f.ownership.addTo(cmd)
	cmd.Flags().DurationVar(&f.try, "try", 0, "hosts go back by themselves this long after they took it up, unless tako rollout confirm says that it is right")
	cmd.Flags().DurationVar(&f.timeout, "timeout", time.Minute, "how long a new kind is waited for until the server serves it")
	addOutput(cmd, &f.output)
	return cmd
}

func addOutput(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVarP(value, "output", "o", "", "json, yaml, wide, name, ndjson or jsonpath={.metadata.name}")
	complete(cmd, "output", output.Forms()...)
}

func (p *program) apply(ctx context.Context, f *applyFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	format, err := output.Parse(f.output)
	if err != nil {
		return err
	}
	d, err := p.decide(ctx, &f.declared)
	if err != nil {
		return err
	}
	report := &plan.Report{Out: p.Out, Err: p.Err, Objects: output.NewObjects(p.Out, format, len(d.changes) == 1), Table: format.IsTable(), Warn: p.warn}
	if f.dryRun == "server" {
		return report.Preview(d.changes, d.leftovers)
	}
	for _, c := range d.changes {
		if err := c.Apply(ctx, d.server, d.options, f.timeout); err != nil {
			report.Undo(d.changes, settings.StateDirectory(p.Getenv), d.options.Manager)
			return withSource(err, d.source)
		}
		if err := report.Add(c, c.Verb()); err != nil {
			return err
		}
	}
	for _, l := range d.leftovers {
		deleted, err := l.Delete(ctx, d.server, false)
		if err != nil {
			return failure.Of(err, "delete "+l.Ref.Long())
		}
		if deleted {
			if err := report.Deleted(l.Ref, "deleted"); err != nil {
				return err
			}
		}
	}
	return report.Close()
}

func (f *applyFlags) check() error {
	if f.dryRun != "none" && f.dryRun != "server" {
		return failure.Usage("read --dry-run="+f.dryRun, "it is none or server", "")
	}
	return f.inSet.check()
}

// withSource gives a refused document its excerpts.
func withSource(err error, source *documents.Source) error {
	var refused *failure.Refused
	if errors.As(err, &refused) {
		refused.Source = source.Bytes
	}
	return err
}

// refusedFiles gives the faults of files their excerpts.
func refusedFiles(err error, source *documents.Source) error {
	var faults declare.Faults
	if errors.As(err, &faults) {
		return &failure.Refused{Faults: faults, Exit: present.ExitOf(faults), Source: source.Bytes}
	}
	return err
}
