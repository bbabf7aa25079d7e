package present

import (
	"testing"
	"time"
)

func TestHappening(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC).Local()
	for _, row := range []struct {
		h    Happening
		want string
	}{
		{Happening{Title: "file/a", Outcome: "kept"}, "✔ Kept                 file/a"},
		{Happening{
			Title: "file/a b", Outcome: "repaired", Detail: "drift", Changes: []string{"mode 0600 -> 0644", "owner"}, Message: "two\nlines", Writer: "uid 7", Cause: "event",
			Took: 1500 * time.Microsecond,
		}, "↻ Repaired (drift)     file/a b: mode 0600 -> 0644, owner: two\\nlines; changed by uid 7  (1.5ms, cause: event)"},
		{Happening{Title: "x\x1b", Outcome: "of a later version", Took: 12345678 * time.Nanosecond}, "? Unknown              \"x\\x1b\"  (12.35ms)"},
	} {
		row.h.At = at
		want := at.Format(time.DateTime) + "  " + row.want
		if got := row.h.Line(time.DateTime, Style{}); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
