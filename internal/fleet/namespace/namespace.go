// Package namespace decides how a namespace that is being deleted becomes empty and goes: what of its content is deleted now,
// what has to wait, what people are told meanwhile, and when the finalizer that holds the namespace is taken away. It is a pure
// function of what was found; it does no I/O and owns no goroutine.
//
//	a namespace has a deletion time -> look what is in it -> Decide
//	  -> delete everything of the earliest stage in which something is left, and look again
//	  -> nothing is left, and everything could be looked at: remove the finalizer
//
// Content goes in stages, so that whoever cleans up after it (a controller with a finalizer) still has what that takes: its
// settings, its secrets, its lease, its rights, and a place for its events.
//
// Invariants, tried in namespace_test.go:
//
//  1. The finalizer is removed only when every kind could be listed and nothing is left.
//  2. A stage is deleted only when the stages before it are empty.
//  3. What still blocks is in the conditions: kinds with their numbers, finalizers with theirs, errors in words.
package namespace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Resource is a namespaced kind as it stands in the path of a request.
type Resource struct{ Group, Version, Name string }

// String is NAME.GROUP, and NAME alone in the core group.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Name
	}
	return r.Name + "." + r.Group
}

// Content is what is left of one kind.
type Content struct {
	Resource Resource
	Left     int            // at least that many; 0 with Unread set means unknown
	Held     map[string]int // finalizer -> how many of the objects looked at have it, and are being deleted
	Unread   string         // why it could not be listed; empty when it could
	Undone   string         // why the last try to delete it did not work; empty when it did
}

// View is a namespace and what is in it.
type View struct {
	Name    string
	Deleted time.Time // when it was told to go; zero: it stays
	Content []Content
	Unknown string // why not all kinds are known; empty when they are
}

// Condition is one of the namespace's status.
type Condition struct {
	Type    string
	True    bool
	Reason  string
	Message string
}

// The conditions of a namespace that is being deleted, as Kubernetes names them. True is bad.
const (
	DiscoveryFailure    = "NamespaceDeletionDiscoveryFailure"
	ContentFailure      = "NamespaceDeletionContentFailure"
	ContentRemaining    = "NamespaceContentRemaining"
	FinalizersRemaining = "NamespaceFinalizersRemaining"
)

// Decision is what to do about a namespace.
type Decision struct {
	Delete     []Resource // all objects of these, now
	Finalize   bool       // remove the finalizer: it is empty
	Conditions []Condition
	Again      time.Duration // when to look again; 0: not by itself
}

// The pause until the namespace is looked at again is a quarter of how long it is being deleted, so that what goes fast is gone
// fast and what hangs costs nothing: at least a quarter of a second, at most 15 s.
const (
	againMin = 250 * time.Millisecond
	againMax = 15 * time.Second
)

// listedMax is how many kinds or finalizers a condition names.
const listedMax = 10

// stages orders content; what is not named is in the first. See the package comment for why.
var stages = map[string]int{
	"configmaps": 1, "secrets": 1, "leases.coordination.k8s.io": 1,
	"roles.rbac.authorization.k8s.io": 2, "rolebindings.rbac.authorization.k8s.io": 2, "serviceaccounts": 2,
	"events": 3, "events.events.k8s.io": 3,
}

// Decide returns what to do about a namespace at that time.
func Decide(v View, now time.Time) Decision {
	if v.Deleted.IsZero() {
		return Decision{}
	}
	content := slices.SortedFunc(slices.Values(v.Content), func(a, b Content) int {
		return cmp.Or(cmp.Compare(a.stage(), b.stage()), cmp.Compare(a.Resource.String(), b.Resource.String()))
	})
	d := Decision{Conditions: conditions(v, content)}
	unread := v.Unknown != ""
	for _, c := range content {
		unread = unread || c.Unread != ""
		if c.there() && (len(d.Delete) == 0 || c.stage() == stages[d.Delete[0].String()]) {
			d.Delete = append(d.Delete, c.Resource)
		}
	}
	if len(d.Delete) == 0 && !unread {
		d.Finalize = true
		return d
	}
	d.Again = min(max(now.Sub(v.Deleted)/4, againMin), againMax)
	return d
}

// there: something is left, or may be.
func (c *Content) there() bool { return c.Left > 0 || c.Unread != "" }

func (c *Content) stage() int { return stages[c.Resource.String()] }

func conditions(v View, content []Content) []Condition {
	var broken, left []string
	held := map[string]int{}
	for _, c := range content {
		if c.Unread != "" {
			broken = append(broken, fmt.Sprintf("%s cannot be listed: %s", c.Resource, c.Unread))
		}
		if c.Undone != "" {
			broken = append(broken, fmt.Sprintf("%s cannot be deleted: %s", c.Resource, c.Undone))
		}
		if c.Left > 0 {
			left = append(left, fmt.Sprintf("%s: %d", c.Resource, c.Left))
		}
		for finalizer, n := range c.Held {
			held[finalizer] += n
		}
	}
	var finalizers []string
	for _, f := range slices.Sorted(maps.Keys(held)) {
		finalizers = append(finalizers, fmt.Sprintf("%s on %d", f, held[f]))
	}
	var unknown []string
	if v.Unknown != "" {
		unknown = []string{v.Unknown}
	}
	return []Condition{
		condition(DiscoveryFailure, unknown, "DiscoveryFailed", "not all kinds are known, so something may be left: ", "ResourcesDiscovered", "all kinds are known"),
		condition(ContentFailure, broken, "ContentDeletionFailed", "", "ContentDeleted", "everything could be listed and deleted, or need not be"),
		condition(ContentRemaining, left, "SomeResourcesRemain", "left are ", "ContentRemoved", "nothing is left"),
		condition(FinalizersRemaining, finalizers, "SomeFinalizersRemain", "whoever set them has to remove the finalizers ", "ContentHasNoFinalizers", "nothing is held by a finalizer"),
	}
}

func condition(kind string, what []string, badReason, badWords, goodReason, goodWords string) Condition {
	if len(what) == 0 {
		return Condition{Type: kind, Reason: goodReason, Message: goodWords}
	}
	more := ""
	if len(what) > listedMax {
		more = fmt.Sprintf(", and %d more", len(what)-listedMax)
		what = what[:listedMax]
	}
	return Condition{Type: kind, True: true, Reason: badReason, Message: badWords + strings.Join(what, ", ") + more}
}
