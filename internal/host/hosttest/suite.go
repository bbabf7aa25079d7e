package hosttest

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
)

// Subject is a resource type, resources of it, and a ground to try them on.
type Subject struct {
	Type host.Type
	// Declared are the resources; they are checked and applied together.
	Declared []host.Declared
	// Situations are how the resources may find the host. Each must differ from what is declared, for every resource.
	Situations []Situation
	// Observe looks at resource i by other means than the Type's. What it returns is compared with reflect.DeepEqual.
	Observe func(t testing.TB, i int) any
	// Difference says in the Changes of a plan, without Text and in any order, what lies between two observations.
	Difference func(i int, before, after any) []host.Change
	// Gone is what Observe returns of each resource after it was removed with delete.
	Gone []any
	// Snapshot is everything that a careless check or a refused apply might have changed.
	Snapshot func(t testing.TB) string
	// Disturb changes every resource, as somebody else might between check and apply. Nil where a type cannot tell.
	Disturb func(t testing.TB)
	// Remembers says that a shallow check recognises what was just applied.
	Remembers bool
	// Lasting says that what was done cannot be undone: no removal is tried, and Gone is empty.
	Lasting bool
	// Secrets may be in nothing that is shown.
	Secrets []string
}

// Situation is a state of the host.
type Situation struct {
	Name string
	// Arrange makes it, whatever was there.
	Arrange func(t testing.TB)
}

// Run tries a Subject in all its situations.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if lane := s.Type.Lane(); lane.Name == "" || lane.Parallel < 1 || lane.Batch < 1 {
		t.Errorf("lane %+v is none that can be worked in", lane)
	}
	for _, situation := range s.Situations {
		t.Run(situation.Name, func(t *testing.T) {
			r := &run{T: t, Subject: &s}
			situation.Arrange(t)
			r.life()
			if s.Disturb != nil {
				situation.Arrange(t)
				r.disturbed()
			}
			r.tellsNoSecret()
		})
	}
}

// run is one situation under test.
type run struct {
	*testing.T
	*Subject
	shown []string // everything that a person might see
}

// life is the way of the resources from their first check to their removal.
func (r *run) life() {
	rs := r.bind()
	plans := r.dryRun(rs)
	before := r.observe()
	r.ended(plans)
	var originals [][]byte
	if !r.Lasting {
		originals = r.originals(rs)
	}
	r.apply(r.Type.Check(r.Context(), rs, host.Deep), before)
	r.inSync(rs)
	if r.Lasting {
		return
	}
	r.remove(rs, declare.OnRemoveRestore, originals, before)
	again := r.Type.Check(r.Context(), rs, host.Deep)
	for i := range again {
		r.sameChanges(i, again[i].Changes, plans[i].Changes, "what is planned after everything was put back, and at first")
	}
	r.apply(again, before)
	r.remove(rs, declare.OnRemoveDelete, originals, r.Gone)
}

func (r *run) bind() []host.Resource {
	r.Helper()
	rs := make([]host.Resource, len(r.Declared))
	for i, d := range r.Declared {
		res, err := r.Type.Bind(r.Context(), d)
		if err != nil {
			r.Fatalf("bind %s: %v", d.Title, err)
		}
		for _, w := range res.Watches() {
			if w.Name == "" {
				r.Errorf("%s watches something without a name", d.Title)
			}
		}
		rs[i] = res
	}
	return rs
}

// dryRun checks at every depth, and that this has no trace.
func (r *run) dryRun(rs []host.Resource) []host.Plan {
	r.Helper()
	before := r.Snapshot(r)
	shallow := r.check(rs, host.Shallow)
	explained := r.check(rs, host.Explain)
	plans := r.check(rs, host.Deep)
	if after := r.Snapshot(r); after != before {
		r.Errorf("a check changed something:\n%s", differentLines(before, after))
	}
	for i := range plans {
		if plans[i].Empty() || plans[i].Unknown == "" && len(plans[i].Changes) == 0 {
			r.Errorf("%s: nothing to do in a situation that differs: %+v", r.Declared[i].Title, plans[i])
		}
		r.sameChanges(i, explained[i].Changes, plans[i].Changes, "what is explained, and planned")
		r.sameChanges(i, shallow[i].Changes, plans[i].Changes, "what a shallow check of something unknown plans, and a deep one")
	}
	return plans
}

// check checks, and that the answer has its form.
func (r *run) check(rs []host.Resource, depth host.Depth) []host.Plan {
	r.Helper()
	watched := make([][]host.Watch, len(rs))
	for i, res := range rs {
		watched[i] = res.Watches()
	}
	plans := r.Type.Check(r.Context(), rs, depth)
	if len(plans) != len(rs) {
		r.Fatalf("%d plans for %d resources", len(plans), len(rs))
	}
	for i, res := range rs {
		if now := res.Watches(); !slices.Equal(now, watched[i]) { // only Follow changes them, or nobody is told
			r.Errorf("%s: after a check it watches %v, before %v", r.Declared[i].Title, now, watched[i])
		}
	}
	for i := range plans {
		p := &plans[i]
		if p.Resource != rs[i] {
			r.Errorf("plan %d is of another resource", i)
		}
		if p.Err != nil && len(p.Changes) > 0 {
			r.Errorf("%s: a check that could not be made plans %v", r.Declared[i].Title, p.Changes)
		}
		if p.Err != nil {
			r.Fatalf("check %s: %v", r.Declared[i].Title, r.coded(p.Err))
		}
		if p.Recognised && (depth != host.Shallow || !p.Empty()) {
			r.Errorf("%s: recognised by a check of depth %d that plans %v", r.Declared[i].Title, depth, p.Changes)
		}
		r.see(p.Unknown)
		for _, c := range p.Changes {
			r.see(c.Field, c.From, c.To)
			if c.Text != nil {
				r.see(string(c.Text.From), string(c.Text.To))
			}
		}
	}
	return plans
}

// ended applies with a context that has ended.
func (r *run) ended(plans []host.Plan) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	before := r.Snapshot(r)
	for i, res := range r.applyAll(ctx, plans) {
		if res.Err == nil || res.Changed {
			r.Errorf("%s: applied although its context had ended: %+v", r.Declared[i].Title, res)
		}
		r.coded(res.Err)
	}
	if after := r.Snapshot(r); after != before {
		r.Errorf("an apply whose context had ended changed something:\n%s", differentLines(before, after))
	}
	for _, p := range r.Type.Check(ctx, resourcesOf(plans), host.Deep) {
		r.coded(p.Err) // an answer or an error, as the type likes
	}
}

func (r *run) originals(rs []host.Resource) [][]byte {
	r.Helper()
	originals := make([][]byte, len(rs))
	for i, res := range rs {
		var err error
		if originals[i], err = r.Type.Original(r.Context(), res); err != nil {
			r.Fatalf("original of %s: %v", r.Declared[i].Title, r.coded(err))
		}
	}
	return originals
}

// apply carries out plans, and compares what they say with what they did.
func (r *run) apply(plans []host.Plan, before []any) {
	r.Helper()
	for i, res := range r.applyAll(r.Context(), plans) {
		if res.Err != nil {
			r.Fatalf("apply %s: %v", r.Declared[i].Title, r.coded(res.Err))
		}
		if !res.Changed {
			r.Errorf("%s: applied %v and changed nothing", r.Declared[i].Title, plans[i].Changes)
		}
	}
	for i, after := range r.observe() {
		r.sameChanges(i, plans[i].Changes, r.Difference(i, before[i], after), "what was planned, and what was done")
	}
}

func (r *run) applyAll(ctx context.Context, plans []host.Plan) []host.Result {
	r.Helper()
	results := r.Type.Apply(ctx, plans)
	if len(results) != len(plans) {
		r.Fatalf("%d results for %d plans", len(results), len(plans))
	}
	for _, res := range results {
		r.see(res.Note)
	}
	return results
}

// inSync looks at what was just applied.
func (r *run) inSync(rs []host.Resource) {
	r.Helper()
	before := r.Snapshot(r)
	for _, depth := range []host.Depth{host.Shallow, host.Deep, host.Explain} {
		for i, p := range r.check(rs, depth) {
			if !p.Empty() {
				r.Errorf("%s: just applied, and a check of depth %d finds %v", r.Declared[i].Title, depth, p.Changes)
			}
			if r.Remembers && depth == host.Shallow && !p.Recognised {
				r.Errorf("%s: just applied, and not recognised", r.Declared[i].Title)
			}
		}
	}
	if after := r.Snapshot(r); after != before {
		r.Errorf("a check of what is as declared changed something:\n%s", differentLines(before, after))
	}
}

// remove removes all resources, last first, and then once more.
func (r *run) remove(rs []host.Resource, how declare.OnRemove, originals [][]byte, want []any) {
	r.Helper()
	for range 2 {
		for i, res := range slices.Backward(rs) {
			if err := r.Type.Remove(r.Context(), res, how, originals[i]); err != nil {
				r.Fatalf("remove (%s) %s: %v", how, r.Declared[i].Title, r.coded(err))
			}
		}
		for i, got := range r.observe() {
			if !reflect.DeepEqual(got, want[i]) {
				r.Errorf("%s after its removal (%s):\n got %+v\nwant %+v", r.Declared[i].Title, how, got, want[i])
			}
		}
	}
}

// disturbed applies plans that are void by then.
func (r *run) disturbed() {
	r.Helper()
	rs := r.bind()
	plans := r.check(rs, host.Deep)
	r.Disturb(r)
	before := r.Snapshot(r)
	for i, res := range r.applyAll(r.Context(), plans) {
		if !reason.Is(res.Err, reason.ConcurrentEdit) || res.Changed {
			r.Errorf("%s: changed since its check, and applying says %+v", r.Declared[i].Title, res)
		}
		r.coded(res.Err)
	}
	if after := r.Snapshot(r); after != before {
		r.Errorf("a void plan changed something:\n%s", differentLines(before, after))
	}
}

func (r *run) observe() []any {
	r.Helper()
	seen := make([]any, len(r.Declared))
	for i := range seen {
		seen[i] = r.Observe(r, i)
	}
	return seen
}

func (r *run) sameChanges(i int, got, want []host.Change, what string) {
	r.Helper()
	if got, want := plain(got), plain(want); !slices.Equal(got, want) {
		r.Errorf("%s: %s:\n%+v\n%+v", r.Declared[i].Title, what, got, want)
	}
}

// plain is changes without their texts, in an order.
func plain(changes []host.Change) []host.Change {
	out := slices.Clone(changes)
	for i := range out {
		out[i].Text = nil
	}
	slices.SortFunc(out, func(a, b host.Change) int { return cmp.Compare(a.Field, b.Field) })
	return out
}

func (r *run) see(texts ...string) { r.shown = append(r.shown, texts...) }

// coded checks that an error has a code, and notes what it shows. It returns the error.
func (r *run) coded(err error) error {
	r.Helper()
	if err == nil {
		return nil
	}
	var e *reason.Error
	if !errors.As(err, &e) {
		r.Errorf("an error without a code: %v", err)
		return err
	}
	if _, ok := reason.Lookup(e.Code); !ok || e.Code == reason.InternalFault || e.Doing == "" {
		r.Errorf("an error that says nothing: %+v", e)
	}
	r.see(e.Error(), e.Hint, e.Evidence, e.Holder)
	return err
}

func (r *run) tellsNoSecret() {
	r.Helper()
	for _, text := range r.shown {
		for _, secret := range r.Secrets {
			if strings.Contains(text, secret) {
				r.Errorf("a secret is shown: %q", text)
			}
		}
	}
}

func resourcesOf(plans []host.Plan) []host.Resource {
	rs := make([]host.Resource, len(plans))
	for i, p := range plans {
		rs[i] = p.Resource
	}
	return rs
}
