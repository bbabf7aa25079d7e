package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/describe"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
)

func (p *program) newDescribe() *cobra.Command {
	var s selection.Scope
	cmd := &cobra.Command{
		Use:   "describe KIND/NAME...",
		Short: "Show all about objects: what is declared, how it is, what happened",
		Example: `  tako describe nodeconfig/web
  tako describe node web-7 web-8
  tako describe nodeconfigs -l app=web`,
		ValidArgsFunction: p.completeObjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.describe(cmd.Context(), s, args) },
	}
	s.AddTo(cmd)
	return cmd
}

func (p *program) describe(ctx context.Context, s selection.Scope, args []string) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return err
	}
	refs, err := selection.Refs(ctx, server, list, s)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		p.say("nothing found")
	}
	for i, ref := range refs {
		object, err := server.Get(ctx, ref)
		if err != nil {
			return failure.Of(err, "get "+ref.Long())
		}
		happened, err := eventsOf(ctx, server, ref, object)
		if err != nil {
			p.warn(failure.Of(err, "list the events of "+ref.Long()).Error()) // what is known is worth showing
		}
		text, err := describe.Object(object, happened, time.Now(), p.style())
		if err != nil {
			return err
		}
		if i > 0 {
			text = "\n" + text
		}
		if _, err := io.WriteString(p.Out, text); err != nil {
			return err
		}
	}
	return nil
}

// aboutObject selects the events about an object, and about earlier ones of its name.
func aboutObject(ref remote.Ref) string {
	return "involvedObject.kind=" + ref.Kind.Kind + ",involvedObject.name=" + ref.Name
}

// eventsOf are the events about an object, the oldest first.
func eventsOf(ctx context.Context, server *remote.Server, ref remote.Ref, object *unstructured.Unstructured) ([]describe.Happening, error) {
	kind, err := server.Find(ctx, "events.v1")
	if err != nil {
		return nil, err
	}
	query := remote.Query{Kind: kind, Namespace: ref.Namespace, Fields: aboutObject(ref)}
	var list []describe.Happening
	_, err = server.List(ctx, query, func(o *unstructured.Unstructured) error {
		if h := describe.HappeningOf(o); h.IsAbout(string(object.GetUID())) {
			list = append(list, h)
		}
		return nil
	})
	describe.SortHappenings(list)
	return list, err
}
