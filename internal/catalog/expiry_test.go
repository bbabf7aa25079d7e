package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// proofOf is a proof of so long ago.
func proofOf(age time.Duration) Proof {
	issued := time.Unix(1_800_000_000, 0)
	return Proof{Issued: issued, Now: issued.Add(age)}
}

func TestProofExpired(t *testing.T) {
	six := 6 * time.Hour
	for _, c := range []struct {
		what string
		p    Proof
		ttl  time.Duration
		want bool
	}{
		{"just heard", proofOf(0), six, false},
		{"a second before", proofOf(six - time.Second), six, false},
		{"at its time", proofOf(six), six, true},
		{"long ago", proofOf(1000 * six), six, true},
		{"no ttl", proofOf(1000 * six), 0, false},
		{"a clock that was set back", proofOf(-six), six, false},
		{"no control plane", Proof{Now: time.Unix(1_800_000_000, 0)}, six, false},
		{"a control plane that nothing is known of", Proof{Issued: time.Unix(0, 0), Now: time.Unix(1_800_000_000, 0)}, six, true},
	} {
		if got := c.p.Expired(c.ttl); got != c.want {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// twoLayers are two layers: the upper one wants some of what the lower one wants, for some time.
func twoLayers(t interface{ Fatal(args ...any) }, upper, lower []declare.Resource) []DecodedLayer {
	var layers []DecodedLayer
	for i, resources := range [][]declare.Resource{upper, lower} {
		items, err := Compile(resources)
		if err != nil {
			t.Fatal(err)
		}
		l := DecodedLayer{ID: fmt.Sprint("NodeConfig/", i), Priority: 10 - i}
		for _, item := range items {
			d, err := DecodeBody(KeyOf(item.Claim), item.Body)
			if err != nil {
				t.Fatal(err)
			}
			l.Entries = append(l.Entries, d)
		}
		layers = append(layers, l)
	}
	return layers
}

func fileFor(name, text, ttl string, failure ...string) declare.Resource {
	return declare.Resource{Name: name, TTL: ttl, OnFailure: failure, File: &declare.File{Path: "/" + name, Content: text}}
}

// winnersOf are what is enforced of layers: by path, the config.
func winnersOf(t interface{ Fatal(args ...any) }, layers []DecodedLayer) map[string]string {
	entries, conflicts := ResolveLayers(layers)
	if len(conflicts) > 0 {
		t.Fatal(conflicts[0].Reason())
	}
	won := map[string]string{}
	for i := range entries {
		won[entries[i].Claim().ID] = entries[i].Config
	}
	return won
}

func TestAlive(t *testing.T) {
	layers := twoLayers(t, []declare.Resource{fileFor("a", "upper", "6h"), fileFor("b", "upper", "3h"), fileFor("c", "upper", "")},
		[]declare.Resource{fileFor("a", "lower", ""), fileFor("b", "lower", "4h"), fileFor("d", "lower", "3h")})
	before := fmt.Sprint(layers)
	for _, c := range []struct {
		age     time.Duration
		want    map[string]string
		expired int
	}{
		{0, map[string]string{"/a": "NodeConfig/0", "/b": "NodeConfig/0", "/c": "NodeConfig/0", "/d": "NodeConfig/1"}, 0},
		{3*time.Hour - time.Second, map[string]string{"/a": "NodeConfig/0", "/b": "NodeConfig/0", "/c": "NodeConfig/0", "/d": "NodeConfig/1"}, 0},
		{3 * time.Hour, map[string]string{"/a": "NodeConfig/0", "/b": "NodeConfig/1", "/c": "NodeConfig/0"}, 2},
		{4 * time.Hour, map[string]string{"/a": "NodeConfig/0", "/c": "NodeConfig/0"}, 3},
		{6 * time.Hour, map[string]string{"/a": "NodeConfig/1", "/c": "NodeConfig/0"}, 4},
	} {
		living := Alive(layers, proofOf(c.age))
		if got := winnersOf(t, living.Layers); !reflect.DeepEqual(got, c.want) || len(living.Expired) != c.expired {
			t.Errorf("after %s: %v, %d expired; want %v, %d", c.age, got, len(living.Expired), c.want, c.expired)
		}
		if want := []time.Duration{3 * time.Hour, 4 * time.Hour, 6 * time.Hour}; !slices.Equal(living.TTLs, want) {
			t.Errorf("TTLs %v", living.TTLs)
		}
	}
	if living := Alive(layers, Proof{}); len(living.Expired) > 0 {
		t.Errorf("without a control plane %v has expired", living.Expired)
	}
	if fmt.Sprint(layers) != before {
		t.Error("the layers were changed")
	}
}

// TestExpiredWithItsRescue: what is only for the case that something else fails is not taken for something that is always wanted when the other
// has expired; unless somebody else names it, too.
func TestExpiredWithItsRescue(t *testing.T) {
	layers := twoLayers(t, []declare.Resource{
		fileFor("a", "", "6h", "page", "log"), fileFor("b", "", "", "log"), fileFor("page", "", "", "deeper"), fileFor("log", "", ""), fileFor("deeper", "", ""),
	}, nil)
	living := Alive(layers, proofOf(6*time.Hour))
	if got, want := winnersOf(t, living.Layers), map[string]string{"/b": "NodeConfig/0", "/log": "NodeConfig/0"}; !reflect.DeepEqual(got, want) {
		t.Errorf("left are %v", got)
	}
	entries, _ := ResolveLayers(layers)
	kept, rest := Remaining(entries, proofOf(6*time.Hour))
	if len(kept) != 2 || kept[0].Claim().ID != "/b" || kept[1].Claim().ID != "/log" || len(rest.Expired) != 3 || rest.Expired[0].TTL != 6*time.Hour {
		t.Errorf("left are %v, expired %v", kept, rest.Expired)
	}
}

// TestAliveIsAsIfDeclaredSo: whatever has expired, the host has what it would have if the layers had never had that; nothing that has no TTL, or one
// that is not over, is missing, and nothing else is there. What is left out is another state for each other set.
func TestAliveIsAsIfDeclaredSo(t *testing.T) {
	texts := map[time.Duration]string{0: "", 2 * time.Hour: "2h", 3 * time.Hour: "3h", 24 * time.Hour: "24h"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (all []declare.Resource, at func(age time.Duration) []declare.Resource) {
			for i := range 8 {
				if !rapid.Bool().Draw(t, name) {
					continue
				}
				ttl := rapid.SampledFrom([]time.Duration{0, 2 * time.Hour, 3 * time.Hour, 24 * time.Hour}).Draw(t, name+" ttl")
				all = append(all, fileFor(fmt.Sprint("f", i), name, texts[ttl]))
			}
			return all, func(age time.Duration) (living []declare.Resource) {
				for _, r := range all {
					if ttl := r.TimeToLive(); ttl == 0 || age < ttl {
						living = append(living, r)
					}
				}
				return living
			}
		}
		upper, upperAt := draw("upper")
		lower, lowerAt := draw("lower")
		minutes := rapid.SliceOfN(rapid.IntRange(-48*60, 48*60), 2, 2).Draw(t, "ages, in minutes")
		layers := twoLayers(t, upper, lower)
		var left []Digest
		var won []map[string]string
		for _, n := range minutes {
			age := time.Duration(n) * time.Minute
			living := Alive(layers, proofOf(age))
			got, want := winnersOf(t, living.Layers), winnersOf(t, twoLayers(t, upperAt(age), lowerAt(age)))
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("after %s: %v, want %v", age, got, want)
			}
			if n := len(upper) + len(lower) - len(upperAt(age)) - len(lowerAt(age)); len(living.Expired) != n {
				t.Fatalf("after %s %d have expired, %d are told", age, n, len(living.Expired))
			}
			left, won = append(left, LeftOut(Digest{}, living.Expired)), append(won, got)
			entries, _ := ResolveLayers(layers)
			kept, rest := Remaining(entries, proofOf(age))
			if len(kept)+len(rest.Expired) != len(entries) {
				t.Fatalf("of %d entries %d are left, and %d have expired", len(entries), len(kept), len(rest.Expired))
			}
			for i := range kept {
				if proofOf(age).Expired(kept[i].Resource.TimeToLive()) {
					t.Fatalf("%s is left after %s", kept[i].Title(), age)
				}
			}
		}
		if left[0] == left[1] && !reflect.DeepEqual(won[0], won[1]) {
			t.Fatalf("two states that differ count as one: %v, %v", won[0], won[1])
		}
	})
}

// TestDataWithTTL: data with a TTL has one form, that of Compile; that of data without is what it was; and what could not be declared is not read.
func TestDataWithTTL(t *testing.T) {
	data := declare.Data{Key: "k", Value: "v"}
	with, err := DataItemFor(&data, "6h")
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := Compile([]declare.Resource{{Name: "any", Data: &data, TTL: "6h"}})
	if err != nil || !reflect.DeepEqual(compiled[0], with) {
		t.Errorf("%q, %q, %v", compiled, with, err)
	}
	if back, err := ReadDataItem(with.Body); err != nil || !reflect.DeepEqual(back, with) {
		t.Errorf("read back as %v, %v", back, err)
	}
	without, err := DataItem(&data)
	if err != nil || len(with.Body)-len(without.Body) != len("\x63ttl\x626h") {
		t.Errorf("%d bytes without, %d with: %v", len(without.Body), len(with.Body), err)
	}
	if TTLOf(with.Body) != 6*time.Hour || TTLOf(without.Body) != 0 || TTLOf([]byte("\x63ttl")) != 0 {
		t.Errorf("the TTL is read as %s, %s", TTLOf(with.Body), TTLOf(without.Body))
	}
	for _, wrong := range []string{"1h", "soon", "6h0.5s"} {
		item, err := DataItemFor(&data, wrong)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadDataItem(item.Body); !reason.Is(err, reason.StateCorrupt) {
			t.Errorf("ttl %s is read: %v", wrong, err)
		}
	}
	same := Datum{Config: "NodeConfig/a", Data: data}
	other := Datum{Config: "NodeConfig/b", Data: data, TTL: "6h"}
	if _, err := ResolveData([]Datum{same, other}, []int{1, 1}); !reason.Is(err, reason.PriorityConflict) {
		t.Errorf("two that live differently long are one: %v", err)
	}
}

// TestTTLOfALaterVersion: an agent that does not know the field acts upon nothing that has it, and takes its claim all the same. It is told here by a field
// that nobody knows yet.
func TestTTLOfALaterVersion(t *testing.T) {
	items, err := Compile([]declare.Resource{fileFor("a", "text", "6h")})
	if err != nil {
		t.Fatal(err)
	}
	later := slices.Clone(items[0].Body)
	at := slices.Index(later, 't') // of ttl
	for ; string(later[at:at+3]) != "ttl"; at++ {
	}
	copy(later[at:], "tzz")
	d, err := DecodeBody(KeyOf(items[0].Claim), later)
	if err != nil || d.Unsupported == nil || d.Claim != items[0].Claim {
		t.Errorf("%+v, %v", d, err)
	}
}
