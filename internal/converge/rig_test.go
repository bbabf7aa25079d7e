package converge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/reason"
)

// What operations come to, in tests.
var (
	inSync  = Result{InSync: true}
	differs = Result{}
	changed = Result{Changed: true}
	done    = Result{}
	full    = Result{Err: &reason.Error{Code: reason.DiskFull, Doing: "try"}}
	denied  = Result{Err: &reason.Error{Code: reason.OwnerNeedsRoot, Doing: "try"}} // never tried again by itself
	raced   = Result{Err: &reason.Error{Code: reason.ConcurrentEdit, Doing: "try"}} // tried again soon
)

func locked(after time.Duration) Result {
	return Result{Err: &reason.Error{Code: reason.PackageLock, Doing: "try", After: after}}
}

// draw makes a graph of vertices "a b c" and edges "a>b" (b requires a), "a!b" (a notifies b), "a~b" (automatic), "a/b" (b is wanted while
// a has failed) and "a,b" (automatic, and orders only). A vertex
// may name its lane, "a@slow", and where nothing is wanted of it, "-a". All have the digest that is given.
func draw(t testing.TB, desire byte, vertices string, edges ...string) *Graph {
	t.Helper()
	var vs []Vertex
	ids := map[string]ID{}
	for _, word := range strings.Fields(vertices) {
		name, absent := strings.CutPrefix(word, "-")
		name, lane, _ := strings.Cut(name, "@")
		ids[name] = ID(len(vs))
		vs = append(vs, Vertex{Key: Key(name), Title: name, Lane: lane, Digest: Digest{desire}, NotApplicable: absent})
	}
	var es []Edge
	for _, e := range edges {
		at := strings.IndexAny(e, ">!~/,")
		es = append(es, Edge{From: ids[e[:at]], To: ids[e[at+1:]], Kind: EdgeKind(strings.IndexByte(">!~/,", e[at]))})
	}
	g, cycles := NewGraph(vs, es)
	if cycles != nil {
		t.Fatalf("cycles: %v", cycles)
	}
	return g
}

// rig drives an engine by hand: a test says what each operation in flight comes to.
type rig struct {
	t       testing.TB
	e       *Engine
	now     time.Time
	flying  []named
	records []Record
	reports []Report
	wake    time.Duration
	ended   int
}

// opsMax is more than any test has: one that goes on is an engine that does not come to rest.
const opsMax = 10_000

// named is an operation in flight with its name, "apply a b", which stays when a Swap gives other IDs.
type named struct {
	Op
	name string
}

// wide is a lane without bounds that matter to a test of a few vertices.
var wide = Lane{Parallel: 100, Batch: 1}

func newRig(t testing.TB, g *Graph, o Options, from Resume) *rig {
	t.Helper()
	if o.Lanes == nil {
		o.Lanes = []Lane{wide}
	}
	e, err := New(g, o, rand.New(rand.NewPCG(1, 2)), from)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, e: e, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	r.step(Tick{})
	return r
}

func (r *rig) step(ev Event) { r.take(r.e.Step(r.now, ev)) }

func (r *rig) take(out Effects) {
	for _, op := range out.Start {
		words := []string{op.Verb.String()}
		for _, id := range op.IDs {
			words = append(words, string(r.e.Graph().Vertices[id].Key))
		}
		r.flying = append(r.flying, named{op, strings.Join(words, " ")})
	}
	r.records = append(r.records, out.Persist...)
	r.reports = append(r.reports, out.Reports...)
	r.wake = out.Wake
}

func (r *rig) swap(g *Graph) {
	r.t.Helper()
	out, err := r.e.Swap(r.now, g)
	if err != nil {
		r.t.Fatal(err)
	}
	r.take(out)
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.step(Tick{})
}

// wait lets time pass until the engine asked to be woken, and returns how long that was.
func (r *rig) wait() time.Duration {
	r.t.Helper()
	if r.wake == 0 {
		r.t.Fatal("nothing waits")
	}
	d := r.wake
	r.pass(d)
	return d
}

func (r *rig) id(name string) ID {
	r.t.Helper()
	id := r.e.Graph().ID(Key(name))
	if id == None {
		r.t.Fatalf("no vertex %s", name)
	}
	return id
}

func (r *rig) touch(names ...string) {
	r.t.Helper()
	var ids []ID
	for _, n := range names {
		ids = append(ids, r.id(n))
	}
	r.step(Touched{IDs: ids})
}

// expect says which operations are in flight, exactly.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	var got []string
	for _, op := range r.flying {
		got = append(got, op.name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Fatalf("in flight: %q, want %q", got, want)
	}
}

// end reports the operation in flight that has the name, with one result for all its vertices or one for each.
func (r *rig) end(name string, results ...Result) {
	r.t.Helper()
	i := slices.IndexFunc(r.flying, func(op named) bool { return op.name == name })
	if i < 0 {
		r.expect(name)
	}
	r.endOp(i, results...)
}

func (r *rig) endOp(i int, results ...Result) {
	r.t.Helper()
	if r.ended++; r.ended > opsMax {
		r.t.Fatal("does not come to rest")
	}
	op := r.flying[i]
	r.flying = slices.Delete(r.flying, i, i+1)
	for len(results) < len(op.IDs) {
		results = append(results, results[0])
	}
	r.step(Done{Token: op.Token, Results: results})
}

// settle ends everything well: what is checked is in sync.
func (r *rig) settle() {
	for len(r.flying) > 0 {
		r.endOp(0, inSync)
	}
}

// is says what is known of a vertex: "kept", "deferred: rate", "blocked by a".
func (r *rig) is(name, want string) {
	r.t.Helper()
	st := r.e.Status(r.id(name))
	got := st.Outcome.String()
	if st.Detail != "" {
		got += ": " + string(st.Detail)
	}
	if st.BlockedBy != None {
		got += " by " + string(r.e.Graph().Vertices[st.BlockedBy].Key)
	}
	if got != want {
		r.t.Errorf("%s is %q, want %q", name, got, want)
	}
}

// rests says that nothing is in flight, due or waiting.
func (r *rig) rests() {
	r.t.Helper()
	r.expect()
	if r.wake != 0 || !r.e.Quiet() {
		r.t.Errorf("wakes after %v", r.wake)
	}
}

// pending is what is durable of notifications: "a!b" for each.
func (r *rig) pending() []string {
	open := map[uint64]string{}
	for _, rec := range r.records {
		switch rec.Kind {
		case NotificationAdded:
			open[rec.Seq] = fmt.Sprintf("%s!%s", rec.Source, rec.Target)
		case NotificationCleared:
			delete(open, rec.Seq)
		case BudgetSpent, BudgetCleared:
		}
	}
	var all []string
	for _, n := range open {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func (r *rig) owes(want ...string) {
	r.t.Helper()
	if got := r.pending(); !slices.Equal(got, want) {
		r.t.Errorf("durable notifications: %q, want %q", got, want)
	}
}

// left is what another process finds of this one.
func (r *rig) left(converged ...string) Resume {
	from := Resume{Converged: map[Key]Digest{}, Budgets: map[Key]Budget{}}
	for _, name := range converged {
		from.Converged[Key(name)] = r.e.Graph().Vertices[r.id(name)].Digest
	}
	pending := map[uint64]Pending{}
	for _, rec := range r.records {
		switch rec.Kind {
		case NotificationAdded:
			pending[rec.Seq] = Pending{Seq: rec.Seq, Target: rec.Target, Source: rec.Source}
		case NotificationCleared:
			delete(pending, rec.Seq)
		case BudgetSpent:
			from.Budgets[rec.Target] = rec.Budget
		case BudgetCleared:
			delete(from.Budgets, rec.Target)
		}
	}
	for _, p := range pending {
		from.Pending = append(from.Pending, p)
	}
	return from
}
