package peers

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func nodes(n int) []Node {
	list := make([]Node, n)
	for i := range list {
		list[i] = Node{Name: fmt.Sprint("web-", i), UID: fmt.Sprintf("uid-%06d", i), Group: "prod", Address: fmt.Sprintf("192.0.2.%d:6445", i)}
	}
	return list
}

// settle draws until nothing changes, and returns how many lists were replaced.
func settle(t testing.TB, all []Node) (drawn int) {
	t.Helper()
	for range 3 {
		lists := Draw(all)
		if len(lists) == 0 {
			return drawn
		}
		drawn += len(lists)
		for i := range all {
			if list, other := lists[all[i].UID]; other {
				all[i].Has = list
			}
		}
	}
	t.Fatal("it is drawn again and again")
	return 0
}

// TestDraw: every list has so many others of its group, each once, at the addresses where they are.
func TestDraw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := nodes(rapid.IntRange(0, 60).Draw(t, "nodes"))
		sizes := map[string]int{}
		for i := range all {
			all[i].Group = rapid.SampledFrom([]string{"prod|a", "prod|b", "qa"}).Draw(t, "group")
			if rapid.IntRange(0, 4).Draw(t, "mute") == 0 {
				all[i].Address = ""
			} else {
				sizes[all[i].Group]++
			}
		}
		again := slices.Clone(all)
		lists := Draw(all)
		if !reflect.DeepEqual(lists, Draw(again)) {
			t.Fatal("the same nodes come to other lists")
		}
		for _, n := range all {
			list := lists[n.UID]
			want := 0
			if n.Address != "" {
				want = min(DrawnMax, sizes[n.Group]-1)
			}
			if len(list) != want {
				t.Fatalf("%s has %d peers, want %d", n.Name, len(list), want)
			}
			seen := map[string]bool{n.UID: true}
			for _, p := range list {
				at := slices.IndexFunc(all, func(o Node) bool { return o.UID == p.UID })
				if of := all[at]; seen[p.UID] || of.Group != n.Group || of.Address != p.Address || of.Name != p.Name || p.Address == "" {
					t.Fatalf("%s has %+v", n.Name, p)
				}
				seen[p.UID] = true
			}
		}
	})
}

// TestEven: nobody is in far more lists than others, and all can be reached from anybody.
func TestEven(t *testing.T) {
	all := nodes(3000)
	settle(t, all)
	in := map[string]int{}
	for _, n := range all {
		for _, p := range n.Has {
			in[p.UID]++
		}
	}
	for _, n := range all {
		if in[n.UID] < DrawnMax/8 || in[n.UID] > 3*DrawnMax {
			t.Errorf("%s is in %d lists", n.Name, in[n.UID])
		}
	}
	asks := map[string][]string{} // who asks somebody gets to know what he knows
	for _, n := range all {
		for _, p := range n.Has {
			asks[p.UID] = append(asks[p.UID], n.UID)
		}
	}
	reached, next := map[string]bool{all[0].UID: true}, []string{all[0].UID}
	for len(next) > 0 {
		for _, uid := range asks[next[0]] {
			if !reached[uid] {
				reached[uid], next = true, append(next, uid)
			}
		}
		next = next[1:]
	}
	if len(reached) != len(all) {
		t.Errorf("a word from one reaches %d of %d", len(reached), len(all))
	}
}

// TestSeldom: a list changes when a quarter of it has, and not before.
func TestSeldom(t *testing.T) {
	all := nodes(13)
	settle(t, all)
	first := slices.Clone(all)

	gone := slices.Delete(slices.Clone(first), 1, 4) // of twelve three
	lists := Draw(gone)
	if len(lists) != len(gone) {
		t.Errorf("a quarter is gone: %d of %d lists are drawn", len(lists), len(gone))
	}
	if lists := Draw(slices.Delete(slices.Clone(first), 1, 3)); len(lists) != 0 {
		t.Errorf("two of twelve are gone: %d lists are drawn", len(lists))
	}
	silent := slices.Clone(first)
	for i := 1; i < len(silent); i++ {
		silent[i].Silent, silent[i].Address = true, ""
	}
	if lists := Draw(silent); len(lists) != 0 {
		t.Errorf("nobody is heard but one: %d lists are drawn", len(lists))
	}
	moved := slices.Clone(first)
	for i := range 4 {
		moved[i].Group = "qa"
	}
	if lists := Draw(moved); len(lists) != len(moved) {
		t.Errorf("four have moved: %d lists are drawn", len(lists))
	}
	mute := slices.Clone(first)
	mute[0].Address = ""
	if lists := Draw(mute); len(lists) != 1 || lists[mute[0].UID] != nil {
		t.Errorf("one does not answer any more: %v", lists)
	}
}

// TestGrowing: a fleet that grows one by one is drawn few times for each node.
func TestGrowing(t *testing.T) {
	var all []Node
	drawn := 0
	for _, n := range nodes(100) {
		all = append(all, n)
		drawn += settle(t, all)
	}
	if drawn > 12*len(all) {
		t.Errorf("%d lists were drawn for %d nodes", drawn, len(all))
	}
}
