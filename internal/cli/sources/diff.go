package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
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
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
	"tako.dev/tako/internal/source/render"
	"tako.dev/tako/internal/source/render/kustomize"
)

type diffFlags struct {
	ref, path, output  string
	asSource, readOnly bool
}

func (s *Shell) newDiff() *cobra.Command {
	f := &diffFlags{}
	cmd := &cobra.Command{
		Use:   "diff NAME",
		Short: "Show what a commit would change, before it is merged",
		Example: `  tako source diff fleet -n prod --ref refs/pull/12/head
  tako source diff fleet -n prod --path .              a checkout: its root, also where the source applies a part of it
  tako source diff fleet -n prod --path . -o markdown --read-only      for a comment on a pull request`,
		Long: `The commit is fetched by git on this machine, with the credentials that it has here, and read as the
server reads it. Then the server is asked what it would make of it, what would be deleted included, and
nothing is changed. Signatures are not checked. It is asked as whoever asks, or with --as-source as the
source, for which one needs the right to impersonate it.

The server makes something of a document only for who may write it. --read-only asks it for nothing but what
there is, and works out the rest here: for a check whose token is to write nothing. Mistakes in the files are
found all the same; what the server alone would refuse is not.

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
	cmd.Flags().BoolVar(&f.readOnly, "read-only", false, "compare here, with the right to read alone")
	cmd.MarkFlagsMutuallyExclusive("ref", "path")
	cmd.MarkFlagsMutuallyExclusive("as-source", "read-only")
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
		if server, err = s.asSource(ctx, src); err != nil {
			return err
		}
	}
	found := &comparison{readOnly: f.readOnly}
	compare := func(t tree) error { return s.compare(ctx, server, src, t, found) }
	if f.path != "" {
		err = fromDirectory(f.path, compare)
	} else {
		err = fromRepository(ctx, src, f.ref, compare)
	}
	if f.output == "markdown" && ctx.Err() == nil {
		found.failed = failure.Of(err, "compare")
		if _, wrote := io.WriteString(s.Out, markdown(argument(src.Namespace, src.Name), found)); wrote != nil {
			return wrote
		}
	}
	if err != nil {
		return err
	}
	return s.tellDifferences(found, f.output)
}

// asSource is the server for who may ask as a Source.
func (s *Shell) asSource(ctx context.Context, src *v1alpha1.Source) (*remote.Server, error) {
	user, groups := origin.User(src.Namespace, src.Name)
	server, _, err := s.Connect(user, groups)
	if err != nil {
		return nil, err
	}
	if _, err = server.WhoAmI(ctx); err == nil {
		return server, nil
	}
	failed := failure.Of(err, "ask as "+user)
	if failed.Code == reason.NotAllowed {
		failed.Words, failed.Cause = "you may not impersonate it", nil
		failed.Hint = "it takes the verb impersonate for this user and for the groups " + strings.Join(groups, ", ") + ", and lets you do all that the source may; --read-only needs neither"
	}
	return nil, failed
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
	from     string // in words
	changes  []difference
	faults   []declare.Fault
	readOnly bool           // the server has checked nothing
	notes    []string       // what was not looked at
	failed   *failure.Error // what has kept all from being compared; beside faults of no meaning
}

// note adds what was not looked at, once, and tells it.
func (c *comparison) note(tell func(string)) func(string) {
	return func(text string) {
		if !slices.Contains(c.notes, text) {
			c.notes = append(c.notes, text)
			tell(text)
		}
	}
}

// forbidden tells whether the faults are nothing but rights that whoever asks has not.
func (c *comparison) forbidden() bool {
	return len(c.faults) > 0 && !slices.ContainsFunc(c.faults, func(f declare.Fault) bool { return f.Code != reason.NotAllowed })
}

// difference is what would become of one object.
type difference struct {
	verb   string // created, configured or deleted
	object string
	diff   string
}

// compare finds out what a tree would change. Mistakes in the tree are in what is found, and the error.
func (s *Shell) compare(ctx context.Context, server *remote.Server, src *v1alpha1.Source, t tree, found *comparison) error {
	found.from = t.from
	err := s.planned(ctx, server, src, t, found)
	var faults declare.Faults
	var refused *failure.Refused
	switch {
	case errors.As(err, &faults):
		refused = &failure.Refused{Faults: faults, Exit: present.ExitOf(faults)}
	case !errors.As(err, &refused):
		return err
	}
	refused.Source = excerpts(t, refused.Faults)
	found.faults = refused.Faults
	if found.forbidden() {
		s.Warn("these are rights that you have not, and no mistakes of the commit: --read-only compares without them")
	}
	return refused
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
	note := found.note(s.Warn)
	in := &inventory{set: options.Set, found: found, note: note}
	members, err := in.set.Members(ctx, server, in.options(src))
	if err != nil {
		return err
	}
	if in.unlisted != nil {
		note("not looked through, because you may not list them: " + strings.Join(in.unlisted, ", "))
	}
	changed, of, err := changedOf(all.Documents, refs, members)
	if err != nil {
		return err
	}
	if found.readOnly {
		r := &reader{server: server, set: options.Set, applied: make(map[string]*unstructured.Unstructured, len(members)), note: note}
		for _, m := range members {
			r.applied[m.Ref.Long()] = m.Object
		}
		err = r.compare(ctx, changed, of, found)
	} else {
		err = asked(ctx, server, changed, options, found, note)
	}
	if p := src.Spec.Prune; err != nil || p != nil && !*p {
		return err
	}
	return in.leftovers(ctx, server, src, refs)
}

// asked adds what the server would make of each document.
func asked(ctx context.Context, server *remote.Server, changed []documents.Document, options plan.Options, found *comparison, note func(string)) error {
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
			note(c.Ref.Long() + " was not checked by the server: " + c.Unchecked)
		}
		if text != "" {
			found.changes = append(found.changes, difference{c.Verb(), c.Ref.Long(), text})
		}
	}
	return nil
}

// inventory is what the Source has applied, as far as whoever asks may see it.
type inventory struct {
	set      prune.Set
	found    *comparison
	note     func(string)
	unlisted []string         // kinds that may not be listed
	held     []prune.Leftover // what whoever asks may not delete
}

func (in *inventory) options(src *v1alpha1.Source) prune.Options {
	unlisted := func(kind remote.Kind) {
		if !slices.Contains(in.unlisted, kind.Resource) {
			in.unlisted = append(in.unlisted, kind.Resource)
		}
	}
	return prune.Options{All: src.Spec.AllowEmpty, Warn: in.note,
		Places: func(_ context.Context, kind remote.Kind) ([]string, error) {
			if !kind.Namespaced {
				unlisted(kind)
				return nil, nil
			}
			return []string{src.Namespace}, nil
		},
		Left: func(l prune.Leftover, why prune.Held) {
			switch {
			case l.Ref.Name == "":
				unlisted(l.Ref.Kind)
			case why.Allowed:
				in.note(l.Ref.Long() + " is not declared any more and stays: " + why.Words)
			default:
				in.held = append(in.held, l)
			}
		},
	}
}

// leftovers adds what would be deleted. Who may only read is told what the Source would delete, and not what he may.
func (in *inventory) leftovers(ctx context.Context, server *remote.Server, src *v1alpha1.Source, refs []remote.Ref) error {
	going, err := in.set.Leftovers(ctx, server, refs, in.options(src))
	if err == nil && len(in.held) > 0 && !in.found.readOnly {
		return &failure.Error{Code: reason.NotAllowed, Exit: reason.ExitNotAllowed, Doing: "delete " + in.held[0].Ref.Long(), Words: "not allowed",
			Hint: "it is declared no more; --read-only compares without the right to write"}
	}
	for _, l := range append(going, in.held...) {
		object := l.Object.DeepCopy()
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations", origin.Annotation)
		text, err := plan.DiffOfDeletion(l.Ref, object)
		if err != nil {
			return err
		}
		in.found.changes = append(in.found.changes, difference{"deleted", l.Ref.Long(), text})
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
func changedOf(list []documents.Document, refs []remote.Ref, members []prune.Leftover) (changed []documents.Document, of []remote.Ref, err error) {
	applied := make(map[string]origin.Origin, len(members))
	for _, m := range members {
		applied[m.Ref.Long()] = origin.Of(m.Object.GetAnnotations())
	}
	for i, d := range list {
		digest, err := origin.Digest(d.Object.Object)
		if err != nil {
			return nil, nil, failure.Of(err, "compare "+refs[i].Long())
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
		changed, of = append(changed, d), append(of, refs[i])
	}
	return changed, of, nil
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
