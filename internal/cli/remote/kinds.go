package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind that the server serves.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural that stands in the path of requests.
	Resource   string
	Singular   string
	Short      []string
	Namespaced bool
	Verbs      []string
	// Categories are names for several kinds together, such as all.
	Categories []string
}

// Name is the singular with the group where there is one, as it stands before the slash in KIND.GROUP/NAME.
func (k Kind) Name() string {
	if k.Group == "" {
		return k.single()
	}
	return k.single() + "." + k.Group
}

func (k Kind) single() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Kind)
}

// Can reports whether the server allows a verb on the kind at all.
func (k Kind) Can(verb string) bool { return slices.Contains(k.Verbs, verb) }

// Kinds returns every kind that the server serves in the version that it prefers, in its own order. The caller does not
// change the slice.
func (s *Server) Kinds(ctx context.Context) ([]Kind, error) {
	all, err := s.allKinds(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[schema.GroupKind]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(k Kind) bool {
		twice := seen[k.GroupKind()]
		seen[k.GroupKind()] = true
		return twice
	}), nil
}

// allKinds returns the kinds in every version, the preferred version of each group first.
func (s *Server) allKinds(ctx context.Context) ([]Kind, error) {
	if s.kinds != nil {
		return s.kinds, nil
	}
	kinds, err := within(ctx, s, func(ctx context.Context) ([]Kind, error) {
		groups, lists, err := s.discovery.ServerGroupsAndResourcesWithContext(ctx)
		if err != nil && len(lists) == 0 {
			return nil, err
		}
		if err != nil {
			s.options.Warn(fmt.Sprintf("some kinds are not known now: %v", err)) // one broken group must not hide the others
		}
		return kindsOf(groups, lists), nil
	})
	if err != nil {
		return nil, err
	}
	s.kinds = kinds
	return kinds, nil
}

// Forget makes the next question about kinds ask the server again, after a definition of kinds was applied.
func (s *Server) Forget() { s.kinds = nil }

func kindsOf(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) []Kind {
	byVersion := map[string]*metav1.APIResourceList{}
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	var kinds []Kind
	for _, g := range groups {
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != g.PreferredVersion.GroupVersion {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, v := range versions {
			if list := byVersion[v]; list != nil {
				kinds = append(kinds, kindsOfVersion(list)...)
			}
		}
	}
	return kinds
}

func kindsOfVersion(list *metav1.APIResourceList) []Kind {
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return nil
	}
	var kinds []Kind
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}
		kinds = append(kinds, Kind{GroupVersionKind: gv.WithKind(r.Kind), Resource: r.Name, Singular: r.SingularName, Short: r.ShortNames,
			Namespaced: r.Namespaced, Verbs: r.Verbs, Categories: r.Categories})
	}
	return kinds
}

// UnknownKind is the error of a kind that the server does not serve.
type UnknownKind struct {
	Text string
	// Near is a kind that may have been meant; empty if there is none.
	Near string
}

// Error says that there is no such kind.
func (e *UnknownKind) Error() string { return fmt.Sprintf("the server knows no kind %q", e.Text) }

// Find returns the kind that a person means: its plural, singular, kind or short name in any letter case, with
// .GROUP or .VERSION.GROUP behind it where that is not clear. Errors: *UnknownKind.
func (s *Server) Find(ctx context.Context, text string) (Kind, error) {
	kinds, err := s.allKinds(ctx)
	if err != nil {
		return Kind{}, err
	}
	if k, ok := find(kinds, text); ok {
		return k, nil
	}
	return Kind{}, &UnknownKind{Text: text, Near: nearest(kinds, text)}
}

func find(kinds []Kind, text string) (Kind, bool) {
	text = strings.ToLower(text)
	name, rest, _ := strings.Cut(text, ".")
	for _, k := range kinds {
		isNamed := name == k.Resource || name == k.single() || name == strings.ToLower(k.Kind) || slices.Contains(k.Short, name)
		isThere := rest == "" || rest == k.Group || rest == k.Version+"."+k.Group || k.Group == "" && rest == k.Version
		if isNamed && isThere {
			return k, true
		}
	}
	return Kind{}, false
}

// KindOf returns the kind of an object's apiVersion and kind. Errors: *UnknownKind.
func (s *Server) KindOf(ctx context.Context, gvk schema.GroupVersionKind) (Kind, error) {
	kinds, err := s.allKinds(ctx)
	if err != nil {
		return Kind{}, err
	}
	for _, k := range kinds {
		if k.GroupVersionKind == gvk {
			return k, nil
		}
	}
	text := gvk.Kind + " of " + gvk.GroupVersion().String()
	near := nearest(kinds, gvk.Kind)
	for _, k := range kinds {
		if k.Kind == gvk.Kind {
			near = k.Kind + " of " + k.GroupVersion().String()
			break
		}
	}
	return Kind{}, &UnknownKind{Text: text, Near: near}
}

// nearest returns the plural that a misspelt text may mean.
func nearest(kinds []Kind, text string) string {
	text, _, _ = strings.Cut(strings.ToLower(text), ".")
	plurals := map[string]string{}
	var names []string
	for _, k := range kinds {
		for _, name := range []string{k.Resource, k.single()} {
			if _, there := plurals[name]; !there {
				plurals[name] = k.Resource
				names = append(names, name)
			}
		}
	}
	return plurals[Near(text, names)]
}

// Near returns the name that a misspelt text may mean: one letter in four may be wrong, and two at most; "" for none.
func Near(text string, names []string) string {
	best, bestDistance := "", min(2, (len(text)+1)/4)+1
	for _, name := range names {
		if d := distance(text, name); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// distance is the number of letters added, removed or replaced between two texts (Levenshtein).
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := before[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, before[j+1]+1, row[j]+1)
		}
		before, row = row, before
	}
	return before[len(b)]
}
