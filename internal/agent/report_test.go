package agent

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tako.dev/tako/internal/converge"
)

// TestNewestRepairsAreListed compares with a naive choice: none that is left out is newer than one that is listed.
func TestNewestRepairsAreListed(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		seconds := rapid.SliceOfN(rapid.IntRange(0, 100), 0, 3*repairedMax).Draw(rt, "ages")
		fixed := make([]repair, len(seconds))
		for i, s := range seconds {
			fixed[i] = repair{converge.ID(i), start.Add(time.Duration(s) * time.Second)}
		}
		got := newest(slices.Clone(fixed))
		if len(got) != min(len(fixed), repairedMax) {
			rt.Fatalf("%d of %d are listed", len(got), len(fixed))
		}
		if !slices.IsSortedFunc(got, func(a, b repair) int { return int(a.id) - int(b.id) }) {
			rt.Fatal("not in the order of the graph")
		}
		for _, f := range fixed {
			if slices.Contains(got, f) {
				continue
			}
			for _, g := range got {
				if f.since.After(g.since) {
					rt.Fatalf("%v is left out, %v is listed", f, g)
				}
			}
		}
	})
}
