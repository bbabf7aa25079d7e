package until

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	for text, want := range map[string]string{
		"2026-12-27T08:00:00Z": "2026-12-27T08:00:00Z", "2026-12-27 08:00": time.Date(2026, 12, 27, 8, 0, 0, 0, time.Local).Format(time.RFC3339),
		"2026-12-27": time.Date(2026, 12, 27, 0, 0, 0, 0, time.Local).Format(time.RFC3339), "tomorrow": "", "25:00": "", "": "",
	} {
		var e Moment
		if err := e.Set(text); e.String() != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", text, e.String(), err, want)
		}
	}
	for _, text := range []string{"00:00", "12:30", time.Now().Format("15:04")} {
		var e Moment
		if err := e.Set(text); err != nil || !e.After(time.Now()) || time.Until(e.Time) > 25*time.Hour || e.Format("15:04") != text {
			t.Errorf("%q: %v, %v", text, e, err)
		}
	}
}
