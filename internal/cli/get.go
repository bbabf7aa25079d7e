package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

type getFlags struct {
	scope
	output        string
	watch         bool
	labels        bool
	noHeader      bool
	ignoreMissing bool
	timeout       time.Duration
}

func (p *program) newGet() *cobra.Command {
	f := &getFlags{}
	cmd := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "Show objects",
		Example: `  tako get nodes                            a table
  tako get nodeconfigs -A -l app=web        of all namespaces, with a label
  tako get node/web-7 nodeconfig/web        several kinds
  tako get nodes -o jsonpath='{.items[*].metadata.name}'
  tako get nodeconfig web -o yaml           as it is on the server
  tako get nodes -w                         and what changes, until Ctrl-C`,
		ValidArgsFunction: p.completeObjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.get(cmd.Context(), f, args) },
	}
	f.scope.addTo(cmd)
	addOutput(cmd, &f.output)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing changes")
	cmd.Flags().BoolVar(&f.labels, "show-labels", false, "a last column with the labels")
	cmd.Flags().BoolVar(&f.noHeader, "no-headers", false, "leave out the first line of tables")
	cmd.Flags().BoolVar(&f.ignoreMissing, "ignore-not-found", false, "say nothing about a name that does not exist, and exit with 0")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with -w: end after this time, with exit code 0 (default never)")
	return cmd
}

func (p *program) get(ctx context.Context, f *getFlags, args []string) error {
	format, err := output.Parse(f.output)
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	list, err := targets(ctx, server, namespace, args)
	if err != nil {
		return err
	}
	if f.watch {
		return p.watch(ctx, server, f, list, format)
	}
	if format.IsTable() {
		return p.getTables(ctx, server, f, list)
	}
	return p.getObjects(ctx, server, f, list, format)
}

// getObjects writes every object that can be got, and then says which could not.
func (p *program) getObjects(ctx context.Context, server *remote.Server, f *getFlags, list []target, format output.Format) error {
	objects := output.NewObjects(p.Out, format, len(list) == 1 && len(list[0].names) == 1)
	var failures []error
	for _, t := range list {
		add := func(o *unstructured.Unstructured) error {
			return objects.Add(output.Named{Name: remote.RefOf(t.kind, o).String(), Object: o})
		}
		if len(t.names) == 0 {
			if _, err := server.List(ctx, f.query(t), add); err != nil {
				failures = append(failures, failure.Of(err, "list "+t.kind.Resource))
			}
		}
		for _, ref := range t.refs() {
			object, err := server.Get(ctx, ref)
			if err == nil {
				err = add(object)
			}
			if err != nil && !(f.ignoreMissing && apierrors.IsNotFound(err)) {
				failures = append(failures, failure.Of(err, "get "+ref.Long()))
			}
		}
	}
	if !objects.Empty() || len(failures) == 0 && !f.ignoreMissing {
		if err := objects.Close(); err != nil {
			return err
		}
	}
	return p.several(failures)
}

// getTables writes a table for each kind, with the kind in front of the names where there are several, and then says what
// could not be got.
func (p *program) getTables(ctx context.Context, server *remote.Server, f *getFlags, list []target) error {
	kinds := byKind(list)
	written := 0
	var failures []error
	for _, t := range kinds {
		table := f.newTable(t, len(kinds) > 1)
		failed := fillTable(ctx, server, f, t, table)
		failures = append(failures, failed...)
		if table.Rows() == 0 {
			if len(failed) == 0 && !f.ignoreMissing {
				p.say("no " + t.kind.Resource + " found" + inNamespace(f, t))
			}
			continue
		}
		if written > 0 {
			if _, err := io.WriteString(p.Out, "\n"); err != nil {
				return err
			}
		}
		if err := table.Write(p.Out, p.style()); err != nil {
			return err
		}
		written++
	}
	return p.several(failures)
}

func inNamespace(f *getFlags, t target) string {
	if !t.kind.Namespaced || f.all {
		return ""
	}
	return " in namespace " + t.namespace
}

func (f *getFlags) newTable(t target, several bool) *output.Tables {
	options := output.TableOptions{Wide: f.output == "wide", Namespace: f.all && t.kind.Namespaced, Labels: f.labels, NoHeader: f.noHeader}
	if several {
		options.Prefix = t.kind.Name() + "/"
	}
	return output.NewTables(options)
}

// byKind joins targets of one kind, in the order of the first of each.
func byKind(list []target) []target {
	var joined []target
	at := map[string]int{}
	for _, t := range list {
		i, ok := at[t.kind.String()]
		if !ok || len(t.names) == 0 {
			at[t.kind.String()] = len(joined)
			joined = append(joined, target{t.kind, t.namespace, t.names[:len(t.names):len(t.names)]})
			continue
		}
		joined[i].names = append(joined[i].names, t.names...)
	}
	return joined
}

// fillTable adds what can be got, and returns what could not.
func fillTable(ctx context.Context, server *remote.Server, f *getFlags, t target, table *output.Tables) []error {
	if len(t.names) == 0 {
		_, err := server.Tables(ctx, f.query(t), func(part remote.Table) error {
			table.Add(part)
			return nil
		})
		if err != nil {
			return []error{failure.Of(err, "list "+t.kind.Resource)}
		}
		return nil
	}
	var failures []error
	for _, ref := range t.refs() {
		part, err := server.Table(ctx, ref)
		if err == nil {
			table.Add(part)
		} else if !(f.ignoreMissing && apierrors.IsNotFound(err)) {
			failures = append(failures, failure.Of(err, "get "+ref.Long()))
		}
	}
	return failures
}

// watch shows the objects of one kind and then each change, until the context ends.
func (p *program) watch(ctx context.Context, server *remote.Server, f *getFlags, list []target, format output.Format) error {
	if len(list) != 1 || len(list[0].names) > 1 {
		return failure.Usage("watch", "one kind or one object is watched at a time", "")
	}
	w := &watching{program: p, server: server, query: f.query(list[0]), kind: list[0].kind}
	if len(list[0].names) == 1 {
		w.query.Name = list[0].names[0]
	}
	if format.IsTable() {
		w.table = f.newTable(list[0], false)
	} else {
		w.objects = output.NewObjects(p.Out, format, false)
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	return w.run(ctx)
}

// watching shows objects as they change.
type watching struct {
	program *program
	server  *remote.Server
	query   remote.Query
	kind    remote.Kind
	table   *output.Tables  // one of the two
	objects *output.Objects // is set
}

// run lists, then watches from where the list ended. A watch that breaks goes on from its place, and where the server has
// forgotten that, from a new list.
func (w *watching) run(ctx context.Context) error {
	from, err := w.list(ctx)
	if err != nil && ctx.Err() == nil {
		return failure.Of(err, "list "+w.kind.Resource)
	}
	told := false // that the server is away, once until it is back
	for ctx.Err() == nil {
		if err == nil {
			if from, err = w.watch(ctx, from); err == nil {
				told = false
			}
			continue
		}
		if !follow.IsPassing(err) {
			return failure.Of(err, "watch "+w.kind.Resource)
		}
		if !told {
			w.program.say(failure.Of(err, "watch "+w.kind.Resource).Error() + "; going on")
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(follow.RetryDelay):
		}
		if errors.Is(err, remote.ErrExpired) {
			from, err = w.list(ctx)
		} else {
			err = nil
		}
	}
	return nil // Ctrl-C or --timeout is how a watch ends
}

func (w *watching) list(ctx context.Context) (string, error) {
	if w.table == nil {
		return w.server.List(ctx, w.query, func(o *unstructured.Unstructured) error { return w.change(remote.Added, o) })
	}
	from, err := w.server.Tables(ctx, w.query, func(part remote.Table) error {
		w.table.Add(part)
		return nil
	})
	if err == nil && w.table.Rows() > 0 {
		err = w.table.Write(w.program.Out, w.style())
	}
	return from, err
}

func (w *watching) watch(ctx context.Context, from string) (string, error) {
	if w.table == nil {
		return w.server.Watch(ctx, w.query, from, w.change)
	}
	return w.server.WatchTables(ctx, w.query, from, func(t remote.EventType, part remote.Table) error {
		w.table.Add(part)
		if t == remote.Deleted {
			w.table.Mark("(deleted)")
		}
		return w.table.Write(w.program.Out, w.style())
	})
}

func (w *watching) change(t remote.EventType, o *unstructured.Unstructured) error {
	return w.objects.Change(string(t), output.Named{Name: remote.RefOf(w.kind, o).String(), Object: o})
}

func (w *watching) style() present.Style { return w.program.style() }
