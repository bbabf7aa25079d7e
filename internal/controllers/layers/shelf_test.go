package layers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/catalog"
)

// layerNo is a layer that has nothing but a root and a size.
func layerNo(i int, bytes int64) *Layer {
	return &Layer{Root: catalog.Digest{byte(i >> 8), byte(i), 1}, memory: bytes}
}

func TestLayersAreKept(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := newShelf()
	put := func(i int, bytes int64) {
		now = now.Add(time.Millisecond)
		s.put(revisionID{"c", fmt.Sprint(i)}, &result{layer: layerNo(i, bytes)}, now)
	}
	there := func(i int) bool { _, ok := s.at("c", layerNo(i, 0).Root); return ok }
	for i := range 30 {
		put(i, 1)
	}
	for i := range 30 {
		if !there(i) {
			t.Errorf("%d is young and gone", i)
		}
	}
	s.use("c", layerNo(0, 0).Root, 1, now)
	now = now.Add(keptFor + time.Second)
	put(30, 1)
	for i := range 31 {
		if want := i == 0 || i > 30-keptMin; there(i) != want && (i == 0 || i == 30) {
			t.Errorf("%d: %v", i, there(i))
		}
	}
	if n := len(s.configs["c"].kept); n != keptMin+1 {
		t.Errorf("%d are kept, want %d and the one in use", n, keptMin)
	}
	s.use("c", layerNo(0, 0).Root, -1, now)
	if !there(0) {
		t.Error("it goes when its last use ends, where it should be kept for a while")
	}
	for i := 31; i < 31+2*keptMax; i++ {
		put(i, 1)
	}
	if n := len(s.configs["c"].kept); n != keptMax {
		t.Errorf("%d are kept, want %d", n, keptMax)
	}
	if n := len(s.results); n != keptMax {
		t.Errorf("%d results for them", n)
	}
	put(1000, keptBytesMax/2)
	put(1001, keptBytesMax/2)
	if there(31) || !there(1000) || !there(1001) || s.bytes != keptBytesMax {
		t.Errorf("%d bytes are kept", s.bytes)
	}
	put(1002, keptBytesMax+1)
	if s.bytes != 0 || there(1001) {
		t.Errorf("%d bytes are kept", s.bytes)
	}
}

// TestTemplatesGo: a layer of a workload's revision goes when nobody has asked for it for a while, and nothing is left of it.
func TestTemplatesGo(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := newShelf()
	id := func(i int) string { return fmt.Sprint("Revision/prod/web-", i) }
	put := func(i int) {
		s.put(revisionID{id(i), fmt.Sprint("web-", i)}, &result{layer: layerNo(i, 1), read: map[reference]reading{{kindSecret, "prod", "db"}: {}}}, now)
	}
	for i := range 20 {
		put(i)
	}
	s.use(id(0), layerNo(0, 0).Root, 1, now)
	now = now.Add(keptFor / 2)
	put(20)
	if len(s.configs) != 21 {
		t.Errorf("%d are there, and all are young", len(s.configs))
	}
	now = now.Add(keptFor/2 + time.Second)
	put(21)
	if len(s.configs) != 3 || len(s.results) != 3 || s.heard[reference{kindSecret, "prod", "db"}].configs[id(5)] != 0 || s.bytes != 2 {
		t.Errorf("%d rows, %d results and %d bytes are left, want those of 0, 20 and 21", len(s.configs), len(s.results), s.bytes)
	}
	s.use(id(0), layerNo(0, 0).Root, -1, now)
	now = now.Add(keptFor + time.Second)
	put(22)
	if len(s.configs) != 1 || len(s.results) != 1 {
		t.Errorf("%d rows are left, want that of 22", len(s.configs))
	}
}

func TestFailuresAreBounded(t *testing.T) {
	s, now := newShelf(), time.Unix(1e9, 0)
	for i := range failedMax + 10 {
		now = now.Add(time.Second)
		s.get(revisionID{"c", "0"}, now)
		ref := reference{kindSecret, "n", fmt.Sprint(i)}
		s.put(revisionID{"c", fmt.Sprint(i)}, &result{err: errors.New("no"), read: map[reference]reading{ref: {}}}, now)
	}
	if _, ok := s.get(revisionID{"c", "0"}, now); !ok || len(s.results) != failedMax || len(s.heard) != failedMax {
		t.Errorf("%d are remembered with %d objects, the one that is asked for: %v", len(s.results), len(s.heard), ok)
	}
}

// Whatever happens, what is counted is what there is, and what is in use stays.
func TestShelfCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, now := newShelf(), time.Unix(1e9, 0)
		used := map[layerKey]int{}
		refs := []reference{{kindSecret, "n", "a"}, {kindSecret, "n", "b"}, {kindConfigMap, "n", "a"}}
		version := uint64(1)
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			config := rapid.SampledFrom([]string{"c", "d"}).Draw(rt, "config")
			n := rapid.IntRange(0, 20).Draw(rt, "layer")
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(rt, "later")) * time.Second)
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				of := rapid.SliceOfDistinct(rapid.SampledFrom(refs), rapid.ID).Draw(rt, "refs")
				read := map[reference]reading{}
				for ref, v := range s.begin(config, of) {
					read[ref] = reading{v, rapid.Bool().Draw(rt, "there")}
				}
				s.put(revisionID{config, fmt.Sprint(n % 7)}, &result{layer: layerNo(n, keptBytesMax/8), read: read}, now)
				s.end(config, of)
			case 1:
				s.use(config, layerNo(n, 0).Root, 1, now)
				used[layerKey{config, n}]++
			case 2:
				if used[layerKey{config, n}] > 0 {
					s.use(config, layerNo(n, 0).Root, -1, now)
					used[layerKey{config, n}]--
				}
			case 3:
				version++
				s.tell(rapid.SampledFrom(refs).Draw(rt, "ref"), version)
			case 4:
				version++
				s.tellAll(kindSecret, map[reference]uint64{refs[0]: version}, version)
			}
			check(rt, s)
		}
	})
}

type layerKey struct {
	config string
	n      int
}

func check(t *rapid.T, s *shelf) {
	t.Helper()
	var bytes int64
	referring := map[reference]map[string]int{}
	for config, r := range s.configs {
		for root, k := range r.kept {
			if r.used[root] <= 0 {
				bytes += k.layer.memory
			}
		}
		if len(r.idle()) > keptMax {
			t.Fatalf("%d idle layers of %s", len(r.idle()), config)
		}
	}
	for id, r := range s.results {
		if k := s.configs[id.config].kept[r.layer.Root]; k == nil || k.layer.Root != r.layer.Root {
			t.Fatalf("result %v has a layer that is not kept", id)
		}
		for ref := range r.read {
			if referring[ref] == nil {
				referring[ref] = map[string]int{}
			}
			referring[ref][id.config]++
		}
	}
	if bytes != s.bytes || bytes > keptBytesMax {
		t.Fatalf("%d bytes are kept, counted %d", bytes, s.bytes)
	}
	for ref, h := range s.heard {
		for config, n := range h.configs {
			if referring[ref][config] != n {
				t.Fatalf("%v is referred to %d times by %s, counted %d", ref, referring[ref][config], config, n)
			}
		}
	}
	if len(referring) != len(s.heard) {
		t.Fatalf("%d objects are referred to, %d counted", len(referring), len(s.heard))
	}
}
