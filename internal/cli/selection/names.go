package selection

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tako.dev/tako/internal/cli/remote"
)

// namesMax is how many names are offered: a screen or two; more help nobody.
const namesMax = 200

// KindNames are the plurals of the kinds that begin so.
func KindNames(ctx context.Context, server *remote.Server, start string) ([]string, error) {
	kinds, err := server.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, k := range kinds {
		if strings.HasPrefix(k.Resource, start) {
			names = append(names, k.Resource)
		}
	}
	return names, nil
}

// errEnough ends a list of names early.
var errEnough = errors.New("enough names")

// Names are the names of objects of a kind that begin so, some of them where there are many.
func Names(ctx context.Context, server *remote.Server, namespace, kind, start string) ([]string, error) {
	t, err := One(ctx, server, namespace, kind)
	if err != nil {
		return nil, err
	}
	var names []string
	_, err = server.List(ctx, remote.Query{Kind: t.Kind, Namespace: t.Namespace}, func(o *unstructured.Unstructured) error {
		if strings.HasPrefix(o.GetName(), start) {
			names = append(names, o.GetName())
		}
		if len(names) == namesMax {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return names, err
}
