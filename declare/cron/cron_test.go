package cron

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func parsed(t testing.TB, text string) Expression {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return e
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Skipf("needs the zone database: %v", err)
	}
	return z
}

func TestParse(t *testing.T) {
	for a, b := range map[string]string{
		"@daily": "0 0 * * *", "@hourly": "0 0-23 1-31 * *", "@weekly": "0 0 * * 7", "@Monthly": "0\t0  1 1-12 *", "@yearly": "0 0 1 JAN *",
		"*/15 * * * *": "0,15,30,45 * * * *", "0 0 * * mon-fri": "0 0 * * 1-5", "0 0 * * 5-7": "0 0 * * fri,sat,0", "0 9-17/4 * * *": "0 9,13,17 * * *",
		"05 00 * * *": "5 0 * * *", "0 0 */40 * *": "",
	} {
		if x, err := Parse(a); b == "" && err == nil {
			t.Errorf("%q is taken as %+v", a, x)
		} else if b == "" {
			continue
		}
		x, y := parsed(t, a), parsed(t, b)
		if x.either, y.either = false, false; x != y {
			t.Errorf("%q is %+v, and %q is %+v", a, x, b, y)
		}
	}
	for text, want := range map[string]string{
		"": "there are 0 fields", "* * * *": "there are 4 fields", "* * * * * *": "there are 6 fields", "@reboot": "the words are", "60 * * * *": `minute "60" is not from 0 to 59`,
		"* 24 * * *": `hour "24"`, "* * 0 * *": `day of the month "0"`, "* * * 13 *": `month "13"`, "* * * * 8": `day of the week "8"`, "5-1 * * * *": "goes backwards", "1/5 * * * *": "steps go through",
		"*/0 * * * *": "steps are from 1", "*/-1 * * * *": "steps are from 1", "1,,2 * * * *": `minute ""`, "+1 * * * *": `minute "+1"`, "1- * * * *": `minute ""`, "* * * foo *": `month "foo"`,
		"* * * * anf": `day of the week "anf"`, "001 * * * *": `minute "001"`, strings.Repeat(" ", 300): "300 bytes", "* * * * 6-1": "goes backwards",
	} {
		if e, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want %q in it", text, e, err, want)
		}
	}
}

func TestNext(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	const layout = "2006-01-02 15:04 MST"
	for _, row := range []struct {
		expression, after string
		want              []string // up to "never"
	}{
		{"30 2 * * *", "2026-03-28 12:00 CET", []string{"2026-03-29 03:00 CEST", "2026-03-30 02:30 CEST"}},                           // made up for after the gap
		{"*/20 * * * *", "2026-03-29 01:30 CET", []string{"2026-03-29 01:40 CET", "2026-03-29 03:00 CEST", "2026-03-29 03:20 CEST"}}, // together, and once
		{"30 2 * * *", "2026-10-24 12:00 CEST", []string{"2026-10-25 02:30 CEST", "2026-10-26 02:30 CET"}},                           // what comes twice counts once
		{"*/30 * * * *", "2026-10-25 01:40 CEST", []string{"2026-10-25 02:00 CEST", "2026-10-25 02:30 CEST", "2026-10-25 03:00 CET"}},
		{"30 2 * * *", "2026-10-25 02:10 CET", []string{"2026-10-26 02:30 CET"}},
		{"0 0 1 * 1", "2026-11-25 00:00 CET", []string{"2026-11-30 00:00 CET", "2026-12-01 00:00 CET", "2026-12-07 00:00 CET"}}, // either
		{"0 0 */2 * 1", "2026-11-25 00:00 CET", []string{"2026-12-07 00:00 CET", "2026-12-21 00:00 CET"}},                       // both
		{"0 0 29 2 *", "2026-01-01 00:00 CET", []string{"2028-02-29 00:00 CET", "2032-02-29 00:00 CET"}},
		{"0 0 31 2,4 *", "2026-01-01 00:00 CET", []string{"never"}},
		{"59 23 31 12 *", "2026-12-31 23:59 CET", []string{"2027-12-31 23:59 CET"}},
		{"0 0 29 2 */7", "2088-03-01 00:00 CET", []string{"2128-02-29 00:00 CET"}}, // 2100 has no such day
	} {
		at, err := time.ParseInLocation(layout, row.after, berlin)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range row.want {
			got := "never"
			next, ok := parsed(t, row.expression).Next(at, berlin)
			if ok {
				got = next.Format(layout)
			}
			if got != want {
				t.Errorf("%q after %v: got %s, want %s", row.expression, at, got, want)
			}
			at = next
		}
	}
}

// text draws an expression that comes often enough to be met within days.
func text(t *rapid.T) string {
	draw := func(label, every string, least, most int) string {
		switch rapid.IntRange(0, 4).Draw(t, label) {
		case 0, 1:
			return every
		case 2:
			return fmt.Sprintf("*/%d", rapid.IntRange(1, min(most, 20)).Draw(t, label+" step"))
		case 3:
			from := rapid.IntRange(least, most).Draw(t, label+" from")
			return fmt.Sprintf("%d-%d", from, rapid.IntRange(from, most).Draw(t, label+" to"))
		}
		return fmt.Sprintf("%d,%d", rapid.IntRange(least, most).Draw(t, label+" one"), rapid.IntRange(least, most).Draw(t, label+" two"))
	}
	return strings.Join([]string{draw("minute", "*/30", 0, 59), draw("hour", "*", 0, 23), draw("day", "*", 1, 31), "*", draw("weekday", "*", 0, 7)}, " ")
}

// walk goes through the minutes of UTC, and looks at a clock of the zone as a person would: whenever it shows later than ever before, each
// minute that it has gone forward by is looked up.
func walk(e Expression, from time.Time, zone *time.Location, minutes int) []time.Time {
	matches := func(w time.Time) bool {
		day, weekday := e.days>>w.Day()&1 == 1, e.weekdays>>w.Weekday()&1 == 1
		if e.either {
			day = day || weekday
		} else {
			day = day && weekday
		}
		return e.minutes>>w.Minute()&1 == 1 && e.hours>>w.Hour()&1 == 1 && e.months>>w.Month()&1 == 1 && day
	}
	var due []time.Time
	latest := wallOf(from.In(zone))
	for back := range 48 * 60 {
		if w := wallOf(from.Add(-time.Duration(back) * time.Minute).In(zone)); w.After(latest) {
			latest = w
		}
	}
	for i := 1; i <= minutes; i++ {
		at := from.Add(time.Duration(i) * time.Minute)
		now, is := wallOf(at.In(zone)), false
		for ; latest.Before(now); is = is || matches(latest) {
			latest = latest.Add(time.Minute)
		}
		if is {
			due = append(due, at)
		}
	}
	return due
}

// TestWalk: Next finds what a person finds who watches the clock, over changes of it by an hour, half an hour, and a whole day.
func TestWalk(t *testing.T) {
	turns := []struct{ zone, before string }{
		{"Europe/Berlin", "2026-03-28T20:00:00Z"}, {"Europe/Berlin", "2026-10-24T20:00:00Z"}, {"America/New_York", "2026-03-08T00:00:00Z"}, {"America/New_York", "2026-10-31T22:00:00Z"},
		{"Australia/Lord_Howe", "2026-04-04T08:00:00Z"}, {"Australia/Lord_Howe", "2026-10-03T08:00:00Z"}, {"Pacific/Apia", "2011-12-29T20:00:00Z"}, {"America/Santiago", "2026-09-05T20:00:00Z"},
		{"Africa/Casablanca", "2026-02-14T20:00:00Z"}, {"Asia/Kathmandu", "2026-01-01T00:00:00Z"}, {"Pacific/Kwajalein", "1993-08-20T00:00:00Z"}, {"UTC", "2028-02-28T12:00:00Z"},
	}
	zones := make([]*time.Location, len(turns))
	for i := range turns {
		zones[i] = zone(t, turns[i].zone)
	}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(turns)-1).Draw(t, "turn")
		from, err := time.Parse(time.RFC3339, turns[i].before)
		if err != nil {
			t.Fatal(err)
		}
		from = from.Add(time.Duration(rapid.IntRange(0, 12*60).Draw(t, "minutes later")) * time.Minute)
		words := text(t)
		e, err := Parse(words)
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		const minutes = 50 * 60
		at, end := from, from.Add(minutes*time.Minute)
		for n, want := range walk(e, from, zones[i], minutes) {
			got, ok := e.Next(at, zones[i])
			if !ok || !got.Equal(want) {
				t.Fatalf("%q in %s after %v: got %v, want %v (the %dth)", words, turns[i].zone, at, got, want, n)
			}
			at = got.Add(time.Duration(rapid.IntRange(0, 59).Draw(t, "seconds")) * time.Second) // a leader that looks late
		}
		if got, ok := e.Next(at, zones[i]); ok && !got.After(end) {
			t.Fatalf("%q in %s after %v: got %v, and there is none before %v", words, turns[i].zone, at, got, end)
		}
	})
}

// FuzzParse: what is read is due after the time that was asked for, or never.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"* * * * *", "@daily", "*/5 1-3,7 1 jan-mar sun", "0 0 30 2 *", "59 23 31 12 7", "1/2 * * * *", "@", "- - - - -", "0 0 29 2 */7"} {
		f.Add(s, int64(1_793_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		e, err := Parse(text)
		if err != nil {
			if len(err.Error()) > 2*TextBytesMax {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		after := time.Unix(unix%(1<<33), 0)
		if at, ok := e.Next(after, time.UTC); ok && (!at.After(after) || at.Second() != 0) {
			t.Errorf("%q is due at %v, after %v", text, at, after)
		}
	})
}
