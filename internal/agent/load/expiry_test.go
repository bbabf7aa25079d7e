package load

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// aged is a proof of so long ago.
func aged(age time.Duration) catalog.Proof {
	issued := time.Unix(1_800_000_000, 0)
	return catalog.Proof{Issued: issued, Now: issued.Add(age)}
}

func lasting(name, ttl string, how declare.OnRemove) declare.Resource {
	r := plainFile(name)
	r.TTL, r.OnRemove = ttl, how
	return r
}

// textsOf is what is active: claim, config, by claim.
func textsOf(t testing.TB, st *store.Store) string {
	t.Helper()
	var list []string
	for ref, err := range st.Active().Refs() {
		must(t, err)
		list = append(list, ref.Claim.ID+" "+ref.Config)
	}
	return strings.Join(list, ", ")
}

// TestExpiredLeaves: what has expired is journalled before it is active no more, what keeps is not, what was below it takes its place, all of that under
// the root that it is of; and with a later proof it is the active state again as it was.
func TestExpiredLeaves(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	upper := layer(t, "NodeConfig/a", 2, nil, lasting("a", "6h", declare.OnRemoveDelete), lasting("b", "3h", ""), plainFile("d"))
	below := plainFile("a")
	below.File.Content = "from below"
	layers := []catalog.DecodedLayer{upper, layer(t, "NodeConfig/b", 1, nil, below, lasting("c", "6h", declare.OnRemoveDelete))}
	at := func(age time.Duration) *State {
		d, err := Layers(catalog.Digest{1}, layers, aged(age), st, lookup, one)
		must(t, err)
		must(t, d.Commit(st))
		st = reopen(t, st, dir)
		return d
	}
	whole := "/srv/a NodeConfig/a, /srv/b NodeConfig/a, /srv/c NodeConfig/b, /srv/d NodeConfig/a"
	at(0)
	want(t, "at first there", textsOf(t, st), whole)
	if d := at(3 * time.Hour); d.Expiry.Count != 1 || len(d.Removals) > 0 {
		t.Errorf("after 3h %d have expired, and %d are to be undone", d.Expiry.Count, len(d.Removals))
	}
	want(t, "after 3h there", textsOf(t, st), "/srv/a NodeConfig/a, /srv/c NodeConfig/b, /srv/d NodeConfig/a")
	d := at(6 * time.Hour)
	want(t, "after 6h there", textsOf(t, st), "/srv/a NodeConfig/b, /srv/d NodeConfig/a")
	want(t, "after 6h to be undone", listed(d.Removals), "/srv/c delete")
	if st.Active().Root() != (converge.Digest{1}) {
		t.Error("the root is another one")
	}
	var claims []string
	for c := range d.Claims {
		claims = append(claims, c.ID)
	}
	slices.Sort(claims)
	want(t, "what is no deletion", strings.Join(slices.Compact(claims), " "), "/srv/a /srv/b /srv/c /srv/d")
	d = at(time.Hour)
	want(t, "when the servers are heard there", textsOf(t, st), whole)
	if left, err := st.Removals(); err != nil || len(left) > 0 || d.Expiry.Count > 0 {
		t.Errorf("there is still %v to be undone, %d have expired, %v", left, d.Expiry.Count, err)
	}
}

// TestExpiredTakesTheSamePlace: of another state that has as many entries the active one is not taken for it.
func TestExpiredTakesTheSamePlace(t *testing.T) {
	st := open(t, t.TempDir())
	below := plainFile("a")
	below.File.Content = "from below"
	layers := []catalog.DecodedLayer{layer(t, "NodeConfig/a", 2, nil, lasting("a", "6h", "")), layer(t, "NodeConfig/b", 1, nil, below)}
	for _, step := range []struct {
		age  time.Duration
		want string
	}{{0, "/srv/a NodeConfig/a"}, {6 * time.Hour, "/srv/a NodeConfig/b"}, {0, "/srv/a NodeConfig/a"}} {
		d, err := Layers(catalog.Digest{1}, layers, aged(step.age), st, lookup, one)
		must(t, err)
		must(t, d.Commit(st))
		want(t, fmt.Sprint("after ", step.age), textsOf(t, st), step.want)
		if !d.Active(st) {
			t.Errorf("after %s what was committed is not the active state", step.age)
		}
	}
}

// TestExpiredWithoutItsLayers: what has expired leaves also where the layers are lost, and what was left out before is known to be.
func TestExpiredWithoutItsLayers(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	takes(t, st, 1, nil, layer(t, "NodeConfig/a", 1, nil, lasting("a", "6h", declare.OnRemoveDelete), lasting("b", "8h", declare.OnRemoveDelete), plainFile("c")))
	whole, err := LastGoodAt(st, aged(time.Hour), lookup, one)
	must(t, err)
	if whole.Expiry.Stands || whole.Expiry.Count > 0 || !whole.Active(st) {
		t.Errorf("nothing has expired, and it is told %+v", whole.Expiry)
	}
	d, err := LastGoodAt(st, aged(6*time.Hour), lookup, one)
	must(t, err)
	must(t, d.Commit(st))
	st = reopen(t, st, dir)
	want(t, "left", textsOf(t, st), "/srv/b NodeConfig/a, /srv/c NodeConfig/a")
	again, err := LastGoodAt(st, aged(6*time.Hour), lookup, one)
	must(t, err)
	want(t, "to be undone", listed(again.Removals), "/srv/a delete")
	if !again.Expiry.Stands || !again.Active(st) {
		t.Errorf("after a restart it is told %+v", again.Expiry)
	}
	e := again.Expiry.After(d.Expiry)
	if e.Count != 1 || !e.Due(aged(time.Hour), true) || e.Due(aged(time.Hour), false) || !e.Due(aged(8*time.Hour), false) {
		t.Errorf("%+v", e)
	}
	// Of a state that is known as a whole, nothing of before is told.
	if e := whole.Expiry.After(d.Expiry); e.Count != 0 {
		t.Errorf("%+v", e)
	}
}

func TestExpiryDue(t *testing.T) {
	hours := func(list ...int) (ttls []time.Duration) {
		for _, h := range list {
			ttls = append(ttls, time.Duration(h)*time.Hour)
		}
		return ttls
	}
	for _, c := range []struct {
		what   string
		e      Expiry
		age    int
		judged bool
		due    bool
		next   int // hours; 0: none; -1: none that comes
	}{
		{"no ttl", Expiry{}, 1000, true, false, 0},
		{"none is over", Expiry{TTLs: hours(2, 6)}, 1, true, false, 2},
		{"one is over", Expiry{TTLs: hours(2, 6)}, 2, true, true, 6},
		{"one is over, and something newer is on its way", Expiry{TTLs: hours(2, 6)}, 2, false, true, 6},
		{"one was", Expiry{TTLs: hours(2, 6), Over: 1}, 5, true, false, 6},
		{"two are over at once", Expiry{TTLs: hours(2, 6, 9)}, 7, true, true, 9},
		{"all are over", Expiry{TTLs: hours(2, 6), Over: 2}, 7, true, false, -1},
		{"the servers are heard", Expiry{TTLs: hours(2, 6), Over: 2}, 0, true, true, 2},
		{"the servers are heard, and what they say is on its way", Expiry{TTLs: hours(2, 6), Over: 2}, 0, false, false, 2},
		{"a clock that was set back", Expiry{TTLs: hours(2, 6), Over: 1}, -9, true, true, 2},
		{"what stands, judged", Expiry{TTLs: hours(6), Stands: true}, 1, true, true, 6},
		{"what stands, and something newer is on its way", Expiry{TTLs: hours(6), Stands: true}, 1, false, false, 6},
	} {
		p := aged(time.Duration(c.age) * time.Hour)
		if got := c.e.Due(p, c.judged); got != c.due {
			t.Errorf("%s: due %t", c.what, got)
		}
		next, ok := c.e.Next(p)
		want := p.Issued.Add(time.Duration(c.next) * time.Hour)
		if c.next < 0 {
			want = p.Issued.Add(far)
		}
		if ok != (c.next != 0) || ok && !next.Equal(want) {
			t.Errorf("%s: next %s, %t; want %s", c.what, next, ok, want)
		}
		if next, ok := c.e.Next(catalog.Proof{}); ok {
			t.Errorf("%s: without a control plane the next is at %s", c.what, next)
		}
	}
}

// TestExpiryIsTold: once, with the one that expired first, and its cure.
func TestExpiryIsTold(t *testing.T) {
	st := open(t, t.TempDir())
	layers := []catalog.DecodedLayer{layer(t, "NodeConfig/a", 1, nil, lasting("a", "6h", ""), lasting("b", "3h", ""))}
	d, err := Layers(catalog.Digest{1}, layers, aged(7*time.Hour), st, lookup, one)
	must(t, err)
	e := d.Expiry
	if changed, err := e.Note(st, &Expiry{}, time.Now()); !changed || err != nil {
		t.Errorf("noted %t, %v", changed, err)
	}
	if changed, err := e.Note(st, &e, time.Now()); changed || err != nil {
		t.Errorf("noted again %t, %v", changed, err)
	}
	happened, err := st.History(store.Asked{Subject: "b"})
	if err != nil || len(happened) != 1 || happened[0].Code != reason.ResourceExpired.String() || !strings.Contains(happened[0].Message, "its ttl of 3h0m0s is over") {
		t.Errorf("%+v, %v", happened, err)
	}
	why := e.Summary()
	if why == nil || !strings.Contains(why.Error(), "file/b of NodeConfig/a and 1 more") || !strings.Contains(why.Error(), "2027-01-15T08:00:00Z") || why.Hint == "" {
		t.Errorf("%v", why)
	}
	if err := e.Find(func(title string, _ declare.Claim) bool { return title == "file/a" }); !reason.Is(err, reason.ResourceExpired) || !strings.Contains(err.Error(), "6h") {
		t.Errorf("%v", err)
	}
	if err := e.Find(func(string, declare.Claim) bool { return false }); err != nil {
		t.Errorf("%v", err)
	}
	if why := (&Expiry{}).Summary(); why != nil {
		t.Errorf("nothing has expired, and it is told %v", why)
	}
}

// TestExpiryIsAFunctionOfTheProof: whatever way a host has gone, from proof to proof and over restarts, with its layers and now and then without, it has
// what it would have if it had begun with the last proof; and nothing that is not there any more and is to be deleted is forgotten.
func TestExpiryIsAFunctionOfTheProof(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		st, err := store.Open(dir, time.Now())
		must(t, err)
		defer func() { st.Close() }()
		fresh, err := os.MkdirTemp(base, "")
		must(t, err)
		var layers []catalog.DecodedLayer
		for i, id := range []string{"NodeConfig/a", "NodeConfig/b"} {
			var resources []declare.Resource
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID[string]).Draw(rt, id) {
				resources = append(resources, lasting(name, rapid.SampledFrom([]string{"", "2h", "3h", "9h"}).Draw(rt, "ttl"), declare.OnRemoveDelete))
			}
			layers = append(layers, layer(t, id, 2-i, nil, resources...))
		}
		var last time.Duration
		ever := map[string]bool{}
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			last = time.Duration(rapid.IntRange(0, 12*60).Draw(rt, "age, in minutes")) * time.Minute
			if rapid.Bool().Draw(rt, "restart") {
				must(t, st.Close())
				st, err = store.Open(dir, time.Now())
				must(t, err)
			}
			if rapid.IntRange(0, 3).Draw(rt, "layers lost") == 0 && st.Active().Len() > 0 {
				d, err := LastGoodAt(st, aged(last), lookup, one)
				must(t, err)
				must(t, d.Commit(st))
				for i := range d.Entries {
					if aged(last).Expired(d.Entries[i].Resource.TimeToLive()) {
						rt.Fatalf("%s is there after %s", d.Entries[i].Title(), last)
					}
				}
			}
			d, err := Layers(catalog.Digest{1}, layers, aged(last), st, lookup, one)
			must(t, err)
			must(t, d.Commit(st))
			for ref, err := range st.Active().Refs() {
				must(t, err)
				ever[ref.Claim.ID] = true
			}
		}
		other, err := store.Open(fresh, time.Now())
		must(t, err)
		defer other.Close()
		d, err := Layers(catalog.Digest{1}, layers, aged(last), other, lookup, one)
		must(t, err)
		must(t, d.Commit(other))
		if got, want := textsOf(t, st), textsOf(t, other); got != want {
			rt.Fatalf("there is %s, want %s", got, want)
		}
		removals, err := st.Removals()
		must(t, err)
		for _, r := range removals {
			delete(ever, r.Claim.ID)
		}
		for ref := range st.Active().Refs() {
			delete(ever, ref.Claim.ID)
		}
		if len(ever) > 0 {
			rt.Fatalf("%v is neither there nor to be undone", ever)
		}
	})
}
