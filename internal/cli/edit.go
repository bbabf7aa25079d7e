package cli

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"tako.dev/tako/internal/cli/editor"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/selection"
)

func (p *program) newEdit() *cobra.Command {
	return &cobra.Command{
		Use:   "edit KIND/NAME",
		Short: "Change one object in an editor",
		Example: `  tako edit nodeconfig/web
  EDITOR=nano tako edit configmap motd`,
		Long: `The object is opened in $VISUAL, $EDITOR, the editor of prefs.yaml, or vi. What is saved replaces it,
unless somebody else has changed it meanwhile. What is refused is opened again with the reasons on
top; saving it unchanged gives up, and the file is kept.`,
		ValidArgsFunction: p.completeObjects,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.edit(cmd.Context(), args) },
	}
}

func (p *program) edit(ctx context.Context, args []string) error {
	server, namespace, err := p.connect()
	if err != nil {
		return err
	}
	list, err := selection.Parse(ctx, server, namespace, args)
	if err != nil {
		return err
	}
	if len(list) != 1 || len(list[0].Names) != 1 {
		return failure.Usage("edit", "one object is edited at a time", "tako edit KIND/NAME")
	}
	e := &editor.Editing{Server: server, Ref: list[0].Refs()[0], Command: p.editor(), In: p.In, Out: p.Out, Err: p.Err, Say: p.say}
	return e.Run(ctx)
}

// editor is the command of the person's editor, at least one word.
func (p *program) editor() string {
	editor := cmp.Or(p.Getenv("VISUAL"), p.Getenv("EDITOR"), p.prefs.Editor)
	if strings.TrimSpace(editor) == "" {
		return "vi"
	}
	return editor
}
