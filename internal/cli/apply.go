package cli

import (
	"context"
	"errors"
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

func (f *files) addTo(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.paths, "filename", "f", nil, "file or directory to read, - for standard input; may be repeated")
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "read directories with all below them")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json") // the flag is there
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

// planOptions are how documents of the command line are meant.
func (p *program) planOptions(namespace, set string, force bool) (plan.Options, error) {
	s, err := prune.ParseSet(namespace, set)
	return plan.Options{Namespace: namespace, Only: p.flags.Namespace != "", Set: s, Force: force}, err
}

// leftovers are what --prune would delete, none without it.
func (p *program) leftovers(ctx context.Context, server *remote.Server, s inSet, options plan.Options, changes []*plan.Change) ([]prune.Leftover, error) {
	if !s.prune {
		return nil, nil
	}
	return options.Set.Leftovers(ctx, server, plan.RefsOf(changes), prune.Options{All: s.pruneAll, Warn: p.warn})
}

type applyFlags struct {
	files
	inSet
	dryRun  string
	force   bool
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
  tako apply -f prod/ -R --set prod --prune and what is not in the files any more is deleted`,
		Long: `Every document is checked on the server before anything is changed. Then they are applied in an
order in which each finds what it needs. If one fails all the same, what was applied is listed
with the command that undoes it. Fields that somebody else owns are a conflict, unless
--force-conflicts takes them over.

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
	cmd.Flags().BoolVar(&f.force, "force-conflicts", false, "take over fields that somebody else owns, and objects of others")
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
	source, err := f.load(p)
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	options, err := p.planOptions(namespace, f.set, f.force)
	if err != nil {
		return err
	}
	changes, err := plan.Make(ctx, server, source, options)
	if err != nil {
		return err
	}
	leftovers, err := p.leftovers(ctx, server, f.inSet, options, changes)
	if err != nil {
		return err
	}
	report := &plan.Report{Out: p.Out, Err: p.Err, Objects: output.NewObjects(p.Out, format, len(changes) == 1), Table: format.IsTable(), Warn: p.warn}
	if f.dryRun == "server" {
		return report.Preview(changes, leftovers)
	}
	for _, c := range changes {
		if err := c.Apply(ctx, server, options, f.timeout); err != nil {
			report.Undo(changes, settings.StateDirectory(p.Getenv))
			return withSource(err, source)
		}
		if err := report.Add(c, c.Verb()); err != nil {
			return err
		}
	}
	for _, l := range leftovers {
		deleted, err := l.Delete(ctx, server, false)
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
