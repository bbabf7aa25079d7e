package selection

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/reason"
)

// Target is a kind and, if names are given, the objects of it that are meant.
type Target struct {
	Kind      remote.Kind
	Namespace string // empty for kinds that stand in none
	Names     []string
}

// Refs names the objects that are meant by name.
func (t Target) Refs() []remote.Ref {
	refs := make([]remote.Ref, len(t.Names))
	for i, name := range t.Names {
		refs[i] = remote.Ref{Kind: t.Kind, Namespace: t.Namespace, Name: name}
	}
	return refs
}

// Scope are the flags that say which objects are meant.
type Scope struct {
	All    bool   // of all namespaces
	Labels string // a selector; empty is all
	Fields string // a selector; empty is all
}

// AddTo gives a command the flags.
func (s *Scope) AddTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "objects of all namespaces")
	cmd.Flags().StringVarP(&s.Labels, "selector", "l", "", "only objects with these labels: key=value, key!=value, key in (a,b)")
	cmd.Flags().StringVar(&s.Fields, "field-selector", "", "only objects with these fields: metadata.name=web")
}

// Query asks for the objects of a target that are in the scope.
func (s *Scope) Query(t Target) remote.Query {
	q := remote.Query{Kind: t.Kind, Namespace: t.Namespace, Labels: s.Labels, Fields: s.Fields}
	if s.All {
		q.Namespace = ""
	}
	return q
}

// Parse reads KIND, KIND NAME..., KIND,KIND or KIND/NAME...
func Parse(ctx context.Context, server *remote.Server, namespace string, args []string) ([]Target, error) {
	if len(args) == 0 {
		return nil, failure.Usage("read the arguments", "no kind is named", "write a kind, such as nodes; `tako explain` lists them")
	}
	if strings.Contains(args[0], "/") {
		return slashed(ctx, server, namespace, args)
	}
	var list []Target
	for _, text := range strings.Split(args[0], ",") {
		t, err := One(ctx, server, namespace, text)
		if err != nil {
			return nil, err
		}
		t.Names = args[1:]
		list = append(list, t)
	}
	for _, name := range args[1:] {
		if strings.Contains(name, "/") {
			return nil, failure.Usage("read the arguments", fmt.Sprintf("%q is no name", name), "write KIND NAME..., or KIND/NAME everywhere")
		}
	}
	return list, nil
}

// Single reads the arguments of a command that is about one object. form is how that is written, for whoever wrote something else.
func Single(ctx context.Context, server *remote.Server, namespace string, args []string, form string) (remote.Ref, error) {
	const doing = "read the arguments"
	list, err := Parse(ctx, server, namespace, args)
	var unknown *failure.Error
	switch {
	case errors.As(err, &unknown) && unknown.Code == reason.UnknownKind && len(args) == 1 && !strings.Contains(args[0], "/"):
		return remote.Ref{}, failure.Usage(doing, fmt.Sprintf("%q says no kind", args[0]), "write "+form)
	case err != nil:
		return remote.Ref{}, err
	case len(list) != 1 || len(list[0].Names) != 1:
		return remote.Ref{}, failure.Usage(doing, "exactly one object is meant", "write "+form)
	}
	return list[0].Refs()[0], nil
}

func slashed(ctx context.Context, server *remote.Server, namespace string, args []string) ([]Target, error) {
	var list []Target
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" || strings.Contains(name, "/") {
			return nil, failure.Usage("read the arguments", fmt.Sprintf("%q is not KIND/NAME", arg), "write KIND/NAME everywhere, or KIND NAME...")
		}
		t, err := One(ctx, server, namespace, kind)
		if err != nil {
			return nil, err
		}
		t.Names = []string{name}
		list = append(list, t)
	}
	return list, nil
}

// One reads one KIND.
func One(ctx context.Context, server *remote.Server, namespace, text string) (Target, error) {
	kind, err := server.Find(ctx, text)
	if err != nil {
		return Target{}, failure.Of(err, "ask which kinds there are")
	}
	if !kind.Namespaced {
		namespace = ""
	}
	return Target{Kind: kind, Namespace: namespace}, nil
}

// Refs returns what targets and a scope mean as names: those that are given, or every object that the selectors meet.
func Refs(ctx context.Context, server *remote.Server, list []Target, s Scope) ([]remote.Ref, error) {
	var refs []remote.Ref
	for _, t := range list {
		if len(t.Names) > 0 {
			refs = append(refs, t.Refs()...)
			continue
		}
		_, err := server.List(ctx, s.Query(t), func(o *unstructured.Unstructured) error {
			refs = append(refs, remote.RefOf(t.Kind, o))
			return nil
		})
		if err != nil {
			return nil, failure.Of(err, "list "+t.Kind.Resource)
		}
	}
	return refs, nil
}
