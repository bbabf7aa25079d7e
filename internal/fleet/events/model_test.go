package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// naive is the store and the books, kept the slow way.
type naive struct {
	bounds  *Bounds
	options Options
	now     time.Time
	objects map[ID]*Stored // what is stored
	arrived map[Key]int    // all that was not refused
	evicted map[Key]int    // of that, what went with its object
	writes  []time.Time
	made    int
}

func newNaive(t *rapid.T) *naive {
	options := Options{ObjectsMax: rapid.IntRange(1, 120).Draw(t, "objects"), WritesPerSecond: rapid.IntRange(1, 30).Draw(t, "rate")}
	b, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return &naive{bounds: b, options: options.withDefaults(), now: start, objects: map[ID]*Stored{}, arrived: map[Key]int{}, evicted: map[Key]int{}}
}

func (n *naive) write(d Decision, s Stored) {
	n.writes = append(n.writes, n.now)
	s.ID, s.Count, s.First, s.Last = d.ID, d.Count, d.First, d.Last
	n.objects[d.ID] = &s
}

func (n *naive) arrive(t *rapid.T) {
	n.made++
	e := Stored{ID: ID{"x", fmt.Sprint("e", n.made)}, Count: rapid.IntRange(0, 3).Draw(t, "count"),
		Key: Key{Kind: "Node", Name: fmt.Sprint(rapid.IntRange(0, 150).Draw(t, "name")), Reason: "Broken"}}
	taken := rapid.IntRange(0, 9).Draw(t, "name is taken") == 0 && n.objects[ID{"x", "e1"}] != nil
	if taken {
		e.ID.Name = "e1"
	}
	d := n.bounds.Admit(n.now, e)
	if d.Do == Create && taken {
		return // the store refuses it
	}
	switch d.Do {
	case Refuse:
		if d.After <= 0 || d.Why == "" {
			t.Fatalf("refused without a word: %+v", d)
		}
		return
	case Create:
		if n.objects[d.ID] != nil || d.ID != e.ID {
			t.Fatalf("%v is made twice or under another name", d.ID)
		}
		n.write(d, e)
	case Merge:
		n.mustBeOf(t, d, e.Key)
		n.write(d, e)
	case Defer:
		n.mustBeOf(t, d, e.Key)
	default:
		t.Fatalf("decision %+v", d)
	}
	n.arrived[e.Key] += max(1, e.Count)
}

func (n *naive) mustBeOf(t *rapid.T, d Decision, k Key) {
	if o := n.objects[d.ID]; o == nil || o.Key != k {
		t.Fatalf("%v goes into %v, which is %+v", k, d.ID, o)
	}
}

// writeDue writes what is due, as the controller does; some of it does not work.
func (n *naive) writeDue(t *rapid.T, reliable bool) {
	for _, d := range n.bounds.Due(n.now) {
		if !reliable && rapid.IntRange(0, 3).Draw(t, "broken") == 0 {
			n.bounds.Defer(d.ID)
			continue
		}
		if ok, _ := n.bounds.Spend(n.now); !ok {
			t.Fatal("what is due is more than what may be written")
		}
		n.write(d, *n.objects[d.ID])
	}
}

func (n *naive) evict(t *rapid.T) {
	before := n.bounds.Evicted()
	gone := n.bounds.Evict()
	after := n.bounds.Evicted()
	if after.Count != before.Count+uint64(len(gone)) {
		t.Fatalf("%d evicted, counted are %d and before %d", len(gone), after.Count, before.Count)
	}
	for _, s := range gone {
		if s.Last.Before(after.From) || s.Last.After(after.To) {
			t.Fatalf("%+v is outside of %+v", s, after)
		}
		n.evicted[s.Key] += s.Count
		delete(n.objects, s.ID)
		n.bounds.Forget(s.ID)
	}
	for _, s := range gone {
		for _, o := range n.objects {
			if o.Last.Before(s.Last) && !n.isDue(o.ID) {
				t.Fatalf("%v of %v was evicted, %v of %v stays", s.ID, s.Last, o.ID, o.Last)
			}
		}
	}
}

func (n *naive) isDue(id ID) bool { e := n.bounds.byID[id]; return e != nil && e.due }

func TestBoundsAgainstTheNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNaive(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			default:
				n.arrive(t)
			case 7:
				n.now = n.now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			case 8:
				n.writeDue(t, false)
			case 9:
				n.evict(t)
			}
			if len(n.objects) > n.options.ObjectsMax || n.bounds.Len() != len(n.objects) {
				t.Fatalf("%d objects, counted are %d, the limit is %d", len(n.objects), n.bounds.Len(), n.options.ObjectsMax)
			}
		}
		for range 1000 {
			n.now = n.now.Add(time.Second)
			n.writeDue(t, true)
		}
		counts := map[Key]int{}
		for _, o := range n.objects {
			counts[o.Key] += o.Count
		}
		for k, want := range n.arrived {
			if got := counts[k] + n.evicted[k]; got != want {
				t.Fatalf("of %v there are %d, %d arrived", k, got, want)
			}
		}
		n.checkRate(t)
	})
}

// checkRate is invariant 1 for every stretch of time.
func (n *naive) checkRate(t *rapid.T) {
	for i, from := range n.writes {
		for j := i; j < len(n.writes); j++ {
			span := n.writes[j].Sub(from).Seconds()
			if most := float64(n.options.Burst) + span*float64(n.options.WritesPerSecond); float64(j-i+1) > most+1e-6 {
				t.Fatalf("%d writes in %.1f s, at most %.0f", j-i+1, span, most)
			}
		}
	}
}

func TestObserveAndSync(t *testing.T) {
	b, err := New(Options{ObjectsMax: 100})
	if err != nil {
		t.Fatal(err)
	}
	key := Key{Kind: "Node", Name: "a", Reason: "Broken"}
	older := Stored{ID{"x", "older"}, key, 3, start, start}
	newer := Stored{ID{"x", "newer"}, key, 5, start, start.Add(time.Minute)}
	b.Observe(start.Add(time.Hour), newer)
	b.Observe(start.Add(time.Hour), older)
	// A restarted server counts on where it stood, in the newest object.
	d := b.Admit(start.Add(time.Hour), Stored{ID: ID{"x", "other"}, Key: key})
	if d.Do != Merge || d.ID != newer.ID || d.Count != 6 || !d.First.Equal(start) {
		t.Errorf("decided %+v", d)
	}
	b.Sync(start.Add(time.Hour), []Stored{older})
	if b.Len() != 1 {
		t.Errorf("%d objects after a listing of one", b.Len())
	}
	b.Forget(older.ID)
	b.Forget(older.ID)
	if d := b.Admit(start.Add(2*time.Hour), Stored{ID: ID{"x", "again"}, Key: key}); d.Do != Create {
		t.Errorf("after all are gone: %+v", d)
	}
}

// A listing that began before an object was stored does not make the next event of its key another object.
func TestSyncAfterAdmit(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := Key{Kind: "Node", Name: "a", Reason: "Broken"}
	first := b.Admit(start, Stored{ID: ID{"x", "first"}, Key: key})
	b.Sync(start.Add(time.Second), nil)
	if d := b.Admit(start.Add(2*time.Second), Stored{ID: ID{"x", "second"}, Key: key}); d.Do != Merge || d.ID != first.ID || d.Count != 2 {
		t.Errorf("after a listing without it: %+v", d)
	}
	b.Observe(start.Add(3*time.Second), Stored{ID: first.ID, Key: key, Count: 1, First: start, Last: start})
	b.Sync(start.Add(4*time.Second), nil)
	if n := b.Len(); n != 0 {
		t.Errorf("%d objects, after one that was seen has gone", n)
	}
	b.Admit(start.Add(5*time.Second), Stored{ID: ID{"x", "third"}, Key: key})
	b.Sync(start.Add(5*time.Second+unseenMax), nil)
	if n := b.Len(); n != 0 {
		t.Errorf("%d objects, a minute after one was made that nobody has seen", n)
	}
}

// What other servers have stored may be more than this one admits: it is evicted too.
func TestEvictBringsDownWhatOthersMade(t *testing.T) {
	b, err := New(Options{ObjectsMax: 100})
	if err != nil {
		t.Fatal(err)
	}
	var all []Stored
	for i := range 150 {
		all = append(all, Stored{ID{"x", fmt.Sprintf("%03d", i)}, Key{Name: fmt.Sprint(i)}, 1, start, start.Add(time.Duration(i) * time.Second)})
	}
	slices.Reverse(all)
	b.Sync(start.Add(time.Hour), all)
	gone := b.Evict()
	if len(gone) != 54 || gone[0].ID.Name != "000" || gone[53].ID.Name != "053" {
		t.Errorf("%d evicted, %v to %v", len(gone), gone[0].ID, gone[len(gone)-1].ID)
	}
	want := Evicted{54, start, start.Add(53 * time.Second)}
	if got := b.Evicted(); got != want {
		t.Errorf("evicted %+v, want %+v", got, want)
	}
	if again := b.Evict(); len(again) > 0 {
		t.Errorf("%d are named again", len(again))
	}
}

// An object that says that it is of the future is evicted in its turn, and counted on like any other.
func TestTimesOfTheFuture(t *testing.T) {
	b, err := New(Options{ObjectsMax: 100})
	if err != nil {
		t.Fatal(err)
	}
	key := Key{Kind: "Node", Name: "a", Reason: "Broken"}
	b.Observe(start, Stored{ID{"x", "future"}, key, 1, start, start.AddDate(100, 0, 0)})
	if d := b.Admit(start.Add(time.Minute), Stored{ID: ID{"x", "other"}, Key: key}); d.Do != Merge || d.Count != 2 {
		t.Errorf("counted into it as %+v", d)
	}
	var all []Stored
	for i := range 100 {
		all = append(all, Stored{ID{"x", fmt.Sprintf("%03d", i)}, Key{Name: fmt.Sprint(i)}, 1, start, start.Add(time.Hour)})
	}
	b.Sync(start.Add(time.Hour), append(all, Stored{ID{"x", "future"}, key, 1, start, start.AddDate(100, 0, 0)}))
	if gone := b.Evict(); len(gone) == 0 || gone[0].ID.Name != "future" {
		t.Errorf("%d evicted, the first is %+v", len(gone), gone)
	}
}

// A Create under the name of another object is not New: when it is refused, the other one is not to be forgotten.
func TestCreateUnderATakenName(t *testing.T) {
	b, err := New(Options{ObjectsMax: 100})
	if err != nil {
		t.Fatal(err)
	}
	id := ID{"x", "name"}
	if d := b.Admit(start, Stored{ID: id, Key: Key{Name: "a"}}); d.Do != Create || !d.New {
		t.Errorf("the first: %+v", d)
	}
	if d := b.Admit(start, Stored{ID: id, Key: Key{Name: "b"}}); d.Do != Create || d.New {
		t.Errorf("another of that name: %+v", d)
	}
	if b.Len() != 1 {
		t.Errorf("%d objects", b.Len())
	}
}

// One thing that happens all the time takes one write a second, not all of them.
func TestOneNoisyObjectLeavesRoom(t *testing.T) {
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	noisy := Key{Kind: "Node", Name: "noisy", Reason: "Broken"}
	for i := range 5000 {
		d := b.Admit(start.Add(time.Duration(i)*time.Millisecond/5), Stored{ID: ID{"x", fmt.Sprint(i)}, Key: noisy})
		if want := Defer; i > 0 && d.Do != want {
			t.Fatalf("event %d: %+v", i, d)
		}
	}
	if d := b.Admit(start.Add(time.Second), Stored{ID: ID{"x", "quiet"}, Key: Key{Name: "quiet"}}); d.Do != Create {
		t.Errorf("another object's event: %+v", d)
	}
	due := b.Due(start.Add(time.Second))
	if len(due) != 1 || due[0].Count != 5000 {
		t.Errorf("due %+v", due)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{ObjectsMax: -1}); err == nil {
		t.Error("-1 objects are accepted")
	}
}
