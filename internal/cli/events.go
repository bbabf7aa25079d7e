package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/describe"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/follow"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
)

type eventsFlags struct {
	scope
	about   string
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
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "events of all namespaces")
	cmd.Flags().StringVar(&f.about, "for", "", "only about this object, KIND/NAME")
	cmd.Flags().StringSliceVar(&f.kinds, "types", nil, "only of these types: Normal, Warning")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on showing new ones")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "with -w: end after this time, with exit code 0 (default never)")
	addOutput(cmd, &f.output)
	complete(cmd, "types", "Normal", "Warning")
	_ = cmd.RegisterFlagCompletionFunc("for", p.completeObjects) // the flag is there
	return cmd
}

func (p *program) events(ctx context.Context, f *eventsFlags) error {
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
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	if !format.IsTable() {
		return p.eventObjects(ctx, server, query, f, format)
	}
	return p.eventTable(ctx, server, query, f)
}

func (f *eventsFlags) eventsQuery(ctx context.Context, server *remote.Server, namespace string) (remote.Query, error) {
	kind, err := server.Find(ctx, "events.v1")
	if err != nil {
		return remote.Query{}, kindFailure(err)
	}
	query := remote.Query{Kind: kind, Namespace: namespace}
	var fields []string
	if f.about != "" {
		about, err := targets(ctx, server, namespace, []string{f.about})
		if err != nil {
			return query, err
		}
		if len(about[0].names) != 1 {
			return query, failure.Usage("read --for "+f.about, "it is not KIND/NAME", "")
		}
		fields = append(fields, "involvedObject.kind="+about[0].kind.Kind, "involvedObject.name="+about[0].names[0])
		if about[0].namespace == "" {
			query.Namespace = "" // events about what is in no namespace may stand in any
		}
	}
	if len(f.kinds) == 1 {
		fields = append(fields, "type="+f.kinds[0])
	}
	query.Fields = strings.Join(fields, ",")
	if f.all {
		query.Namespace = ""
	}
	return query, nil
}

func (p *program) eventObjects(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags, format output.Format) error {
	objects := output.NewObjects(p.Out, format, false)
	if f.watch {
		w := &watching{program: p, server: server, query: query, kind: query.Kind, objects: objects}
		return w.run(ctx)
	}
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
	return len(f.kinds) == 0 || slices.ContainsFunc(f.kinds, func(k string) bool { return strings.EqualFold(k, h.Kind) })
}

func (p *program) eventTable(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags) error {
	var list []describe.Happening
	from, err := server.List(ctx, query, func(o *unstructured.Unstructured) error {
		if h := describe.HappeningOf(o); f.shows(h) {
			list = append(list, h)
		}
		return nil
	})
	if err != nil {
		return failure.Of(err, "list events")
	}
	if len(list) == 0 && !f.watch {
		p.say("no events found")
		return nil
	}
	describe.SortHappenings(list)
	if err := p.writeEvents(list, f, true); err != nil || !f.watch {
		return err
	}
	return p.watchEvents(ctx, server, query, f, from)
}

// watchEvents shows events as they come, until the context ends. Where the server has forgotten the place, it goes on with
// what comes now.
func (p *program) watchEvents(ctx context.Context, server *remote.Server, query remote.Query, f *eventsFlags, from string) error {
	for ctx.Err() == nil {
		var err error
		from, err = server.Watch(ctx, query, from, func(t remote.EventType, o *unstructured.Unstructured) error {
			if h := describe.HappeningOf(o); t != remote.Deleted && f.shows(h) {
				return p.writeEvents([]describe.Happening{h}, f, false)
			}
			return nil
		})
		if err == nil || ctx.Err() != nil {
			continue
		}
		if !follow.IsPassing(err) {
			return failure.Of(err, "watch events")
		}
		p.say(failure.Of(err, "watch events").Error() + "; going on")
		select {
		case <-ctx.Done():
		case <-time.After(follow.RetryDelay):
		}
		if !errors.Is(err, remote.ErrExpired) {
			continue // from the same place
		}
		if now, err := server.List(ctx, query, func(*unstructured.Unstructured) error { return nil }); err == nil {
			from = now
		}
	}
	return nil // Ctrl-C or --timeout is how a watch ends
}

func (p *program) writeEvents(list []describe.Happening, f *eventsFlags, header bool) error {
	var table present.Table
	if header {
		table.Header = []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}
		if f.all {
			table.Header = append([]string{"NAMESPACE"}, table.Header...)
		}
	}
	now := time.Now()
	for _, h := range list {
		cells := []string{output.Age(h.Last, now), h.Kind, h.Reason, h.Subject, fmt.Sprint(h.Count), h.Message}
		if f.all {
			cells = append([]string{h.Namespace}, cells...)
		}
		table.Add(cells...)
	}
	return table.Write(p.Out, p.style())
}
