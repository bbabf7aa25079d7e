package present

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// patch applies a diff, and insists that every line that it names is there.
func patch(a, diff string) (string, error) {
	lines := splitLines([]byte(a))
	var out strings.Builder
	at := 0
	diffLines := strings.SplitAfter(diff, "\n")
	for i := 2; i < len(diffLines)-1; i++ {
		line := diffLines[i]
		if strings.HasPrefix(line, "@@") {
			var from, count int
			if n, _ := fmt.Sscanf(line, "@@ -%d,%d", &from, &count); n == 1 {
				count = 1
			}
			if count > 0 {
				from--
			}
			for ; at < from; at++ {
				out.WriteString(lines[at])
			}
			continue
		}
		text := line[1:]
		if i+1 < len(diffLines) && diffLines[i+1] == noFinalNewline+"\n" {
			text = strings.TrimSuffix(text, "\n")
		}
		switch line[0] {
		case ' ', '-':
			if at >= len(lines) || lines[at] != text {
				return "", fmt.Errorf("line %d of the diff, %q, is not line %d", i+1, line, at+1)
			}
			if at++; line[0] == ' ' {
				out.WriteString(text)
			}
		case '+':
			out.WriteString(text)
		case '\\':
		default:
			return "", fmt.Errorf("line %d of the diff is %q", i+1, line)
		}
	}
	for ; at < len(lines); at++ {
		out.WriteString(lines[at])
	}
	return out.String(), nil
}

func checkDiff(a, b string) error {
	diff := UnifiedDiff([]byte(a), []byte(b), "a", "b")
	if a == b {
		if diff != "" {
			return fmt.Errorf("equal texts differ by %q", diff)
		}
		return nil
	}
	got, err := patch(a, diff)
	if err == nil && got != b {
		err = fmt.Errorf("patched it is %q", got)
	}
	if err != nil {
		return fmt.Errorf("%w\na %q\nb %q\n%s", err, a, b, diff)
	}
	return nil
}

func TestUnifiedDiffPatches(t *testing.T) {
	line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "--- x\n", "@@\n"})
	text := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(line, 0, 40).Draw(t, "lines")
		return strings.Join(lines, "") + rapid.SampledFrom([]string{"", "", "end", "a"}).Draw(t, "end")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		if err := checkDiff(a, b); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnifiedDiffIsShortest compares the number of edits with the longest common subsequence.
func TestUnifiedDiffIsShortest(t *testing.T) {
	letters := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		a, b := letters.Draw(t, "a"), letters.Draw(t, "b")
		common := make([][]int, len(a)+1)
		for i := range common {
			common[i] = make([]int, len(b)+1)
		}
		for i := range a {
			for j := range b {
				common[i+1][j+1] = max(common[i][j+1], common[i+1][j])
				if a[i] == b[j] {
					common[i+1][j+1] = common[i][j] + 1
				}
			}
		}
		got := 0
		for _, c := range edits(a, b) {
			got += c.a1 - c.a0 + c.b1 - c.b0
		}
		if want := len(a) + len(b) - 2*common[len(a)][len(b)]; got != want {
			t.Fatalf("%d edits from %v to %v, %d are enough", got, a, b, want)
		}
	})
}

func TestUnifiedDiff(t *testing.T) {
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d\n", i)
		}
		return b.String()
	}
	var out bytes.Buffer
	for _, c := range []struct{ a, b string }{
		{"", "new\n"},
		{"old\n", ""},
		{"a\nb\nc\n", "a\nB\nc\n"},
		{"a", "a\n"},
		{numbers(30), strings.Replace(strings.Replace(numbers(30), "\n3\n", "\nthree\n", 1), "\n20\n", "\n", 1)},
		{numbers(20), strings.Replace(strings.Replace(numbers(20), "\n3\n", "\nthree\n", 1), "\n10\n", "\n", 1)},
		{"a\x00", "b"},
		{"text\n", "\xff"},
		{numbers(3), numbers(diffLinesMax + 1)},
	} {
		out.WriteString(UnifiedDiff([]byte(c.a), []byte(c.b), "/etc/a", "a\nb") + "--\n")
	}
	golden(t, "diff.txt", out.String())
	out.Reset()
	for _, style := range []Style{{}, {Color: true}} {
		if err := WriteDiff(&out, UnifiedDiff([]byte("a\n\x1b[2J\n"), []byte("a\n\tb\n"), "a", "b"), style); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "diff-shown.txt", out.String())
}

// TestUnifiedDiffGivesUp: texts that have nothing in common are one change, without a search through all of them.
func TestUnifiedDiffGivesUp(t *testing.T) {
	a := strings.Repeat("a\nb\nc\n", diffEditsMax)
	b := strings.Repeat("x\ny\nz\n", diffEditsMax)
	if err := checkDiff("same\n"+a+"end\n", "same\n"+b+"end\n"); err != nil {
		t.Fatal(err)
	}
	if n := len(edits(splitLines([]byte(a)), splitLines([]byte(b)))); n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
}

func FuzzUnifiedDiff(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd")
	f.Add("", "\n\n")
	f.Add("a", "a\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		if isBinary([]byte(a)) || isBinary([]byte(b)) || len(a)+len(b) > 1<<14 {
			t.Skip("not shown as lines, or too long to be quick")
		}
		if err := checkDiff(a, b); err != nil {
			t.Fatal(err)
		}
	})
}
