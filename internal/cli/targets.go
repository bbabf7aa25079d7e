package cli

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

// target is a kind and, if names are given, the objects of it that are meant.
type target struct {
	kind      remote.Kind
	namespace string
	names     []string
}

func (t target) refs() []remote.Ref {
	refs := make([]remote.Ref, len(t.names))
	for i, name := range t.names {
		refs[i] = remote.Ref{Kind: t.kind, Namespace: t.namespace, Name: name}
	}
	return refs
}

// scope are the flags that say which objects are meant.
type scope struct {
	all    bool
	labels string
	fields string
}

func (s *scope) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "objects of all namespaces")
	cmd.Flags().StringVarP(&s.labels, "selector", "l", "", "only objects with these labels: key=value, key!=value, key in (a,b)")
	cmd.Flags().StringVar(&s.fields, "field-selector", "", "only objects with these fields: metadata.name=web")
}

func (s *scope) query(t target) remote.Query {
	q := remote.Query{Kind: t.kind, Namespace: t.namespace, Labels: s.labels, Fields: s.fields}
	if s.all {
		q.Namespace = ""
	}
	return q
}

// targets reads KIND, KIND NAME..., KIND,KIND or KIND/NAME...
func targets(ctx context.Context, server *remote.Server, namespace string, args []string) ([]target, error) {
	if len(args) == 0 {
		return nil, failure.Usage("read the arguments", "no kind is named", "write a kind, such as nodes; `tako explain` lists them")
	}
	if strings.Contains(args[0], "/") {
		return slashed(ctx, server, namespace, args)
	}
	var list []target
	for _, text := range strings.Split(args[0], ",") {
		t, err := kindTarget(ctx, server, namespace, text)
		if err != nil {
			return nil, err
		}
		t.names = args[1:]
		list = append(list, t)
	}
	for _, name := range args[1:] {
		if strings.Contains(name, "/") {
			return nil, failure.Usage("read the arguments", fmt.Sprintf("%q is no name", name), "write KIND NAME..., or KIND/NAME everywhere")
		}
	}
	return list, nil
}

func slashed(ctx context.Context, server *remote.Server, namespace string, args []string) ([]target, error) {
	var list []target
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || name == "" || strings.Contains(name, "/") {
			return nil, failure.Usage("read the arguments", fmt.Sprintf("%q is not KIND/NAME", arg), "write KIND/NAME everywhere, or KIND NAME...")
		}
		t, err := kindTarget(ctx, server, namespace, kind)
		if err != nil {
			return nil, err
		}
		t.names = []string{name}
		list = append(list, t)
	}
	return list, nil
}

func kindTarget(ctx context.Context, server *remote.Server, namespace, text string) (target, error) {
	kind, err := server.Find(ctx, text)
	if err != nil {
		return target{}, kindFailure(err)
	}
	if !kind.Namespaced {
		namespace = ""
	}
	return target{kind: kind, namespace: namespace}, nil
}

// kindFailure says that a kind is not known, and which may have been meant.
func kindFailure(err error) error {
	var unknown *remote.UnknownKind
	if !errors.As(err, &unknown) {
		return failure.Of(err, "ask which kinds there are")
	}
	hint := "`tako explain` lists the kinds"
	if unknown.Near != "" {
		hint = fmt.Sprintf("did you mean %s?", unknown.Near)
	}
	return &failure.Error{Code: reason.UnknownKind, Exit: reason.ExitUsage, Words: unknown.Error(), Hint: hint}
}

// selected returns what targets and a scope mean as names: those that are given, or every object that the selectors meet.
func selected(ctx context.Context, server *remote.Server, list []target, s scope) ([]remote.Ref, error) {
	var refs []remote.Ref
	for _, t := range list {
		if len(t.names) > 0 {
			refs = append(refs, t.refs()...)
			continue
		}
		_, err := server.List(ctx, s.query(t), func(o *unstructured.Unstructured) error {
			refs = append(refs, remote.RefOf(t.kind, o))
			return nil
		})
		if err != nil {
			return nil, failure.Of(err, "list "+t.kind.Resource)
		}
	}
	return refs, nil
}
