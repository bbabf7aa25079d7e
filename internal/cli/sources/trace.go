package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/fleet"
	"tako.dev/tako/internal/cli/prune"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/cli/selection"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/source/origin"
)

// Trace is where an object is from.
type Trace struct {
	Object string `json:"object"` // as it is named on a command line
	// Of is what controls the object asked for, where that is another one: it is that which was declared.
	Of string `json:"of,omitempty"`
	// Source is what has applied it; nil where a person or a program did.
	Source *TracedSource `json:"source,omitempty"`
	File   string        `json:"file,omitempty"`
	Line   int           `json:"line,omitempty"`
	Commit string        `json:"commit,omitempty"` // the one that has brought what is declared now
	Author string        `json:"author,omitempty"`
	// Subject is the first line of what was said about the commit, where the Source still knows it.
	Subject string `json:"subject,omitempty"`
	// Set is the one that it was applied in by a person; empty for none, and for what a Source has applied.
	Set string `json:"set,omitempty"`
	// Owners are who has written fields of it, the last first.
	Owners []Owner `json:"owners,omitempty"`
	// Drift says what others have changed of what the Source declares; empty while nothing is known.
	Drift string `json:"drift,omitempty"`
}

// TracedSource is a Source as far as it matters for one of its objects.
type TracedSource struct {
	Name    string `json:"name"` // as it is named on a command line
	URL     string `json:"url,omitempty"`
	Applied string `json:"applied,omitempty"`
	Ready   string `json:"ready,omitempty"`
	Message string `json:"message,omitempty"`
}

// Owner is who has written fields of an object.
type Owner struct {
	Name string `json:"name"`
	// How is Apply or Update.
	How    string      `json:"how"`
	Fields int         `json:"fields"`
	Such   []string    `json:"such,omitempty"` // some of them
	At     metav1.Time `json:"at,omitzero"`
}

// NewTrace is `tako trace`.
func (s *Shell) NewTrace() *cobra.Command {
	var form, node string
	cmd := &cobra.Command{
		Use:   "trace KIND/NAME | RESOURCE --node NODE",
		Short: "Say where an object is from: source, commit, author, file and line",
		Example: `  tako trace nodeconfig/web -n prod
  tako trace configmap/settings -n prod -o json
  tako trace file/motd --node web-7        the config that a file of a host is from, and so on`,
		Long: "Of what no source has applied, it says who did, and when.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: s.Complete(""),
		RunE: func(cmd *cobra.Command, args []string) error {
			if form != "" && form != "json" {
				return failure.Usage("read -o "+form, "this is written as text or json", "")
			}
			t, err := s.trace(cmd.Context(), args[0], strings.TrimPrefix(node, "node/"))
			if err != nil {
				return err
			}
			if form == "json" {
				return json.NewEncoder(s.Out).Encode(t)
			}
			_, err = fmt.Fprint(s.Out, t.text(time.Now()))
			return err
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "ask this host about a resource, TYPE/NAME or what it claims")
	cmd.Flags().StringVarP(&form, "output", "o", "", "json: for programs")
	_ = cmd.RegisterFlagCompletionFunc("node", s.Complete(v1alpha1.ResourceNodes)) // the flags are there
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// controllersMax bounds how far a trace goes from an object to what controls it: a revision has one, and nothing has three.
const controllersMax = 5

func (s *Shell) trace(ctx context.Context, subject, node string) (*Trace, error) {
	server, namespace, err := s.Connect("", nil)
	if err != nil {
		return nil, err
	}
	ref, err := s.subject(ctx, server, namespace, subject, node)
	if err != nil {
		return nil, err
	}
	t := &Trace{Object: ref.Argument()}
	for range controllersMax {
		object, err := server.Get(ctx, ref)
		if err != nil {
			return nil, failure.Of(err, "get "+ref.Long())
		}
		controller := metav1.GetControllerOf(object)
		if controller == nil {
			return t, s.fill(ctx, server, t, ref, object)
		}
		kind, err := server.Find(ctx, kindText(controller))
		if err != nil {
			return nil, failure.Of(err, "ask which kinds there are")
		}
		ref = remote.Ref{Kind: kind, Name: controller.Name}
		if kind.Namespaced {
			ref.Namespace = object.GetNamespace()
		}
		t.Of = ref.Argument()
	}
	return nil, failure.Stalled("trace "+subject, "its controllers lead nowhere", "tako describe "+t.Object)
}

func kindText(controller *metav1.OwnerReference) string {
	group, _, found := strings.Cut(controller.APIVersion, "/")
	if !found {
		return controller.Kind
	}
	return controller.Kind + "." + group
}

// subject is the object that is asked about: with a node, the config that its resource is from.
func (s *Shell) subject(ctx context.Context, server *remote.Server, namespace, subject, node string) (remote.Ref, error) {
	if node != "" {
		id, err := s.Resource(ctx, node, subject)
		if err != nil {
			return remote.Ref{}, err
		}
		ref, err := fleet.Declaring(ctx, server, id)
		if err != nil {
			return ref, failure.Of(err, "ask which kinds there are")
		}
		return ref, nil
	}
	list, err := selection.Parse(ctx, server, namespace, []string{subject})
	if err != nil {
		return remote.Ref{}, err
	}
	if len(list) != 1 || len(list[0].Names) != 1 {
		return remote.Ref{}, failure.Usage("trace", "exactly one object is traced", "write KIND/NAME")
	}
	return list[0].Refs()[0], nil
}

// fill says of an object that was declared where that was.
func (s *Shell) fill(ctx context.Context, server *remote.Server, t *Trace, ref remote.Ref, object *unstructured.Unstructured) error {
	t.Owners = ownersOf(object)
	set := object.GetLabels()[prune.Label]
	bySource := slices.ContainsFunc(t.Owners, func(o Owner) bool {
		return o.Name == origin.Manager && o.How == string(metav1.ManagedFieldsOperationApply)
	})
	namespace, name, ok := strings.Cut(set, ".") // a namespace has no dot
	if !bySource || !ok {
		t.Set = set
		return nil
	}
	from := origin.Of(object.GetAnnotations())
	t.File, t.Line, t.Commit, t.Author = from.File, from.Line, from.Commit, from.Author
	t.Source = &TracedSource{Name: argument(namespace, name)}
	_, src, err := s.find(ctx, server, namespace, name)
	var failed *failure.Error
	switch {
	case err == nil:
	case errors.As(err, &failed) && failed.Code == reason.ObjectUnknown:
		t.Source.Message = "there is no such source any more: nobody keeps the object"
		return nil
	case errors.As(err, &failed) && failed.Code == reason.NotAllowed:
		t.Source.Message = "you may not see it"
		return nil
	default:
		return err
	}
	t.of(src, ref)
	return nil
}

// of adds what a Source says.
func (t *Trace) of(src *v1alpha1.Source, ref remote.Ref) {
	t.Source.URL = src.Spec.URL
	if c := meta.FindStatusCondition(src.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		t.Source.Ready, t.Source.Message = string(c.Status), c.Message
	}
	if a := src.Status.Applied; a != nil {
		t.Source.Applied = commitText(a)
	}
	for _, c := range []*v1alpha1.SourceCommit{src.Status.Applied, src.Status.Seen} {
		if c != nil && c.ID == t.Commit {
			t.Subject = c.Subject
		}
	}
	for _, d := range src.Status.Drifted {
		if d.Kind == ref.Kind.Kind && d.APIVersion == ref.Kind.GroupVersion().String() && d.Namespace == ref.Namespace && d.Name == ref.Name {
			t.Drift = d.Message
		}
	}
}
