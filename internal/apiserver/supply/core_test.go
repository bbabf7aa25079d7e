package supply

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/content"
	"tako.dev/tako/internal/reason"
)

var began = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

// desk is a core with a clock.
type desk struct {
	*testing.T
	core
	now     time.Time
	servers []string
	random  *rand.Rand
}

func newDesk(t *testing.T, servers ...string) *desk {
	t.Helper()
	return &desk{T: t, core: core{wants: map[item]*want{}}, now: began, servers: servers, random: rand.New(rand.NewPCG(1, 2))}
}

func named(k Kind, text string) item { return item{k, content.DigestOf([]byte(text))} }

func (d *desk) asks(i item) error { return d.ask(i, d.now, d.servers) }

// coming fails the test unless something is on its way.
func (d *desk) coming(i item) {
	d.Helper()
	if err := d.asks(i); !reason.Is(err, reason.ObjectComing) {
		d.Fatalf("%s: %v", i, err)
	}
}

// todo is what is to be done now.
func (d *desk) todo(want int) []fetch {
	d.Helper()
	all, _ := d.next(d.now, d.servers)
	if len(all) != want {
		d.Fatalf("%d are fetched, want %d: %v", len(all), want, all)
	}
	return all
}

func (d *desk) ends(f fetch, err error) error { return d.ended(f, err, d.now, d.servers, d.random) }

func absent(k Kind) error { return &reason.Error{Code: k.missing(), Doing: "open it"} }

// TestOneFetchForAll: whoever asks, one server at a time is asked, until one has it.
func TestOneFetchForAll(t *testing.T) {
	d := newDesk(t, "a", "b", "c")
	i := named(Object, "x")
	for range 100 {
		d.coming(i)
	}
	var asked []string
	for n := range d.servers {
		f := d.todo(1)[0]
		d.coming(i)
		d.todo(0)
		asked = append(asked, f.server)
		if n < 2 {
			if err := d.ends(f, absent(Object)); err != nil {
				t.Fatalf("it is given up after %d: %v", n+1, err)
			}
			continue
		}
		if err := d.ends(f, nil); err != nil || len(d.wants) > 0 {
			t.Fatalf("%v, %d are remembered", err, len(d.wants))
		}
	}
	if slices.Sort(asked); !slices.Equal(asked, d.servers) {
		t.Errorf("these were asked: %v", asked)
	}
}

// TestNobodyHasIt: then that is said, with what each has said; and no server is asked again before a pause that grows, however many ask.
func TestNobodyHasIt(t *testing.T) {
	d := newDesk(t, "a", "b")
	i := named(Object, "x")
	fetches := 0
	for end := d.now.Add(time.Hour); d.now.Before(end); d.now = d.now.Add(100 * time.Millisecond) {
		err := d.asks(i)
		all, _ := d.next(d.now, d.servers)
		fetches += len(all)
		for _, f := range all {
			if f.server == "a" {
				_ = d.ends(f, absent(Object))
			} else {
				_ = d.ends(f, &reason.Error{Code: reason.ServerUnreachable, Doing: "connect to b", Cause: errors.New("no answer in time")})
			}
		}
		if fetches >= 2 && len(all) == 0 && !reason.Is(err, reason.ObjectComing) {
			text := fmt.Sprint(err, reason.Of(err).Hint)
			for _, part := range []string{i.digest.String(), "a does not have it", "no answer in time", "tako content put"} {
				if !reason.Is(err, reason.ObjectMissing) || !strings.Contains(text, part) {
					t.Fatalf("%q is not in %q", part, text)
				}
			}
		}
	}
	if fetches < 100 || fetches > 300 { // a round of two each half minute, about, once the pause is at its longest
		t.Errorf("%d calls in an hour", fetches)
	}
}

// TestAnotherServer: one that was not asked is asked at once, also while the others are left alone.
func TestAnotherServer(t *testing.T) {
	d := newDesk(t, "a")
	object, bundle := named(Object, "x"), named(Bundle, "y")
	d.coming(object)
	d.coming(bundle)
	for _, f := range d.todo(2) {
		if d.ends(f, absent(f.kind)) == nil {
			t.Error("nobody says that it is missing")
		}
	}
	if err := d.asks(object); !reason.Is(err, reason.ObjectMissing) {
		t.Fatal(err)
	}
	d.servers = []string{"a", "b"}
	if f := d.todo(1)[0]; f.item != bundle || f.server != "b" { // of the object nobody has asked since
		t.Errorf("%+v", f)
	}
	d.coming(object)
	if f := d.todo(1)[0]; f.item != object || f.server != "b" {
		t.Errorf("%+v", f)
	}
}

// TestNoOtherServer: that is said at once; a bundle is fetched when there is one.
func TestNoOtherServer(t *testing.T) {
	d := newDesk(t)
	for _, i := range []item{named(Object, "x"), named(Bundle, "y")} {
		if err := d.asks(i); !reason.Is(err, i.kind.missing()) || !strings.Contains(err.Error(), "no other server") {
			t.Error(err)
		}
	}
	d.todo(0)
	d.servers = []string{"a"}
	if f := d.todo(1)[0]; f.kind != Bundle {
		t.Errorf("%+v", f)
	}
}

// TestBundleStaysWanted: it is asked for once, and fetched again and again; when that was long ago it is doubted. What is dropped is so for good.
func TestBundleStaysWanted(t *testing.T) {
	d := newDesk(t, "a")
	i := named(Bundle, "y")
	d.coming(i)
	told := 0
	for end := d.now.Add(time.Hour); d.now.Before(end); {
		all, wake := d.next(d.now, d.servers)
		for _, f := range all {
			if f.doubt != (d.now.Sub(began) > sureFor) {
				t.Fatalf("after %s: %+v", d.now.Sub(began), f)
			}
			if d.ends(f, absent(Bundle)) != nil {
				told++
			}
		}
		if len(all) == 0 {
			if wake.IsZero() {
				t.Fatal("nobody looks again")
			}
			d.now = wake
		}
	}
	if told != 1 {
		t.Errorf("the same is told %d times", told)
	}
	d.drop(i)
	d.now = d.now.Add(time.Hour)
	d.todo(0)
}

// TestBounds: few are fetched at once, those first that are due for longest; and what nobody asks for any more is forgotten.
func TestBounds(t *testing.T) {
	d := newDesk(t, "a")
	for n := range wantsMax {
		d.coming(named(Object, fmt.Sprint(n)))
		d.now = d.now.Add(time.Millisecond)
	}
	d.coming(named(Object, "0")) // that it is asked for again takes its turn from nobody
	first := d.todo(fetchesMax)
	if first[0].item != named(Object, "0") || first[3].item != named(Object, "3") {
		t.Errorf("%v", first)
	}
	d.todo(0)
	d.coming(named(Bundle, "one more"))
	if len(d.wants) != wantsMax || d.wants[named(Object, "4")] != nil {
		t.Errorf("%d are remembered", len(d.wants))
	}
	_ = d.ends(first[0], absent(Object))
	d.todo(1)
	for n := range wantsMax {
		if i := named(Object, fmt.Sprint(n)); d.wants[i] != nil && d.wants[i].from == "" {
			delete(d.wants, i)
		}
	}
	for n := range 2 * wantsMax {
		_ = d.asks(named(Bundle, fmt.Sprint(n)))
	}
	if err := d.asks(named(Object, "more")); !reason.Is(err, reason.TransferBusy) || len(d.wants) != wantsMax {
		t.Errorf("%d are wanted: %v", len(d.wants), err)
	}
}

// TestForgotten: an object that nobody asks for any more is not fetched, and not remembered.
func TestForgotten(t *testing.T) {
	d := newDesk(t, "a")
	d.coming(named(Object, "x"))
	_ = d.ends(d.todo(1)[0], absent(Object))
	d.now = d.now.Add(wantFor)
	d.todo(0)
	if d.now = d.now.Add(1); len(d.todo(0)) > 0 || len(d.wants) > 0 {
		t.Errorf("%d are remembered", len(d.wants))
	}
}

// TestNoRoom: that this server cannot store it is said before what the others have said.
func TestNoRoom(t *testing.T) {
	d := newDesk(t, "a", "b")
	i := named(Object, "x")
	d.coming(i)
	_ = d.ends(d.todo(1)[0], &reason.Error{Code: reason.ObjectUnstored, Doing: "store it"})
	if err := d.ends(d.todo(1)[0], absent(Object)); !reason.Is(err, reason.ObjectUnstored) {
		t.Error(err)
	}
}
