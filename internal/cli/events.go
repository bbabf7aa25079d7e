package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/describe"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/present"
)

type eventsFlags struct {
	selection.Scope
	about   string
	uid     string // of the object that --for names, where it is there
	kinds   []string
	watch   bool
	output  string
	timeout time.Duration
}

func (p *program) newEvents() *cobra.Command {
	f := &eventsFlags{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened, the newest last",
		Example: `  tako events
  tako events -A --types=Warning
  tako events --for nodeconfig/web -w`,
		Args: taking(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.events(cmd.Context(), f) },
	}
	cmd.Flags().BoolVarP(&f.All, "all-namespaces", "A", false, "events of all namespaces")
	cmd.Flags().StringVar(&f.about, "for", "", "only about this object, KIND/NAME")
	cmd.Flags().StringSliceVar(&f.kinds, "types", nil, "only of these types: Normal, Warning")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing new ones")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with -w: end after this time, with exit code 0 (default never)")
	addOutput(cmd, &f.output)
	complete(cmd, "types", "Normal", "Warning")
	_ = cmd.RegisterFlagCompletionFunc("for", p.completeObjects) // the flag is there
	return cmd
}

// eventTypes are the types that an event may have.
var eventTypes = [...]string{"Normal", "Warning"}

// settleTypes refuses types that no event has, and gives the others the letter case of the server.
func (f *eventsFlags) settleTypes() error {
	for i, kind := range f.kinds {
		at := slices.IndexFunc(eventTypes[:], func(known string) bool { return strings.EqualFold(known, kind) })
		if at < 0 {
			return failure.Usage("read --types="+kind, "no event has this type", "write Normal or Warning")
		}
		f.kinds[i] = eventTypes[at]
	}
	return nil
}

func (p *program) events(ctx context.Context, f *eventsFlags) error {
	if err := f.settleTypes(); err != nil {
		return err
	}
	format, err := output.Parse(f.output)
	if err != nil {
		return err
	}
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	query, err := f.eventsQuery(ctx, server, namespace)
	if err != nil {
		return err
	}
	if f.watch {
		return p.watchEvents(ctx, server, query, f, format)
	}
	if !format.IsTable() {
		return p.eventObjects(ctx, server, query, f, format)
	}
	return p.eventTable(ctx, server, query, f)
}

func (f *eventsFlags) eventsQuery(ctx context.Context, server *remote.Server, namespace string) (remote.Query, error) {
	kind, err := server.Find(ctx, "events.v1")
	if err != nil {
		return remote.Query{}, failure.Of(err, "ask which kinds there are")
	}
	query := remote.Query{Kind: kind, Namespace: namespace}
	var fields []string
	if f.about != "" {
		about, err := selection.Parse(ctx, server, namespace, []string{f.about})
		if err != nil {
			return query, err
		}
		if len(about[0].Names) != 1 {
			return query, failure.Usage("read --for "+f.about, "it is not KIND/NAME", "")
		}
		ref := about[0].Refs()[0]
		fields = append(fields, aboutObject(ref))
		// Where the object is there, an earlier one of its name is not meant; where it is gone, its events are what is left of it.
		object, err := server.Get(ctx, ref)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return query, failure.Of(err, "get "+ref.Long())
		}
		if err == nil {
			f.uid = string(object.GetUID())
		}
		if about[0].Namespace == "" {
			query.Namespace = "" // events about what is in no namespace may stand in any
		}
	}
	if len(f.kinds) == 1 {
		fields = append(fields, "type="+f.kinds[0])
	}
	query.Fields = strings.Join(fields, ",")
	if f.All {
		query.Namespace = ""
	}
	return query, nil
}

// watchEvents shows events as they come, until the context ends.
func (p *program) watchEvents(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags, format output.Format) error {
	var view follow.View = &objectView{output.NewObjects(p.Out, format, false), query.Kind}
	if format.IsTable() {
		view = &eventView{program: p, flags: f}
	}
	return p.follow(ctx, follow.Feed{Server: server, Query: query, Say: p.say}, view, f.timeout)
}

func (p *program) eventObjects(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags, format output.Format) error {
	objects := output.NewObjects(p.Out, format, false)
	_, err := server.List(ctx, query, func(o *unstructured.Unstructured) error {
		if !f.shows(describe.HappeningOf(o)) {
			return nil
		}
		return objects.Add(output.Named{Name: remote.RefOf(query.Kind, o).String(), Object: o})
	})
	if err != nil {
		return failure.Of(err, "list events")
	}
	return objects.Close()
}

// shows reports whether an event is of a type that is asked for.
func (f *eventsFlags) shows(h describe.Happening) bool {
	if !h.IsAbout(f.uid) {
		return false
	}
	return len(f.kinds) == 0 || slices.ContainsFunc(f.kinds, func(k string) bool { return strings.EqualFold(k, h.Kind) })
}

func (p *program) eventTable(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags) error {
	var list []describe.Happening
	_, err := server.List(ctx, query, func(o *unstructured.Unstructured) error {
		if h := describe.HappeningOf(o); f.shows(h) {
			list = append(list, h)
		}
		return nil
	})
	if err != nil {
		return failure.Of(err, "list events")
	}
	if len(list) == 0 {
		p.say("no events found")
		return nil
	}
	describe.SortHappenings(list)
	return p.writeEvents(list, f, true)
}

func (p *program) writeEvents(list []describe.Happening, f *eventsFlags, header bool) error {
	var table present.Table
	if header {
		table.Header = []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}
		if f.All {
			table.Header = append([]string{"NAMESPACE"}, table.Header...)
		}
	}
	now := time.Now()
	for _, h := range list {
		cells := []string{output.Age(h.Last, now), h.Kind, h.Reason, h.Subject, fmt.Sprint(h.Count), h.Message}
		if f.All {
			cells = append([]string{h.Namespace}, cells...)
		}
		table.Add(cells...)
	}
	return table.Write(p.Out, p.style())
}
