package subscribe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/disk/watch"
	"tako.dev/tako/internal/host"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/systemd"
)

// member is a subscriber as a test writes it down.
type member struct {
	key     converge.Key
	watches []host.Watch
}

func (m *member) Key() converge.Key     { return m.key }
func (m *member) Watches() []host.Watch { return m.watches }

// on makes a member with watches: "path:/a", "entries:/d", "unit:x.service".
func on(key string, watches ...string) Subscriber {
	kinds := map[string]host.WatchKind{"path": host.WatchPath, "names": host.WatchNames, "entries": host.WatchEntries, "unit": host.WatchUnit, "polled": host.WatchPolled}
	m := &member{key: converge.Key(key)}
	for _, w := range watches {
		kind, name, _ := strings.Cut(w, ":")
		m.watches = append(m.watches, host.Watch{Kind: kinds[kind], Name: name})
	}
	return m
}

// bus is a system bus that says what the test has it say.
type bus struct {
	watched []string
	says    chan systemd.Event
	fails   error
}

func (b *bus) Watch(_ context.Context, units []string) error {
	b.watched = units
	return b.fails
}

func (b *bus) Run(ctx context.Context, sink func(systemd.Event)) error {
	for {
		select {
		case ev := <-b.says:
			sink(ev)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func subscribed(t testing.TB, root string, units Units) *Subscriptions {
	t.Helper()
	r, err := disk.OpenRoot(root)
	must(t, err)
	s, err := New(Options{Root: r, Bus: units, Lasting: true})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(s.Close(), r.Close())) })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen runs the subscriptions for the time of a test. A trouble fails it.
func listen(t *testing.T, s *Subscriptions) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func(what string, err error) { t.Errorf("%s: %v", what, err) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// hear takes news until enough says that what was waited for is there, and returns the vertices that were touched by all.
func hear(t *testing.T, s *Subscriptions, enough func(News, []converge.ID) bool) []converge.ID {
	t.Helper()
	deadline := time.After(time.Minute)
	var touched []converge.ID
	for {
		select {
		case <-s.Wake():
			n := s.Take()
			touched = append(touched, s.Touched(n)...)
			if enough(n, touched) {
				slices.Sort(touched)
				return slices.Compact(touched)
			}
		case <-deadline:
			t.Fatalf("not heard of; touched %v", touched)
		}
	}
}

func TestFilesAndUnitsFindTheirVertices(t *testing.T) {
	dir := t.TempDir()
	b := &bus{says: make(chan systemd.Event)}
	s := subscribed(t, "/", b)
	members := []Subscriber{
		on("motd", "path:"+dir+"/motd"), on("lists", "entries:"+dir+"/lists"), on("web", "unit:web.service", "path:"+dir+"/web.conf"),
		on("web too", "unit:web.service"), on("nothing"),
	}
	must(t, s.Swap(t.Context(), members))
	if !slices.Equal(b.watched, []string{"web.service"}) {
		t.Errorf("the bus watches %v", b.watched)
	}
	listen(t, s)
	is := func(want ...converge.ID) func(News, []converge.ID) bool {
		return func(_ News, got []converge.ID) bool {
			return !slices.ContainsFunc(want, func(id converge.ID) bool { return !slices.Contains(got, id) })
		}
	}
	// One write makes several events, and the last of them may be heard in the next round: what no round asked for is a mistake.
	var due []converge.ID
	for _, c := range []struct {
		name string
		do   func()
		want []converge.ID
	}{
		{"a file", func() { must(t, os.WriteFile(dir+"/motd", nil, 0o600)) }, []converge.ID{0}},
		{"an entry of a directory", func() { must(t, os.Mkdir(dir+"/lists", 0o700)); must(t, os.WriteFile(dir+"/lists/x", nil, 0o600)) }, []converge.ID{1}},
		{"a file of two kinds of watches", func() { must(t, os.WriteFile(dir+"/web.conf", nil, 0o600)) }, []converge.ID{2}},
		{"a unit of two", func() { b.says <- systemd.Event{Kind: systemd.UnitChanged, Unit: "web.service"} }, []converge.ID{2, 3}},
		{"a bus that was away", func() { b.says <- systemd.Event{Kind: systemd.UnitChanged + 1} }, []converge.ID{2, 3}},
	} {
		c.do()
		due = append(due, c.want...)
		got := hear(t, s, is(c.want...))
		if slices.ContainsFunc(got, func(id converge.ID) bool { return !slices.Contains(due, id) }) {
			t.Errorf("%s: touched %v, want %v", c.name, got, c.want)
		}
	}
	s.filesChanged([]watch.Event{{Overflow: true}})
	if n := s.Take(); !n.Everything || !n.Declarations || len(s.Touched(n)) != len(members) {
		t.Errorf("lost events: %+v, touched %v", n, s.Touched(n))
	}
}

// TestListsOfTheKernel: who waits for a list of the kernel's is told of it, and who waits for what cannot be waited for is looked after slowly.
func TestListsOfTheKernel(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, nil, 0o600))
	s := subscribed(t, "/", nil)
	must(t, s.Swap(t.Context(), []Subscriber{on("other"), on("mount", "polled:/proc/self/mountinfo"), on("deaf", "polled:"+plain)}))
	if e := s.Unwatched(); e == nil || !s.IsSlow(2) || s.IsSlow(1) || s.IsSlow(3) || !slices.Equal(s.Touched(s.Unheard()), []converge.ID{2}) {
		t.Errorf("unwatched: %v, slow: %v %v, unheard: %v", e, s.IsSlow(2), s.IsSlow(1), s.Touched(s.Unheard()))
	}
	listen(t, s)
	hear(t, s, func(n News, got []converge.ID) bool {
		if n.replaced {
			t.Error("a mount has the writers of all directories looked for again")
		}
		return slices.Equal(got, []converge.ID{1})
	})
	must(t, s.Swap(t.Context(), nil))
	if e := s.Unwatched(); e != nil {
		t.Errorf("unwatched in the end: %v", e)
	}
}

func TestDeclarationsAreHeardOf(t *testing.T) {
	base := t.TempDir()
	must(t, os.MkdirAll(base+"/box", 0o755))
	must(t, os.MkdirAll(base+"/site/web", 0o755))
	for name, root := range map[string]string{"on the host": "/", "in a sandbox": base + "/box"} {
		t.Run(name, func(t *testing.T) {
			s := subscribed(t, root, nil)
			listen(t, s)
			s.WatchDeclarations([]string{base + "/site", base + "/one.yaml"})
			for _, p := range []string{"site/a.yaml", "site/web/b.yaml", "one.yaml"} {
				must(t, os.WriteFile(filepath.Join(base, p), []byte(name), 0o600))
				hear(t, s, func(n News, _ []converge.ID) bool { return n.Declarations })
			}
		})
	}
	r, err := disk.OpenRoot("/")
	must(t, err)
	defer r.Close()
	brief, err := New(Options{Root: r})
	must(t, err)
	defer brief.Close()
	brief.WatchDeclarations([]string{base + "/site"})
	if watches, _ := brief.Counts(); watches != 0 {
		t.Errorf("a single run watches %d directories of declarations", watches)
	}
}

// TestSwapLosesNothingAndKeepsNothing: over any sequence of graphs, what is told before or after a swap finds the vertex that
// the key has then and no other, and in the end nothing is watched that nobody wants.
func TestSwapLosesNothingAndKeepsNothing(t *testing.T) {
	base := t.TempDir()
	r, err := disk.OpenRoot("/")
	must(t, err)
	defer r.Close()
	watches := []string{"unit:a.service", "unit:b.service"}
	for _, d := range []string{"x", "y"} {
		must(t, os.Mkdir(filepath.Join(base, d), 0o755))
		watches = append(watches, "entries:"+filepath.Join(base, d), "path:"+filepath.Join(base, d, "f"), "path:"+filepath.Join(base, d, "g"))
	}
	rapid.Check(t, func(rt *rapid.T) {
		b := &bus{}
		s, err := New(Options{Root: r, Bus: b, Lasting: true})
		must(t, err)
		defer s.Close()
		for range rapid.IntRange(1, 5).Draw(rt, "swaps") {
			told := rapid.SampledFrom([]string{"k0", "k1", "k2", "k3"}).Draw(rt, "told")
			at := slices.IndexFunc(s.members, func(m Subscriber) bool { return m.Key() == converge.Key(told) })
			if at >= 0 {
				s.filesChanged([]watch.Event{{IDs: []watch.ID{s.slots[at]}, Name: "f"}})
			}
			members := graph(rt, watches)
			must(t, s.Swap(context.Background(), members))
			check(rt, s, b, members, told, at >= 0)
		}
		must(t, s.Swap(context.Background(), nil))
		if n, _ := s.Counts(); n != 0 || len(s.dirs) != 0 || len(s.slots) != 0 || len(b.watched) != 0 {
			rt.Fatalf("left: %d watches, writers of %v, slots %v, units %v", n, s.dirs, s.slots, b.watched)
		}
		if len(s.bySlot) > 1+4 {
			rt.Fatalf("%d slots for at most four subscribers at a time", len(s.bySlot))
		}
	})
}

// graph draws members with different keys and any watches.
func graph(rt *rapid.T, watches []string) []Subscriber {
	var members []Subscriber
	for _, key := range rapid.Permutation([]string{"k0", "k1", "k2", "k3"}).Draw(rt, "order")[:rapid.IntRange(0, 4).Draw(rt, "size")] {
		members = append(members, on(key, rapid.SliceOfNDistinct(rapid.SampledFrom(watches), 0, 3, rapid.ID[string]).Draw(rt, "watches")...))
	}
	return members
}

// check compares the subscriptions after a swap with what a naive reader of the members would say.
func check(rt *rapid.T, s *Subscriptions, b *bus, members []Subscriber, told string, was bool) {
	var want []converge.ID
	units, dirs := map[string]bool{}, map[string]int{}
	slots := map[watch.ID]bool{}
	for i, m := range members {
		if was && m.Key() == converge.Key(told) {
			want = []converge.ID{converge.ID(i)}
		}
		for _, w := range m.Watches() {
			switch w.Kind {
			case host.WatchUnit:
				units[w.Name] = true
			case host.WatchPath:
				dirs[filepath.Dir(w.Name)]++
			}
		}
		slots[s.slots[i]] = true
		for _, w := range m.Watches() {
			if w.Kind == host.WatchPath && !s.files.Watches(filepath.Dir(w.Name), filepath.Base(w.Name)) {
				rt.Fatalf("%s is not watched", w.Name)
			}
		}
	}
	if got := s.Touched(s.Take()); !slices.Equal(got, want) {
		rt.Fatalf("%s was told and touched %v, want %v", told, got, want)
	}
	if !slices.Equal(b.watched, slices.Sorted(maps.Keys(units))) {
		rt.Fatalf("the bus watches %v, want %v", b.watched, units)
	}
	if s.writers != nil && !maps.Equal(s.dirs, dirs) {
		rt.Fatalf("writers are remembered in %v, want %v", s.dirs, dirs)
	}
	if len(slots) != len(members) || slots[declarationSlot] {
		rt.Fatalf("%d members share slots %v", len(members), s.slots)
	}
}

func TestAddIsForMembersOnly(t *testing.T) {
	dir := t.TempDir()
	s := subscribed(t, "/", nil)
	late := on("late").(*member)
	must(t, s.Swap(t.Context(), []Subscriber{late}))
	late.watches = on("", "path:"+dir+"/f").Watches()
	stranger := on("late", "path:"+dir+"/g")
	must(t, s.Add(t.Context(), 0, stranger))
	must(t, s.Add(t.Context(), 1, on("gone", "path:"+dir+"/h")))
	if n, _ := s.Counts(); n != 0 {
		t.Errorf("%d directories are watched for strangers", n)
	}
	must(t, s.Add(t.Context(), 0, late))
	if !s.files.Watches(dir, "f") || s.files.Watches(dir, "g") {
		t.Error("what could be bound late is not watched, or a stranger is")
	}
	must(t, s.Swap(t.Context(), nil))
	if n, _ := s.Counts(); n != 0 {
		t.Errorf("%d directories are still watched", n)
	}
}

// TestBusThatFails: the files are watched all the same, and a failing source is told without ending the others.
func TestBusThatFails(t *testing.T) {
	dir := t.TempDir()
	away := &reason.Error{Code: reason.SystemCallFailed, Doing: "ask the bus"}
	s := subscribed(t, "/", &bus{fails: away})
	if err := s.Swap(t.Context(), []Subscriber{on("web", "unit:web.service", "path:"+dir+"/f")}); !errors.Is(err, away) {
		t.Errorf("swap: %v", err)
	}
	s.bus = broken{away}
	ctx, cancel := context.WithCancel(t.Context())
	troubles := make(chan string, 4)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, func(what string, err error) { troubles <- fmt.Sprint(what, " ", errors.Is(err, away)) })
	}()
	defer func() { cancel(); <-ended }()
	if got := <-troubles; got != "watch units true" {
		t.Errorf("told of %q", got)
	}
	must(t, os.WriteFile(dir+"/f", nil, 0o600))
	hear(t, s, func(_ News, ids []converge.ID) bool { return slices.Contains(ids, 0) })
}

// broken is a bus that ends at once.
type broken struct{ err error }

func (b broken) Watch(context.Context, []string) error          { return b.err }
func (b broken) Run(context.Context, func(systemd.Event)) error { return b.err }

// A process that has ended leaves its number: of the user nothing is known then, and nothing is said.
func TestWriterText(t *testing.T) {
	if got, want := writerText(watch.Writer{PID: 7, UID: 1000, Comm: "vim"}), "uid 1000, pid 7 (vim)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := writerText(watch.Writer{PID: 7}), "pid 7, which had ended at once"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSwapOfALargeTree: a graph is taken over in a moment although one of its members is told of by thousands of watches.
func TestSwapOfALargeTree(t *testing.T) {
	s := subscribed(t, t.TempDir(), nil)
	watches := make([]string, 20_000)
	for i := range watches {
		watches[i] = fmt.Sprintf("names:/srv/tree/of/some/depth/%05d", i)
	}
	tree := on("tree", watches...)
	must(t, s.Swap(t.Context(), []Subscriber{tree}))
	best := time.Hour // of several: a machine that is busy may stand still in one
	for i := range 5 {
		began := time.Now()
		must(t, s.Swap(t.Context(), []Subscriber{tree, on(fmt.Sprint("other ", i))}))
		best = min(best, time.Since(began))
	}
	if best > 5*time.Second { // it takes milliseconds where nothing else runs
		t.Errorf("it took %v", best)
	}
}
