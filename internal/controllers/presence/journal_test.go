package presence

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestJournal compares with a list of everything: who looks in time sees each name that came since, and nobody is told less than that.
func TestJournal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var j journal
		var every []string
		seen := uint64(0)
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			for range rapid.IntRange(0, journalMax+journalMax/4).Draw(t, "changes") {
				name := fmt.Sprint(len(every) % 100)
				j.note(name)
				every = append(every, name)
			}
			names, all := j.since(seen)
			if want := every[seen:]; all != (len(want) > journalMax) || !all && !slices.Equal(names, want) {
				t.Fatalf("after %d of %d: %d names, all %v", seen, len(every), len(names), all)
			}
			seen = j.end
		}
		if _, all := j.since(j.end + 1); !all {
			t.Fatal("what never was is known")
		}
	})
}
