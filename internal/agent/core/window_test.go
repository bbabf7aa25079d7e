package core

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// windowOf is the window of the only resource of a config.
func windowOf(t *testing.T, lines string) (converge.Vertex, *Item) {
	t.Helper()
	in := input(t, lines+"  resources:\n  - name: s\n    service: {}\n")
	in.Zones = time.LoadLocation
	c := compile(t, in)
	return c.Graph.Vertices[0], &c.Items[0]
}

func TestWindows(t *testing.T) {
	v, it := windowOf(t, `  windows: [{opens: "Sun 02:00", duration: 2h}, {opens: "Wed 12:00 Asia/Tokyo", duration: 30m}]`+"\n")
	if it.Err != nil || v.Frozen {
		t.Fatalf("%+v, %+v", v, it.Err)
	}
	east := time.FixedZone("east", 5*60*60)
	at := func(text string) time.Time {
		day, err := time.ParseInLocation("2006-01-02 15:04:05", text, east)
		if err != nil {
			t.Fatal(err)
		}
		return day
	}
	for _, c := range []struct {
		now, next string // next is empty where it is open
	}{
		{"2026-11-22 01:59:59", "2026-11-22 02:00:00"}, // a Sunday
		{"2026-11-22 02:00:00", ""},
		{"2026-11-22 03:59:59", ""},
		{"2026-11-22 04:00:00", "2026-11-25 08:00:00"}, // noon in Tokyo, four hours further east
		{"2026-11-25 08:29:00", ""},
		{"2026-11-25 08:30:00", "2026-11-29 02:00:00"},
	} {
		open, next := v.Window.Open(at(c.now))
		if open != (c.next == "") || !open && !next.Equal(at(c.next)) {
			t.Errorf("at %s: open %v, next %v; want %s", c.now, open, next, c.next)
		}
	}
	// The host's zone is that of the time: an hour in the other is not Sunday night yet.
	if open, _ := v.Window.Open(at("2026-11-22 02:30:00").In(time.UTC)); open {
		t.Error("it is open in another zone")
	}
}

func TestWindowThatIsOver(t *testing.T) {
	v, _ := windowOf(t, `  windows: [{opens: "2020-01-01 02:00", duration: 2h}]`+"\n"+`  windowFor: changes`+"\n")
	if open, next := v.Window.Open(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); open || !next.IsZero() || !v.Frozen {
		t.Errorf("open %v, next %v, %+v", open, next, v)
	}
}

// TestSameWindowsAreOne: the engine asks each once.
func TestSameWindowsAreOne(t *testing.T) {
	in := input(t, `  windows: [{opens: "02:00", duration: 2h}]`+"\n  resources:\n  - name: a\n    service: {}\n  - name: b\n    service: {}\n  - name: c\n    service: {}\n    windowFor: nothing\n  - name: f\n    file: {path: /f}\n")
	in.Zones = time.LoadLocation
	c := compile(t, in)
	windows := map[converge.Window]int{}
	for _, v := range c.Graph.Vertices {
		windows[v.Window]++
	}
	if len(windows) != 2 || windows[nil] != 2 {
		t.Errorf("%v", windows)
	}
}

func TestWindowInAnUnknownZone(t *testing.T) {
	in := input(t, `  windows: [{opens: "02:00 Europe/Nowhere", duration: 2h}]`+"\n  resources:\n  - name: s\n    service: {}\n")
	in.Zones = func(name string) (*time.Location, error) { return nil, errors.New("unknown time zone " + name) }
	c := compile(t, in)
	it, v := &c.Items[0], &c.Graph.Vertices[0]
	if it.Err == nil || it.Err.Code != reason.WindowZone || !it.Unfit || !strings.Contains(it.Err.Error(), "Europe/Nowhere") {
		t.Errorf("%+v", it)
	}
	if open, _ := v.Window.Open(time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)); open {
		t.Error("it is open")
	}
}
