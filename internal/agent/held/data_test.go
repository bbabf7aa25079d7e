package held

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// putLayers stores a catalog of layers of data by key, each with a priority, and returns its root.
func putLayers(t testing.TB, s *Store, layers map[string]map[string]string, priorities map[string]int) catalog.Digest {
	t.Helper()
	var all []catalog.Layer
	for id, values := range layers {
		var items []catalog.Item
		for key, value := range values {
			item, err := catalog.DataItem(&declare.Data{Key: key, Value: value})
			must(t, err)
			items = append(items, item)
		}
		file, err := catalog.Compile([]declare.Resource{{Name: id, File: &declare.File{Path: "/" + id}}})
		must(t, err)
		items = append(items, file...)
		all = append(all, catalog.Layer{Priority: priorities[id], ID: id, Root: putItems(t, s, id, items)})
	}
	return putList(t, s, all...)
}

// putItems stores a layer.
func putItems(t testing.TB, s *Store, id string, items []catalog.Item) catalog.Digest {
	t.Helper()
	var changes []wire.Change
	for i := range items {
		changes = append(changes, wire.Change{Key: items[i].Row().Key, Body: items[i].Body})
	}
	slices.SortFunc(changes, func(a, b wire.Change) int { return slices.Compare(a.Key[:], b.Key[:]) })
	trie := catalog.TrieOf(items)
	put(t, s, id, catalog.Digest{}, changes, trie)
	return trie.Root()
}

func putList(t testing.TB, s *Store, layers ...catalog.Layer) catalog.Digest {
	t.Helper()
	list, err := catalog.NewList(layers...)
	must(t, err)
	encoded, err := list.Encode()
	must(t, err)
	must(t, s.PutList(encoded))
	return catalog.ListRoot(encoded)
}

func TestDataOf(t *testing.T) {
	s := open(t, t.TempDir())
	root := putLayers(t, s, map[string]map[string]string{"a": {"k": "low", "only": "a"}, "b": {"k": "high", "both": "1", "same": "x"}, "c": {"both": "2", "same": "x"}},
		map[string]int{"a": 1, "b": 2, "c": 2})
	for key, want := range map[string]string{"k": "b high", "only": "a a", "same": "b x"} {
		if d, err := s.DataOf(root, key, catalog.Proof{}); err != nil || d.Config+" "+d.Value != want {
			t.Errorf("%s: %+v, %v", key, d, err)
		}
	}
	if _, err := s.DataOf(root, "both", catalog.Proof{}); !reason.Is(err, reason.PriorityConflict) {
		t.Errorf("%v", err)
	}
	if _, err := s.DataOf(root, "none", catalog.Proof{}); !reason.Is(err, reason.ResourceUnknown) {
		t.Errorf("%v", err)
	}
	c, err := s.Contents(root)
	if err != nil || c.Delivered != 7 || len(c.Layers) != 3 || len(c.Layers[0].Entries) != 1 {
		t.Errorf("%d are delivered, %v", c.Delivered, err)
	}
	// Somebody who only looks sees the same, and what is not there is told.
	l, err := Inspect(s.state)
	must(t, err)
	defer l.Close()
	if d, err := l.DataOf(root, "k", catalog.Proof{}); err != nil || d.Value != "high" {
		t.Errorf("%+v, %v", d, err)
	}
	must(t, os.Remove(filepath.Join(s.state, layersName, c.List[0].Root.String())))
	again, err := Inspect(s.state)
	must(t, err)
	defer again.Close()
	if _, err := again.DataOf(root, "k", catalog.Proof{}); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("%v", err)
	}
}

// TestKeys: pages of keys are, one after the other, what a sorted list has.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SliceOf(rapid.StringMatching(`[a-c]{1,4}`)).Draw(rt, "keys")
		page := rapid.IntRange(1, 5).Draw(rt, "page")
		want := slices.Compact(slices.Sorted(slices.Values(keys)))
		var got []string
		for after := ""; ; {
			first := FirstKeys{AtMost: page}
			for _, key := range keys {
				if key > after {
					first.Add(key)
				}
			}
			some := first.Sorted()
			if got = append(got, some...); len(some) < page {
				break
			}
			after = some[len(some)-1]
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestLost(t *testing.T) {
	s := open(t, t.TempDir())
	values := func(from, to int) map[string]string {
		all := map[string]string{}
		for i := from; i < to; i++ {
			all[fmt.Sprint("k", i)] = "v"
		}
		return all
	}
	for _, c := range []struct {
		layers map[string]map[string]string
		want   int
	}{
		{map[string]map[string]string{"a": values(0, 20), "b": values(20, 30)}, 0},
		{map[string]map[string]string{"a": values(0, 15), "b": values(20, 30)}, 5},
		{map[string]map[string]string{"a": values(0, 15), "b": values(15, 30)}, 0}, // moved
		{map[string]map[string]string{"c": values(0, 30)}, 0},
		{map[string]map[string]string{"b": values(20, 30)}, 20},
		{map[string]map[string]string{"c": nil}, 30},
	} {
		was := putLayers(t, s, map[string]map[string]string{"a": values(0, 20), "b": values(20, 30)}, map[string]int{"a": 1, "b": 2})
		is := putLayers(t, s, c.layers, map[string]int{"a": 1, "b": 2, "c": 3})
		n, example, err := s.Lost(was, is)
		if err != nil || n != c.want || (n > 0) != (catalog.KeyOf(example) != catalog.KeyOf("")) {
			t.Errorf("%v: %d are lost, %q, %v", c.layers, n, example, err)
		}
	}
	if _, _, err := s.Lost(catalog.KeyOf("nothing"), catalog.KeyOf("nothing")); !reason.Is(err, reason.StateCorrupt) {
		t.Errorf("%v", err)
	}
}
