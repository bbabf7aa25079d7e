package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

type getFlags struct {
	selection.Scope
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
	f.addTo(cmd)
	return cmd
}

func (f *getFlags) addTo(cmd *cobra.Command) {
	f.AddTo(cmd)
	addOutput(cmd, &f.output)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing changes")
	cmd.Flags().BoolVar(&f.labels, "show-labels", false, "a last column with the labels")
	cmd.Flags().BoolVar(&f.noHeader, "no-headers", false, "leave out the first line of tables")
	cmd.Flags().BoolVar(&f.ignoreMissing, "ignore-not-found", false, "say nothing about a name that does not exist, and exit with 0")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with -w: end after this time, with exit code 0 (default never)")
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
	list, err := selection.Parse(ctx, server, namespace, args)
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
func (p *program) getObjects(ctx context.Context, server *remote.Server, f *getFlags, list []selection.Target, format output.Format) error {
	objects := output.NewObjects(p.Out, format, len(list) == 1 && len(list[0].Names) == 1)
	var failures []error
	for _, t := range list {
		add := func(o *unstructured.Unstructured) error {
			return objects.Add(output.Named{Name: remote.RefOf(t.Kind, o).String(), Object: o})
		}
		if len(t.Names) == 0 {
			if _, err := server.List(ctx, f.Query(t), add); err != nil {
				failures = append(failures, failure.Of(err, "list "+t.Kind.Resource))
			}
		}
		for _, ref := range t.Refs() {
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
func (p *program) getTables(ctx context.Context, server *remote.Server, f *getFlags, list []selection.Target) error {
	kinds := byKind(list)
	written := 0
	var failures []error
	for _, t := range kinds {
		table := f.newTable(t, len(kinds) > 1)
		failed := fillTable(ctx, server, f, t, table)
		failures = append(failures, failed...)
		if table.Rows() == 0 {
			if len(failed) == 0 && !f.ignoreMissing {
				p.say("no " + t.Kind.Resource + " found" + inNamespace(f, t))
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

func inNamespace(f *getFlags, t selection.Target) string {
	if !t.Kind.Namespaced || f.All {
		return ""
	}
	return " in namespace " + t.Namespace
}

func (f *getFlags) newTable(t selection.Target, several bool) *output.Tables {
	options := output.TableOptions{Wide: f.output == "wide", Namespace: f.All && t.Kind.Namespaced, Labels: f.labels, NoHeader: f.noHeader}
	if several {
		options.Prefix = t.Kind.Name() + "/"
	}
	return output.NewTables(options)
}

// byKind joins targets of one kind, in the order of the first of each.
func byKind(list []selection.Target) []selection.Target {
	var joined []selection.Target
	at := map[string]int{}
	for _, t := range list {
		i, ok := at[t.Kind.String()]
		if !ok || len(t.Names) == 0 {
			at[t.Kind.String()] = len(joined)
			joined = append(joined, selection.Target{Kind: t.Kind, Namespace: t.Namespace, Names: t.Names[:len(t.Names):len(t.Names)]})
			continue
		}
		joined[i].Names = append(joined[i].Names, t.Names...)
	}
	return joined
}

// fillTable adds what can be got, and returns what could not.
func fillTable(ctx context.Context, server *remote.Server, f *getFlags, t selection.Target, table *output.Tables) []error {
	if len(t.Names) == 0 {
		_, err := server.Tables(ctx, f.Query(t), func(part remote.Table) error {
			table.Add(part)
			return nil
		})
		if err != nil {
			return []error{failure.Of(err, "list "+t.Kind.Resource)}
		}
		return nil
	}
	var failures []error
	for _, ref := range t.Refs() {
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
func (p *program) watch(ctx context.Context, server *remote.Server, f *getFlags, list []selection.Target, format output.Format) error {
	if len(list) != 1 || len(list[0].Names) > 1 {
		return failure.Usage("watch", "one kind or one object is watched at a time", "")
	}
	query := f.Query(list[0])
	if len(list[0].Names) == 1 {
		query.Name = list[0].Names[0]
	}
	var view follow.View = &objectView{output.NewObjects(p.Out, format, false), list[0].Kind}
	if format.IsTable() {
		view = &tableView{program: p, table: f.newTable(list[0], false)}
	}
	return p.follow(ctx, follow.Feed{Server: server, Query: query, Tables: format.IsTable(), Say: p.say}, view, f.timeout)
}
