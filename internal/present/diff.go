package present

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Bounds of a diff. Above them it would cost more than it tells.
const (
	diffLinesMax   = 20_000 // of either side
	diffEditsMax   = 1_000  // lines added and removed until the search stops; it takes the square of it in memory and time: 2 MiB
	diffContext    = 3      // equal lines around a change, as diff -u
	noFinalNewline = "\\ No newline at end of file"
)

// UnifiedDiff returns what patch(1) makes b of a with, and "" when they are equal. Of texts that differ in very many lines
// it may be longer than it need be. Binary content (a NUL byte or invalid UTF-8) and texts of more than 20,000 lines get
// one line with the sizes. The lines are those of the texts: write them to a terminal with WriteDiff.
func UnifiedDiff(a, b []byte, nameA, nameB string) string {
	if bytes.Equal(a, b) {
		return ""
	}
	if isBinary(a) || isBinary(b) || bytes.Count(a, []byte("\n")) >= diffLinesMax || bytes.Count(b, []byte("\n")) >= diffLinesMax {
		return fmt.Sprintf("%s and %s differ (%s, %s)\n", Quote(nameA), Quote(nameB), Bytes(int64(len(a))), Bytes(int64(len(b))))
	}
	linesA, linesB := splitLines(a), splitLines(b)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", Quote(nameA), Quote(nameB))
	for _, h := range hunks(edits(linesA, linesB), len(linesA), len(linesB)) {
		h.write(&out, linesA, linesB)
	}
	return out.String()
}

func isBinary(b []byte) bool { return bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) }

// splitLines cuts a text behind each newline; the last line may have none.
func splitLines(b []byte) []string {
	lines := strings.SplitAfter(string(b), "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
}

// change replaces the lines [a0,a1) of one side by the lines [b0,b1) of the other.
type change struct{ a0, a1, b0, b1 int }

// edits returns the changes from a to b in order. It is Myers' greedy search (An O(ND) Difference Algorithm, 1986) between
// the common ends; when it needs too many edits, all between the ends is one change.
func edits(a, b []string) []change {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	found, ok := shortest(a[start:endA], b[start:endB])
	if !ok {
		return []change{{start, endA, start, endB}}
	}
	for i := range found {
		found[i] = change{found[i].a0 + start, found[i].a1 + start, found[i].b0 + start, found[i].b1 + start}
	}
	return found
}

// shortest searches the shortest way from (0,0) to the ends of a and b, in which a step right removes a line of a, a step
// down adds one of b, and equal lines are free. reach[d][k+d] is how far in a the diagonal k (place in a minus place in b)
// can be followed with d steps.
func shortest(a, b []string) ([]change, bool) {
	var reach [][]int32
	for d := 0; d <= min(len(a)+len(b), diffEditsMax); d++ {
		current := make([]int32, 2*d+1)
		for k := -d; k <= d; k += 2 {
			x := startOf(reach, d, k)
			for y := x - k; x < len(a) && y < len(b) && y >= 0 && a[x] == b[y]; {
				x, y = x+1, y+1
			}
			current[k+d] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return wayBack(append(reach, current), a, b), true
			}
		}
		reach = append(reach, current)
	}
	return nil, false
}

// startOf is where diagonal k begins with the d-th step, from the neighbour that got further.
func startOf(reach [][]int32, d, k int) int {
	if d == 0 {
		return 0
	}
	before := reach[d-1]
	at := func(k int) int { return int(before[k+d-1]) }
	if isDown(reach, d, k) {
		return at(k + 1)
	}
	return at(k-1) + 1
}

// isDown reports whether the d-th step onto diagonal k adds a line of b rather than removes one of a.
func isDown(reach [][]int32, d, k int) bool {
	if k == -d || k == d {
		return k == -d
	}
	before := reach[d-1]
	return before[k-1+d-1] < before[k+1+d-1]
}

// wayBack follows the steps from the end to the beginning and joins neighbours to changes.
func wayBack(reach [][]int32, a, b []string) []change {
	var changes []change
	x, y := len(a), len(b)
	for d := len(reach) - 1; d > 0; d-- {
		k := x - y
		step := change{}
		if isDown(reach, d, k) {
			x = int(reach[d-1][k+1+d-1])
			y = x - k - 1
			step = change{x, x, y, y + 1}
		} else {
			x = int(reach[d-1][k-1+d-1])
			y = x - k + 1
			step = change{x, x + 1, y, y}
		}
		if last := len(changes) - 1; last >= 0 && step.a1 == changes[last].a0 && step.b1 == changes[last].b0 {
			changes[last].a0, changes[last].b0 = step.a0, step.b0
		} else {
			changes = append(changes, step)
		}
	}
	for i, j := 0, len(changes)-1; i < j; i, j = i+1, j-1 {
		changes[i], changes[j] = changes[j], changes[i]
	}
	return changes
}

// hunk is changes with the equal lines around them.
type hunk struct {
	change
	changes []change
}

// hunks puts changes that share context together.
func hunks(changes []change, lenA, lenB int) []hunk {
	var out []hunk
	for _, c := range changes {
		last := len(out) - 1
		if last < 0 || c.a0-out[last].changes[len(out[last].changes)-1].a1 > 2*diffContext {
			before := min(diffContext, c.a0)
			out = append(out, hunk{change: change{a0: c.a0 - before, b0: c.b0 - before}})
			last++
		}
		h := &out[last]
		h.changes = append(h.changes, c)
		after := min(diffContext, lenA-c.a1, lenB-c.b1)
		h.a1, h.b1 = c.a1+after, c.b1+after
	}
	return out
}

func (h hunk) write(out *strings.Builder, a, b []string) {
	fmt.Fprintf(out, "@@ -%s +%s @@\n", lineRange(h.a0, h.a1), lineRange(h.b0, h.b1))
	at := h.a0
	for _, c := range h.changes {
		writeLines(out, ' ', a[at:c.a0])
		writeLines(out, '-', a[c.a0:c.a1])
		writeLines(out, '+', b[c.b0:c.b1])
		at = c.a1
	}
	writeLines(out, ' ', a[at:h.a1])
}

// lineRange is FIRST,COUNT as diff -u writes it: an empty range names the line before it.
func lineRange(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func writeLines(out *strings.Builder, sign byte, lines []string) {
	for _, l := range lines {
		out.WriteByte(sign)
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\n" + noFinalNewline + "\n")
		}
	}
}

// WriteDiff writes a diff for a person: coloured by the sign that each line begins with, and safe for a terminal.
func WriteDiff(w io.Writer, diff string, style Style) error {
	var b strings.Builder
	for line := range strings.Lines(diff) {
		text := Escape(strings.TrimSuffix(line, "\n"))
		b.WriteString(style.paint(diffColor(text), text) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func diffColor(line string) sgr {
	switch {
	case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "+++ "):
		return bold
	case strings.HasPrefix(line, "@@"):
		return blue
	case strings.HasPrefix(line, "-"):
		return red
	case strings.HasPrefix(line, "+"):
		return green
	}
	return ""
}
