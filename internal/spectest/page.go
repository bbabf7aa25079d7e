package spectest

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write vectors, and the tables of the reference that are made from the code")

// Golden wants a file to have just that content.
func Golden(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err == nil && bytes.Equal(got, want) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code makes (%v): see what has changed for those who speak to this version, and write it with -update", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, want, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Bounds wants the first table below a heading of a page to have a row for each of these names, and no other one, with what they are in its
// second column: numbers in groups of three digits, durations as 30 s, texts as they are.
func Bounds(t *testing.T, page, heading string, want map[string]any) {
	t.Helper()
	compare(t, page, heading, want, func(line string) bool { return strings.HasPrefix(line, "#") && strings.TrimLeft(line, "# ") == heading })
}

// Table is Bounds of the first table whose first column has that title.
func Table(t *testing.T, page, column string, want map[string]any) {
	t.Helper()
	compare(t, page, "table of "+column, want, func(line string) bool { return strings.HasPrefix(line, "| "+column+" |") })
}

func compare(t *testing.T, page, where string, want map[string]any, begins func(line string) bool) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, begins)
	if at < 0 {
		t.Fatalf("%s has no %s", page, where)
	}
	for at < len(lines) && !strings.HasPrefix(lines[at], "|") {
		at++
	}
	missing, changed := maps.Clone(want), false
	for at += 2; at < len(lines) && strings.HasPrefix(lines[at], "|"); at++ { // behind the titles and the rule
		cells := strings.Split(lines[at], "|")
		name := strings.Trim(cells[1], " `")
		value, known := want[name]
		if !known {
			t.Errorf("%s, %s: nothing in the code is called %q here", page, where, name)
			continue
		}
		delete(missing, name)
		if is := words(value); strings.Trim(cells[2], " `") != is {
			if !*update {
				t.Errorf("%s, %s: %s is said to be %s, and is %s", page, where, name, strings.TrimSpace(cells[2]), is)
			}
			cells[2], changed = " "+is+" ", true
			lines[at] = strings.Join(cells, "|")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s, %s: it does not say that %s is %s", page, where, name, words(want[name]))
	}
	if changed && *update {
		if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// words is a value as a page has it.
func words(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Duration:
		return span(v)
	}
	digits := fmt.Sprintf("%d", v)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// span is a duration in the largest unit that it is a whole number of.
func span(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= u.of && d%u.of == 0 {
			return fmt.Sprintf("%d %s", d/u.of, u.name)
		}
	}
	return d.String()
}
