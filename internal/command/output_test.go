package command

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestOutputText(t *testing.T) {
	for _, row := range []struct{ printed, want string }{
		{"", ""},
		{"a\tb\r\nc\n\n", "a\tb\nc"},
		{"\x1b[31mred\x00\x7f\r", "␛[31mred␀␡␍"},
		{"\xff\xc3", "\ufffd\ufffd"},
		{"a\u202eb\u2028\u0085", "a\\u202eb\\u2028\ufffd"},
	} {
		var o Output
		_, _ = o.Write([]byte(row.printed))
		if got := o.Text(nil); got != row.want {
			t.Errorf("%q: got %q, want %q", row.printed, got, row.want)
		}
	}
	var o Output
	for _, part := range []string{"first ", strings.Repeat("ä", 5000), " hunter2 last"} {
		_, _ = o.Write([]byte(part))
	}
	got := o.Text(strings.NewReplacer("hunter2", "$PASSWORD"))
	if !strings.HasPrefix(got, "first ä") || !strings.HasSuffix(got, " $PASSWORD last") || !strings.Contains(got, " bytes left out …\n") {
		t.Errorf("%q", got)
	}
}

// TestOutputIsBounded: whatever is printed, in whatever pieces, the text is short, valid and harmless, and all of it when it is short.
func TestOutputIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Output
		var all []byte
		for _, piece := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 2000), 0, 10).Draw(t, "pieces") {
			_, _ = o.Write(piece)
			all = append(all, piece...)
		}
		text := o.Text(nil)
		if len(text) > textMax+100 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
		}) {
			t.Fatalf("%d bytes: %q", len(text), text)
		}
		if len(o.head) > headMax || cap(o.tail) > 4*tailMax || o.total != int64(len(all)) {
			t.Fatalf("%d and %d bytes are kept of %d, counted %d", len(o.head), cap(o.tail), len(all), o.total)
		}
		if len(all) <= headMax && text != strings.TrimRight(visible(string(all), 0, 0), "\n\t ") {
			t.Fatalf("%q, want all of %q", text, all)
		}
	})
}

func FuzzParentOf(f *testing.F) {
	f.Add([]byte("12 (a) b) S 7 12 12 0"))
	f.Add([]byte("12 (a"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if parent, ok := parentOf(stat); ok && parent == 0 && len(stat) < 5 {
			t.Error("a parent out of nothing")
		}
	})
}

func TestParentOf(t *testing.T) {
	if parent, ok := parentOf([]byte("12 (a) S 9) R 7 12 12 0 -1")); !ok || parent != 7 {
		t.Errorf("%d %v", parent, ok)
	}
}
