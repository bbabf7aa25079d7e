package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"tako.dev/tako/internal/fleet/gc"
)

// served is a kind that the server serves, in the version that it prefers.
type served struct {
	resource   schema.GroupVersionResource
	kind       gc.GroupKind
	namespaced bool
	verbs      []string
}

func (s *served) can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(s.verbs, v) })
}

// kinds knows what the server serves, as of the last refresh.
type kinds struct {
	client discovery.DiscoveryInterfaceWithContext

	refreshing sync.Mutex // one at a time: an answer never replaces a newer one

	mu      sync.Mutex // guards what follows
	all     map[gc.GroupKind]served
	unknown string // why not everything is known
}

// list returns the kinds, sorted, and why there may be more.
func (k *kinds) list() ([]served, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Values(k.all), func(a, b served) int {
		return cmp.Or(cmp.Compare(a.kind.Group, b.kind.Group), cmp.Compare(a.kind.Kind, b.kind.Kind))
	}), k.unknown
}

func (k *kinds) get(kind gc.GroupKind) (served, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.all[kind]
	return s, ok
}

// refresh asks the server. What it cannot tell just now stays as it was known: an error is for when it told nothing.
func (k *kinds) refresh(ctx context.Context) error {
	k.refreshing.Lock()
	defer k.refreshing.Unlock()
	ctx, cancel := deadlined(ctx)
	defer cancel()
	lists, err := discovery.ServerPreferredResourcesWithContext(ctx, k.client)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return err
	}
	all := map[gc.GroupKind]served{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // of no use to anybody
		}
		for _, r := range list.APIResources {
			s := toServed(gv, r)
			all[s.kind] = s
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unknown = ""
	if partial != nil {
		k.keepLocked(all, partial)
	}
	k.all = all
	return nil
}

func (k *kinds) keepLocked(all map[gc.GroupKind]served, partial *discovery.ErrGroupDiscoveryFailed) {
	var why []string
	for gv, err := range partial.Groups {
		why = append(why, fmt.Sprintf("%s: %v", gv, err))
		for kind, s := range k.all {
			if _, known := all[kind]; !known && s.resource.GroupVersion() == gv {
				all[kind] = s
			}
		}
	}
	slices.Sort(why)
	k.unknown = strings.Join(why, "; ")
}

func toServed(gv schema.GroupVersion, r metav1.APIResource) served {
	return served{
		resource: schema.GroupVersionResource{Group: cmp.Or(r.Group, gv.Group), Version: cmp.Or(r.Version, gv.Version), Resource: r.Name},
		kind:     gc.GroupKind{Group: cmp.Or(r.Group, gv.Group), Kind: r.Kind}, namespaced: r.Namespaced, verbs: r.Verbs,
	}
}
