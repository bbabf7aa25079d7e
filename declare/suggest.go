package declare

import (
	"fmt"
	"slices"
	"strings"
)

// nearest returns the candidate that a misspelt word most likely meant, or "" when none is near: at most a third of its
// letters may differ (one for a short word), which keeps "mode" from being offered for "name". Ties go to the first in
// the order of candidates.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", max(1, len(word)/3)+1
	if len(word) > NameBytesMax {
		return ""
	}
	for _, c := range candidates {
		if diff := len(c) - len(word); diff >= bestDistance || -diff >= bestDistance {
			continue
		}
		if d := editDistance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// didYouMean is the hint for a misspelt word: the nearest candidate, or all of them when there are few.
func didYouMean(word string, candidates []string) string {
	if n := nearest(word, candidates); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	if len(candidates) > 0 && len(candidates) <= 12 {
		return "one of: " + joinWords(candidates)
	}
	return ""
}

// editDistance counts insertions, deletions, replacements, swaps of neighbours (each 1) and changes of letter case (each
// half, rounded down) that make b of a: optimal string alignment over bytes.
func editDistance(a, b string) int {
	const unit, caseChange = 2, 1
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j * unit
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i * unit
		for j := 1; j <= len(b); j++ {
			cost := unit
			switch {
			case a[i-1] == b[j-1]:
				cost = 0
			case a[i-1]|0x20 == b[j-1]|0x20:
				cost = caseChange
			}
			d := min(previous[j]+unit, current[j-1]+unit, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+unit)
			}
			current[j] = d
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)] / unit
}

// joinWords lists words in the order given: a, b, c.
func joinWords(words []string) string { return strings.Join(words, ", ") }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
