package registry

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds lists all kinds that are stored.
func Kinds() []*Kind {
	return slices.Concat(coreKinds(), rbacKinds(), takoKinds())
}

// Groups are the groups that kinds are in.
func Groups(kinds []*Kind) []string {
	var groups []string
	for _, k := range kinds {
		groups = append(groups, k.GVK.Group)
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// of begins a kind: its type and that of its list tell the rest.
func of[T, L any, PT interface {
	*T
	runtime.Object
}, PL interface {
	*L
	runtime.Object
}](g schema.GroupVersion, kind string, names Names) *Kind {
	if names.Singular == "" {
		names.Singular = strings.ToLower(kind)
	}
	return &Kind{
		GVK: g.WithKind(kind), Names: names,
		New:     func() runtime.Object { return PT(new(T)) },
		NewList: func() runtime.Object { return PL(new(L)) },
	}
}

// selectable says whether a field selector may name a field.
func (k *Kind) selectable(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && k.Namespaced {
		return label, value, nil
	}
	if k.Fields != nil {
		if _, known := k.Fields(k.New())[label]; known {
			return label, value, nil
		}
	}
	return "", "", fmt.Errorf("%s cannot be selected by field %q: fields are %s", k.Names.Plural, label, strings.Join(k.fieldNames(), ", "))
}

func (k *Kind) fieldNames() []string {
	names := []string{"metadata.name"}
	if k.Namespaced {
		names = append(names, "metadata.namespace")
	}
	if k.Fields != nil {
		for name := range k.Fields(k.New()) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
