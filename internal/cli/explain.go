package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/schema"
	"tako.dev/tako/internal/present"
)

func (p *program) newExplain() *cobra.Command {
	recursive := false
	cmd := &cobra.Command{
		Use:   "explain [KIND[.FIELD...]]",
		Short: "Explain a kind and its fields; without one, list the kinds",
		Example: `  tako explain                                 the kinds that the server knows
  tako explain nodeconfig
  tako explain nodeconfig.spec.resources.file
  tako explain nodeconfig --recursive          every field with its type`,
		Args:              taking(cobra.MaximumNArgs(1)),
		ValidArgsFunction: p.completeKinds,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.explain(cmd.Context(), args, recursive) },
	}
	cmd.Flags().BoolVar(&recursive, "recursive", false, "all fields below, with their types")
	return cmd
}

func (p *program) explain(ctx context.Context, args []string, recursive bool) error {
	server, _, err := p.connect()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		kinds, err := server.Kinds(ctx)
		if err != nil {
			return failure.Of(err, "ask which kinds there are")
		}
		table := present.Table{Header: []string{"NAME", "SHORT", "APIVERSION", "NAMESPACED", "KIND"}}
		for _, k := range kinds {
			table.Add(k.Resource, orDash(strings.Join(k.Short, ",")), k.GroupVersion().String(), fmt.Sprint(k.Namespaced), k.Kind)
		}
		return table.Write(p.Out, p.style())
	}
	name, rest, _ := strings.Cut(args[0], ".")
	kind, err := server.Find(ctx, name)
	if err != nil {
		return failure.Of(err, "ask which kinds there are")
	}
	text, err := server.Description(ctx, kind.GroupVersion())
	if apierrors.IsNotFound(err) {
		return failure.NotFound("explain "+name, "the server does not describe "+kind.GroupVersion().String(), "")
	}
	if err != nil {
		return failure.Of(err, "ask the server to describe "+kind.Kind)
	}
	document, err := schema.Parse(text)
	if err != nil {
		return err
	}
	var fields []string
	if rest != "" {
		fields = strings.Split(rest, ".")
	}
	field, ok, err := document.Explain(kind.GroupVersionKind, fields)
	if !ok {
		return failure.NotFound("explain "+name, "the server does not describe the kind", "")
	}
	if err != nil {
		return fieldFailure(args[0], err)
	}
	return field.Write(p.Out, recursive)
}

func fieldFailure(asked string, err error) error {
	var none *schema.NoField
	if !errors.As(err, &none) {
		return err
	}
	hint := "it has no fields"
	if len(none.Fields) > 0 {
		hint = "fields here: " + strings.Join(none.Fields, ", ")
	}
	return failure.NotFound("explain "+asked, none.Error(), hint)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
