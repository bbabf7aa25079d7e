package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
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

type applyFlags struct {
	files
	dryRun  string
	force   bool
	set     string
	prune   bool
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
--force-conflicts takes them over. --set names what is applied together; --prune then deletes what
was applied under that name before and is in no file now.`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.apply(cmd.Context(), f) },
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&f.dryRun, "dry-run", "none", "none, or server: check everything and change nothing")
	cmd.Flags().BoolVar(&f.force, "force-conflicts", false, "take over fields that somebody else owns")
	cmd.Flags().StringVar(&f.set, "set", "", "name of all that these files declare, kept in the label "+setLabel)
	cmd.Flags().BoolVar(&f.prune, "prune", false, "delete what is of the set and in no file any more")
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
	if f.set != "" {
		if err := mark(source.Documents, f.set); err != nil {
			return err
		}
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	changes, err := p.plan(ctx, server, namespace, source, f.force)
	if err != nil {
		return err
	}
	report := &applied{program: p, objects: output.NewObjects(p.Out, format, len(changes) == 1), table: format.IsTable()}
	if f.dryRun == "server" {
		err = report.preview(changes)
	} else {
		err = p.applyAll(ctx, server, changes, f, report, source)
	}
	if err != nil {
		return err
	}
	if err := p.prune(ctx, server, f, report, changes); err != nil {
		return err
	}
	return report.close()
}

func (f *applyFlags) check() error {
	switch {
	case f.dryRun != "none" && f.dryRun != "server":
		return failure.Usage("read --dry-run="+f.dryRun, "it is none or server", "")
	case f.prune && f.set == "":
		return failure.Usage("apply", "--prune without --set", "--set names what belongs together; without it nothing says what may be deleted")
	}
	return nil
}

func (p *program) applyAll(ctx context.Context, server *remote.Server, changes []*change, f *applyFlags, report *applied, source *documents.Source) error {
	for _, c := range changes {
		if err := p.applyOne(ctx, server, c, f); err != nil {
			report.undo(changes)
			return refusedOne(c, err, source)
		}
		if err := report.add(c, c.verb()); err != nil {
			return err
		}
	}
	return nil
}

// applyOne applies a document, and if it defines a kind, waits until the server serves it.
func (p *program) applyOne(ctx context.Context, server *remote.Server, c *change, f *applyFlags) error {
	if c.unchecked != "" {
		if err := c.lookAgain(ctx, server, f.timeout); err != nil {
			return err
		}
	}
	after, err := server.Apply(ctx, c.ref, c.document.Object, remote.ApplyOptions{Force: f.force})
	if err != nil {
		return err
	}
	c.after, c.applied = after, true
	if c.ref.Kind.Kind != "CustomResourceDefinition" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := follow.Wait(ctx, server, c.ref, follow.Established()); err != nil {
		return err
	}
	server.Forget()
	return nil
}

// lookAgain completes a change that could not be checked before what it needs was applied.
func (c *change) lookAgain(ctx context.Context, server *remote.Server, timeout time.Duration) error {
	kind, err := newKindOf(ctx, server, c.document.Kind(), timeout)
	if err != nil {
		return kindFailure(err)
	}
	c.ref.Kind = kind
	if c.before, err = server.Get(ctx, c.ref); err != nil {
		c.before = nil
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// newKindOf is KindOf for a kind that was defined a moment ago, of which the server tells a little later.
func newKindOf(ctx context.Context, server *remote.Server, gvk schema.GroupVersionKind, timeout time.Duration) (remote.Kind, error) {
	const pause = 100 * time.Millisecond // a person does not notice it, and a server has some ten questions to answer at most
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		kind, err := server.KindOf(ctx, gvk)
		var unknown *remote.UnknownKind
		if !errors.As(err, &unknown) {
			return kind, err
		}
		select {
		case <-ctx.Done():
			return kind, err
		case <-time.After(pause):
			server.Forget()
		}
	}
}

// refusedOne is the error of a document that was refused when it was applied.
func refusedOne(c *change, err error, source *documents.Source) error {
	doing := "apply " + c.ref.Long()
	faults, exit, ok := failure.Faults(err, doing, c.document)
	if !ok {
		return failure.Of(err, doing)
	}
	return &failure.Refused{Faults: faults, Exit: exit, Source: source.Bytes}
}

// applied tells what was applied.
type applied struct {
	program *program
	objects *output.Objects
	table   bool
}

func (a *applied) add(c *change, verb string) error {
	if a.table {
		_, err := fmt.Fprintf(a.program.Out, "%s %s\n", c.ref, verb)
		return err
	}
	if c.after == nil {
		return nil
	}
	return a.objects.Add(output.Named{Name: c.ref.String(), Object: c.after})
}

// deleted tells of an object that is not declared any more: with the data in a table, beside it in any other form.
func (a *applied) deleted(ref remote.Ref, word string) error {
	if !a.table {
		a.program.say(ref.String() + " " + word)
		return nil
	}
	_, err := fmt.Fprintf(a.program.Out, "%s %s\n", ref, word)
	return err
}

func (a *applied) close() error {
	if a.table {
		return nil
	}
	return a.objects.Close()
}

func (a *applied) preview(changes []*change) error {
	for _, c := range changes {
		if c.unchecked != "" {
			a.program.warn(fmt.Sprintf("%s was not checked by the server: %s", c.ref.Long(), c.unchecked))
		}
		if err := a.add(c, c.verb()+" (dry run)"); err != nil {
			return err
		}
	}
	return nil
}

// undo says on standard error what has been applied before a failure, and how each is taken back.
func (a *applied) undo(changes []*change) {
	var changed []*change
	for _, c := range changes {
		if c.applied && c.verb() != "unchanged" {
			changed = append(changed, c)
		}
	}
	if len(changed) == 0 {
		fmt.Fprintln(a.program.Err, "nothing was changed before the failure")
		return
	}
	file, err := saveBefore(changed, a.program.Getenv)
	fmt.Fprintln(a.program.Err, "changed before the failure, newest first, with what undoes it:")
	for i := len(changed) - 1; i >= 0; i-- {
		c := changed[i]
		switch {
		case c.before == nil:
			fmt.Fprintf(a.program.Err, "  %s was created: tako delete %s\n", c.ref, c.ref.Argument())
		case err == nil:
			fmt.Fprintf(a.program.Err, "  %s was configured: tako apply --force-conflicts -f %s\n", c.ref, file)
		default:
			fmt.Fprintf(a.program.Err, "  %s was configured, and what it was could not be saved: %v\n", c.ref, err)
		}
	}
}

// refusedFiles gives the faults of files their excerpts.
func refusedFiles(err error, source *documents.Source) error {
	var faults declare.Faults
	if errors.As(err, &faults) {
		return &failure.Refused{Faults: faults, Exit: present.ExitOf(faults), Source: source.Bytes}
	}
	return err
}
