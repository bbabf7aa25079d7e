package namespace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

var (
	configs = Resource{"tako.dev", "v1alpha1", "nodeconfigs"}
	secrets = Resource{"", "v1", "secrets"}
	roles   = Resource{"rbac.authorization.k8s.io", "v1", "roles"}
	events  = Resource{"", "v1", "events"}
)

func TestDecide(t *testing.T) {
	for name, test := range map[string]struct {
		view     View
		delete   []Resource
		finalize bool
		bad      map[string]string // condition -> what its message holds
	}{
		"it stays":         {view: View{Content: []Content{{Resource: configs, Left: 1}}}},
		"it is empty":      {view: View{Deleted: now, Content: []Content{{Resource: configs}, {Resource: events}}}, finalize: true},
		"nothing is known": {view: View{Deleted: now, Unknown: "demo/v1: not available"}, bad: map[string]string{DiscoveryFailure: "demo/v1: not available"}},
		"content goes in stages": {
			view:   View{Deleted: now, Content: []Content{{Resource: events, Left: 9}, {Resource: roles, Left: 1}, {Resource: secrets, Left: 2}, {Resource: configs, Left: 3}}},
			delete: []Resource{configs},
			bad:    map[string]string{ContentRemaining: "left are nodeconfigs.tako.dev: 3, secrets: 2, roles.rbac.authorization.k8s.io: 1, events: 9"},
		},
		"the last stage": {view: View{Deleted: now, Content: []Content{{Resource: events, Left: 9}, {Resource: roles}}}, delete: []Resource{events}, bad: map[string]string{ContentRemaining: "events: 9"}},
		"a finalizer holds": {
			view:   View{Deleted: now, Content: []Content{{Resource: configs, Left: 3, Held: map[string]int{"example.com/b": 1, "example.com/a": 2}}}},
			delete: []Resource{configs},
			bad:    map[string]string{ContentRemaining: "nodeconfigs.tako.dev: 3", FinalizersRemaining: "example.com/a on 2, example.com/b on 1"},
		},
		"what cannot be listed may be there, and comes before what is later": {
			view:   View{Deleted: now, Content: []Content{{Resource: secrets, Left: 1}, {Resource: configs, Unread: "no such webhook"}}},
			delete: []Resource{configs},
			bad:    map[string]string{ContentRemaining: "secrets: 1", ContentFailure: "nodeconfigs.tako.dev cannot be listed: no such webhook"},
		},
		"what cannot be deleted": {
			view:   View{Deleted: now, Content: []Content{{Resource: secrets, Left: 1, Undone: "forbidden"}}},
			delete: []Resource{secrets},
			bad:    map[string]string{ContentRemaining: "secrets: 1", ContentFailure: "secrets cannot be deleted: forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(test.view, now)
			if !slices.Equal(d.Delete, test.delete) || d.Finalize != test.finalize {
				t.Errorf("delete %v, finalize %v", d.Delete, d.Finalize)
			}
			if wantAgain := !test.view.Deleted.IsZero() && !d.Finalize; (d.Again > 0) != wantAgain {
				t.Errorf("looks again after %s", d.Again)
			}
			for _, c := range d.Conditions {
				want, bad := test.bad[c.Type]
				if c.True != bad || c.Reason == "" || !strings.Contains(c.Message, want) || c.Message == "" {
					t.Errorf("condition %+v, want %q", c, want)
				}
			}
		})
	}
}

func TestConditionsAreBounded(t *testing.T) {
	v := View{Deleted: now}
	for i := range 500 {
		v.Content = append(v.Content, Content{Resource: Resource{"demo", "v1", fmt.Sprintf("kind%03d", i)}, Left: 1})
	}
	for _, c := range Decide(v, now).Conditions {
		if len(c.Message) > 1000 || c.True && !strings.HasSuffix(c.Message, "and 490 more") {
			t.Errorf("%s: %q", c.Type, c.Message)
		}
	}
}

func TestAgainGrows(t *testing.T) {
	v := View{Deleted: now, Unknown: "x"}
	for age, want := range map[time.Duration]time.Duration{-time.Hour: againMin, 0: againMin, 8 * time.Second: 2 * time.Second, time.Hour: againMax} {
		if got := Decide(v, now.Add(age)).Again; got != want {
			t.Errorf("after %s it looks again after %s, want %s", age, got, want)
		}
	}
}

// The invariants, for any content, while a naive cluster does what is decided: it becomes empty as soon as finalizers allow.
func TestNamespaceBecomesEmptyInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		resources := []Resource{configs, secrets, roles, events, {"demo.example", "v1", "things"}}
		left, stuck := map[Resource]int{}, map[Resource]int{}
		for _, r := range resources {
			left[r] = rapid.IntRange(0, 3).Draw(t, "left")
			stuck[r] = rapid.IntRange(0, left[r]).Draw(t, "stuck")
		}
		for round := 0; ; round++ {
			if round > 20 {
				t.Fatalf("is never empty: %v", left)
			}
			v, unread := View{Name: "x", Deleted: now}, false
			for _, r := range resources {
				c := Content{Resource: r, Left: left[r]}
				if round < 8 && rapid.IntRange(0, 5).Draw(t, "unread") == 0 {
					c, unread = Content{Resource: r, Unread: "no answer"}, true
				}
				v.Content = append(v.Content, c)
			}
			d := Decide(v, now)
			if d.Finalize {
				total := 0
				for _, n := range left {
					total += n
				}
				if unread || total > 0 {
					t.Fatalf("the finalizer goes while %v is left, unread: %v", left, unread)
				}
				return
			}
			for _, deleted := range d.Delete {
				for _, other := range resources {
					if stages[other.String()] < stages[deleted.String()] && left[other] > 0 {
						t.Fatalf("%s is deleted before %s", deleted, other)
					}
				}
				left[deleted] = stuck[deleted]
				if round > 4 {
					stuck[deleted] = 0 // somebody removes his finalizers
				}
			}
		}
	})
}
