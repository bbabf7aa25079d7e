package heads

import (
	"fmt"
	"testing"
	"time"

	"tako.dev/tako/internal/transfer/server"
)

// TestEntrusted: who stands among the first peers of a node keeps its head while it is away, as long as the newest Assignment says so, and for a few nodes at most.
func TestEntrusted(t *testing.T) {
	h := &Heads{view: newView()}
	now := time.Unix(1000, 0)
	version := uint64(0)
	assign := func(name string, holders ...string) {
		version++
		h.view.enter(name, "uid of "+name, version, now)
		version++
		h.view.assign(name, &assigned{uid: "uid of " + name, version: version, content: &Content{Holders: holders}}, nil, now)
	}
	names := func(holder string) (all []string) {
		for _, who := range h.Entrusted(server.Identity{UID: holder}) {
			if who.UID != "uid of "+who.Name {
				t.Errorf("%s is said to have the UID %s", who.Name, who.UID)
			}
			all = append(all, who.Name)
		}
		return all
	}
	want := func(holder string, want ...string) {
		t.Helper()
		if got := names(holder); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s keeps the heads of %v, want %v", holder, got, want)
		}
	}
	assign("web-1", "a", "b")
	assign("web-2", "a")
	want("a", "web-1", "web-2")
	want("b", "web-1")
	assign("web-1", "b", "c")
	want("a", "web-2")
	want("c", "web-1")
	version++
	h.view.unassign("web-1", version, now)
	want("b")
	version++
	h.view.leave("web-2", version, now)
	want("a")
	for i := range 2 * entrustedMax {
		assign(fmt.Sprintf("db-%02d", i), "d")
	}
	if n := len(names("d")); n != entrustedMax {
		t.Errorf("one keeps the heads of %d", n)
	}
	if len(h.view.entrusted) != 2 {
		t.Errorf("%d are remembered as keeping something: %v", len(h.view.entrusted), h.view.entrusted)
	}
}
