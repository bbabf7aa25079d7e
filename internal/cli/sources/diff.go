package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/plan"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/render"
	"tako.dev/tako/internal/source/render/kustomize"
)

type diffFlags struct {
	ref, path, output string
	asSource          bool
}

func (s *Shell) newDiff() *cobra.Command {
	f := &diffFlags{}
	cmd := &cobra.Command{
		Use:   "diff NAME",
		Short: "Show what a commit would change, before it is merged",
		Example: `  tako source diff fleet -n prod --ref refs/pull/12/head
  tako source diff fleet -n prod --path .              a checkout: its root, also where the source applies a part of it
  tako source diff fleet -n prod --path . -o markdown  for a comment on a pull request`,
		Long: `The commit is fetched by git on this machine, with the credentials that it has here, and read as the
server reads it. Then the server is asked what it would make of it, what would be deleted included, and
nothing is changed. Signatures are not checked. It is asked as whoever asks, or with --as-source as the
source, for which one needs the right to impersonate it.

It exits with 0 when nothing would change, with 1 when something would, and with 2 or more on an error,
such as a mistake in a file. What is secret is never shown, only that it changes.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: s.Complete(v1alpha1.ResourceSources),
		RunE:              func(cmd *cobra.Command, args []string) error { return s.FromTwo(s.diff(cmd.Context(), args[0], f)) },
	}
	cmd.Flags().StringVar(&f.ref, "ref", "", "branch, tag, commit or other ref of the repository (default what the source says)")
	cmd.Flags().StringVar(&f.path, "path", "", "directory of this machine in place of the repository's root")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "markdown: for a comment on a pull request")
	cmd.Flags().BoolVar(&f.asSource, "as-source", false, "ask with the rights of the source")
	cmd.MarkFlagsMutuallyExclusive("ref", "path")
	_ = cmd.MarkFlagDirname("path") // the flag is there
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"markdown"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (s *Shell) diff(ctx context.Context, name string, f *diffFlags) error {
	if f.output != "" && f.output != "markdown" {
		return failure.Usage("read -o "+f.output, "this is written as text or markdown", "")
	}
	server, namespace, err := s.Connect("", nil)
	if err != nil {
		return err
	}
	_, src, err := s.find(ctx, server, namespace, name)
	if err != nil {
		return err
	}
	if f.asSource {
		user, groups := origin.User(src.Namespace, src.Name)
		if server, _, err = s.Connect(user, groups); err != nil {
			return err
		}
	}
	var found *comparison
	compare := func(t tree) (err error) {
		found, err = s.compare(ctx, server, src, t)
		return err
	}
	if f.path != "" {
		err = fromDirectory(f.path, compare)
	} else {
		err = fromRepository(ctx, src, f.ref, compare)
	}
	if f.output == "markdown" && (err == nil || found != nil) {
		if _, wrote := io.WriteString(s.Out, markdown(argument(src.Namespace, src.Name), found)); wrote != nil {
			return wrote
		}
	}
	if err != nil {
		return err
	}
	return s.tellDifferences(found, f.output)
}

// tellDifferences writes what would change as text, and ends with the exit code for it.
func (s *Shell) tellDifferences(found *comparison, form string) error {
	if len(found.changes) == 0 {
		s.Say(found.from + " would change nothing")
		return nil
	}
	for _, c := range found.changes {
		if form != "" {
			break
		}
		if err := present.WriteDiff(s.Out, c.diff, s.Style()); err != nil {
			return err
		}
	}
	return s.Differs
}

// comparison is what a tree would change, or the mistakes in it.
type comparison struct {
	from    string // in words
	changes []difference
	faults  []declare.Fault
}

// difference is what would become of one object.
type difference struct {
	verb   string // created, configured or deleted
	object string
	diff   string
}

// compare finds out what a tree would change. With mistakes in the tree it returns both them and the error that they are.
func (s *Shell) compare(ctx context.Context, server *remote.Server, src *v1alpha1.Source, t tree) (*comparison, error) {
	found := &comparison{from: t.from}
	err := s.planned(ctx, server, src, t, found)
	var faults declare.Faults
	var refused *failure.Refused
	switch {
	case errors.As(err, &faults):
		refused = &failure.Refused{Faults: faults, Exit: present.ExitOf(faults)}
	case !errors.As(err, &refused):
		if err != nil {
			return nil, err
		}
		return found, nil
	}
	refused.Source = excerpts(t, refused.Faults)
	found.faults = refused.Faults
	return found, refused
}

// planned reads the tree as the loop of the server does, and plans what it does.
func (s *Shell) planned(ctx context.Context, server *remote.Server, src *v1alpha1.Source, t tree, found *comparison) error {
	rendered, err := s.render(ctx, src, t)
	if err != nil {
		return err
	}
	set, err := prune.ParseSet(src.Namespace, src.Name)
	if err != nil {
		return err
	}
	options := plan.Options{Namespace: src.Namespace, Set: set.By(origin.Manager, ""), Manager: origin.Manager}
	all := &documents.Source{Documents: rendered.Documents}
	refs, err := plan.Refs(ctx, server, all, options)
	if err != nil {
		return err
	}
	members, err := options.Set.Members(ctx, server, s.Warn)
	if err != nil {
		return err
	}
	changed, err := changedOf(all.Documents, refs, members)
	if err != nil {
		return err
	}
	changes, err := plan.Make(ctx, server, &documents.Source{Documents: changed}, options)
	if err != nil {
		return err
	}
	for _, c := range changes {
		text, err := c.Diff()
		if err != nil {
			return err
		}
		if c.Unchecked != "" {
			s.Warn(c.Ref.Long() + " was not checked by the server: " + c.Unchecked)
		}
		if text != "" {
			found.changes = append(found.changes, difference{c.Verb(), c.Ref.Long(), text})
		}
	}
	if p := src.Spec.Prune; p != nil && !*p {
		return nil
	}
	leftovers, err := options.Set.Leftovers(ctx, server, refs, prune.Options{All: src.Spec.AllowEmpty, Warn: s.Warn})
	for _, l := range leftovers {
		object := l.Object.DeepCopy()
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", origin.Annotation)
		text, err := plan.DiffOfDeletion(l.Ref, object)
		if err != nil {
			return err
		}
		found.changes = append(found.changes, difference{"deleted", l.Ref.Long(), text})
	}
	return err
}

func (s *Shell) render(ctx context.Context, src *v1alpha1.Source, t tree) (*render.Result, error) {
	var options render.Options
	if len(s.Builder) > 0 {
		builder, err := kustomize.New(kustomize.Options{Command: s.Builder})
		if err != nil {
			return nil, err
		}
		options.Builder = builder
	}
	return render.New(options).Render(ctx, t.FS, render.Request{Path: src.Spec.Path, Ignore: strings.Join(src.Spec.Ignore, "\n"), Namespace: src.Namespace,
		AllowEmpty: src.Spec.AllowEmpty}, nil)
}

// changedOf are the documents that declare something else than what the Source has applied. Where an object is from is what the Source
// writes with it, and no change that anybody made: a document gets that of the object that there is.
func changedOf(list []documents.Document, refs []remote.Ref, members []prune.Leftover) ([]documents.Document, error) {
	applied := make(map[string]origin.Origin, len(members))
	for _, m := range members {
		applied[m.Ref.Long()] = origin.Of(m.Object.GetAnnotations())
	}
	var changed []documents.Document
	for i, d := range list {
		digest, err := origin.Digest(d.Object.Object)
		if err != nil {
			return nil, failure.Of(err, "compare "+refs[i].Long())
		}
		was, there := applied[refs[i].Long()]
		if there && was.Digest == digest {
			continue
		}
		if there && was != (origin.Origin{}) {
			annotations := d.Object.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[origin.Annotation] = was.String()
			d.Object.SetAnnotations(annotations)
		}
		changed = append(changed, d)
	}
	return changed, nil
}

// excerpts keeps the files of faults, because a tree is gone when they are shown.
func excerpts(t tree, faults []declare.Fault) func(string) ([]byte, error) {
	kept := map[string][]byte{}
	for _, f := range faults {
		if _, there := kept[f.File]; f.File == "" || there {
			continue
		}
		if data, err := fs.ReadFile(t.FS, f.File); err == nil {
			kept[f.File] = data
		}
	}
	return func(file string) ([]byte, error) {
		if data, ok := kept[file]; ok {
			return data, nil
		}
		return nil, fmt.Errorf("%s: %w", file, fs.ErrNotExist)
	}
}
