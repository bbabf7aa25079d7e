package present

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func TestUseColor(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     ColorMode
		terminal bool
		env      map[string]string
		want     bool
	}{
		{"terminal", ColorAuto, true, nil, true},
		{"pipe", ColorAuto, false, nil, false},
		{"dumb", ColorAuto, true, map[string]string{"TERM": "dumb"}, false},
		{"NO_COLOR", ColorAuto, true, map[string]string{"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, false},
		{"empty NO_COLOR", ColorAuto, true, map[string]string{"NO_COLOR": ""}, true},
		{"forced into a pipe", ColorAuto, false, map[string]string{"CLICOLOR_FORCE": "1"}, true},
		{"forced with 0", ColorAuto, false, map[string]string{"CLICOLOR_FORCE": "0"}, false},
		{"always", ColorAlways, false, map[string]string{"NO_COLOR": "1", "TERM": "dumb"}, true},
		{"never", ColorNever, true, map[string]string{"CLICOLOR_FORCE": "1"}, false},
	} {
		if got := UseColor(c.mode, c.terminal, func(k string) string { return c.env[k] }); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if _, err := ParseColorMode("sometimes"); !reason.Is(err, reason.Usage) {
		t.Errorf("an unknown mode: %v", err)
	}
	if m, err := ParseColorMode(""); m != ColorAuto || err != nil {
		t.Errorf("no mode: %v, %v", m, err)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"/etc/motd":    "/etc/motd",
		"/a b":         "/a b",
		"/é/漢字":        "/é/漢字",
		"":             `""`,
		"a\nb":         `"a\nb"`,
		"\x1b[31m":     `"\x1b[31m"`,
		"a\xffb":       `"a\xffb"`,
		` a`:           `" a"`,
		`a"b`:          `"a\"b"`,
		"a\u202eb":     `"a\u202eb"`,
		"a\u009bb":     `"a\u009bb"`,
		"nbsp\u00a0":   `"nbsp\u00a0"`,
		"\U000e0001 x": `"\U000e0001 x"`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got, want := Escape("a\tb\x1b\xff\u202e\n"), `a    b\x1b\xff\u202e\n`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWidth(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "漢字": 4, "한": 2, "😀": 2, "✔ Kept": 6, "⚡": 2} {
		if got := Width(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for text, want := range map[string]string{"abc": "abc", "abcd": "abcd", "abcde": "abc…", "漢字漢": "漢…", "a漢字漢": "a漢…"} {
		if got := truncate(text, 4); got != want {
			t.Errorf("%q cut to 4 columns is %q, want %q", text, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table{Header: []string{"RESOURCE", "OUTCOME", "REASON"}}
	table.AddCells(PlainCell("file/motd"), Outcome(reason.Kept, ""), PlainCell(""))
	table.AddCells(PlainCell("file/漢字\x1b[2J"), Outcome(reason.Repaired, reason.Drift), PlainCell("changed by uid 1000 (vim) at 14:01:07"))
	table.AddCells(PlainCell("service/nginx"), Outcome(reason.Failed, reason.Denied), PlainCell("TK0501"))
	var out bytes.Buffer
	for _, style := range []Style{{}, {Width: 60}, {Width: 200}, {Width: 200, Color: true}, {Width: 9}} {
		if err := table.Write(&out, style); err != nil {
			t.Fatal(err)
		}
		out.WriteString("--\n")
	}
	golden(t, "table.txt", out.String())
	if out.Reset(); table.Write(&out, Style{}) != nil || strings.Contains(out.String(), "\x1b") {
		t.Errorf("a cell reaches the terminal: %q", out.String())
	}
}

func TestFaultsStyles(t *testing.T) {
	source := func(name string) ([]byte, error) {
		if name != "w\x1beb.yaml" {
			return nil, errors.New("no such file")
		}
		return []byte("a: b\r\n漢字: \tvalue # \x1b[31m\r\nlast"), nil
	}
	faults := []declare.Fault{
		{Code: reason.UnknownField, File: "w\x1beb.yaml", Line: 2, Column: 6, Message: "unknown field \"\x1b\"", Hint: "a hint", Related: []declare.Place{{File: "w\x1beb.yaml", Line: 1, Column: 1}}},
		{Code: reason.MalformedYAML, File: "w\x1beb.yaml", Line: 3, Column: 40, Message: "behind the end of a line"},
		{Code: reason.MalformedYAML, File: "w\x1beb.yaml", Line: 9, Column: 1, Message: "behind the end of the file"},
		{Code: reason.DeclarationUnread, File: "gone.yaml", Message: "cannot be read"},
		{Code: reason.DependencyCycle, Path: "spec.resources[0]", Message: "a place without a file"},
	}
	var out bytes.Buffer
	for _, style := range []Style{{}, {Color: true}} {
		if err := Faults(&out, faults, source, style); err != nil {
			t.Fatal(err)
		}
		out.WriteString("--\n")
	}
	golden(t, "faults.txt", out.String())
	out.Reset()
	if err := Faults(&out, make([]declare.Fault, 25), nil, Style{}); err != nil || !strings.HasSuffix(out.String(), "\n5 more errors:\n"+strings.Repeat("  : TK0000: \n", 5)) {
		t.Errorf("of 25 faults the end is %q, %v", out.String()[max(out.Len()-40, 0):], err)
	}
}

func TestOutcome(t *testing.T) {
	for want, got := range map[string]Cell{
		"✔ Kept":             Outcome(reason.Kept, ""),
		"↻ Repaired (drift)": Outcome(reason.Repaired, reason.Drift),
		"✗ Failed (denied)":  Outcome(reason.Failed, reason.Denied),
		"– Not applicable":   Outcome(reason.NotApplicable, ""),
		"? Unknown":          Outcome(reason.Unknown, ""),
	} {
		if got.String() != want || got.Render(Style{}) != want || !strings.Contains(got.Render(Style{Color: true}), want) {
			t.Errorf("got %q, want %q", got.Render(Style{Color: true}), want)
		}
	}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms": 0, "850ms": 850 * time.Millisecond, "1s": time.Second, "59s": time.Minute - 1, "2m": 2*time.Minute + 59*time.Second,
		"5h": 5 * time.Hour, "47h": 48*time.Hour - 1, "12d": 12*24*time.Hour + 1, "-3s": -3 * time.Second,
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
	now := time.Unix(1000, 0)
	for want, at := range map[string]time.Time{"3s ago": time.Unix(997, 0), "just now": time.Unix(2000, 0)} {
		if got := Ago(at, now); got != want {
			t.Errorf("%v is %s, want %s", at, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for want, n := range map[string]int64{
		"0 B": 0, "512 B": 512, "1023 B": 1023, "1 KiB": 1024, "1.5 KiB": 1536, "1 MiB": 1<<20 - 1, "20 MiB": 20 << 20, "8 EiB": 1<<63 - 1, "-1.5 KiB": -1536,
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
