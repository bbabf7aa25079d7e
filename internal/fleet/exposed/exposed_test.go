package exposed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var at = time.Date(2026, 3, 4, 15, 0, 0, 500, time.UTC)

func TestWhatIsNotedTwiceIsThereOnce(t *testing.T) {
	first := Exposure{Node: "web-1", UID: "u1", Why: "was deleted", At: at, Keys: []string{"b"}}
	again := Exposure{Node: "web-1", UID: "u1", Why: "was deleted", At: at.Add(time.Hour), Keys: []string{"a", "b"}}
	list := Add(Add(nil, first), again)
	if len(list) != 1 || !slices.Equal(list[0].Keys, []string{"a", "b"}) || !list[0].At.Equal(at.Truncate(time.Second)) {
		t.Errorf("%+v", list)
	}
	list = Add(list, Exposure{Node: "web-1", UID: "u1", Why: "moved from qa to prod", At: at, Keys: []string{"a"}})
	if got := Read(Write(list)); len(got) != 2 || Write(got) != Write(list) {
		t.Errorf("%+v is read as %+v", list, got)
	}
}

func TestUnreadableIsExposed(t *testing.T) {
	if keys, some := Keys(Read("{")); !some || keys != nil {
		t.Errorf("%v %v", keys, some)
	}
	if Read("") != nil || Write(nil) != "" {
		t.Error("nothing is something")
	}
}

// TestLongKeys: what is too long to list is exposed as a whole, until no value is what it was.
func TestLongKeys(t *testing.T) {
	e := Exposure{Node: "web-1", UID: "u1", Why: "was deleted", At: at}
	for i := range 1000 {
		e.Keys = append(e.Keys, strings.Repeat("k", 200)+fmt.Sprint(i))
	}
	list := Add(nil, e)
	if keys, some := Keys(list); !some || keys != nil || len(Write(list)) > bytesMax {
		t.Fatalf("%d keys, %v, %d bytes", len(keys), some, len(Write(list)))
	}
	if left := Changed(list, func(string) bool { return true }, false); len(left) != 1 {
		t.Errorf("%+v", left)
	}
	if left := Changed(list, func(string) bool { return true }, true); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}

// TestAgainstASet: whatever happens, the keys are those that were exposed and have not changed since, and the list is bounded.
func TestAgainstASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := map[string]bool{}
		var list []Exposure
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 3, rapid.ID[string]).Draw(t, "keys")
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				list = Changed(list, func(key string) bool { return slices.Contains(keys, key) }, false)
				for _, k := range keys {
					delete(model, k)
				}
			} else {
				uid := rapid.StringMatching(`u[0-9]{1,2}`).Draw(t, "uid")
				before := Write(list)
				added := Add(list, Exposure{Node: "n" + uid, UID: uid, Why: "was deleted", At: at, Keys: slices.Clone(keys)})
				if Write(list) != before {
					t.Fatal("the list was changed")
				}
				list = Read(Write(added))
				for _, k := range keys {
					model[k] = true
				}
			}
			got, some := Keys(list)
			if some != (len(model) > 0) || len(got) != len(model) || len(list) > entriesMax {
				t.Fatalf("%v, want %v, in %d entries", got, model, len(list))
			}
			for _, k := range got {
				if !model[k] {
					t.Fatalf("%s is not exposed", k)
				}
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(`[{"node":"n","uid":"u","why":"was deleted","at":"2026-03-04T15:00:00Z","keys":["a"]}]`)
	f.Add("")
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		list := Read(text)
		if _, some := Keys(list); some != (len(list) > 0) {
			t.Error("a list is nothing, or nothing a list")
		}
		Add(list, Exposure{UID: "u", Why: "w", Keys: []string{"k"}})
	})
}
