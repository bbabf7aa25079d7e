package calendar

import (
	"fmt"
	"os/exec"
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
	for text, want := range map[string]string{
		"daily": "*-*-* 00:00:00", "MINUTELY": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "weekly UTC": "Mon *-*-* 00:00:00 UTC", "monthly": "*-*-01 00:00:00",
		"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00", "bi-annually": "*-01,07-01 00:00:00", "yearly": "*-01-01 00:00:00",
		"Mon..Fri 02:00": "Mon..Fri *-*-* 02:00:00", "mon-fri 1:2": "Mon..Fri *-*-* 01:02:00", "Sat,Sun": "Sat,Sun *-*-* 00:00:00", "Mon,Mon..Wed": "Mon..Wed *-*-* 00:00:00",
		"Mon..Sun": "*-*-* 00:00:00", "Mon,": "Mon *-*-* 00:00:00", "Mon,Wed,Fri": "Mon,Wed,Fri *-*-* 00:00:00", "Tuesday..Thursday  *-1-1": "Tue..Thu *-01-01 00:00:00",
		"*-*-01 04:00:00": "*-*-01 04:00:00", "1-2": "*-01-02 00:00:00", "*-02~01": "*-02~01 00:00:00", "*-*~07/1": "*-*~07/1 00:00:00", "*-*~3..7/2": "*-*~03..07/2 00:00:00",
		"69-1-1": "2069-01-01 00:00:00", "70-1-1": "1970-01-01 00:00:00", "2020..69-1-1": "2020..2069-01-01 00:00:00", "*:0/15": "*-*-* *:00/15:00", "1..1:00": "*-*-* 01:00:00",
		"1..5/7:00": "*-*-* 01:00:00", "1,1,2,1..3:00": "*-*-* 01,01..03,02:00:00", "*:*:*": "*-*-* *:*:*", "*:*:0/1": "*-*-* *:*:*", "*:*:5/0.5": "*-*-* *:*:05/0.500000",
		"12:00:00.1234567": "*-*-* 12:00:00.123457", "*:*:0..59.5": "*-*-* *:*:00..59", "1:00 utc": "*-*-* 01:00:00 UTC", "12:00 Europe/Berlin": "*-*-* 12:00:00 Europe/Berlin",
		"1:00 EST5EDT": "*-*-* 01:00:00 EST5EDT", "*-1..12-1": "*-01..12-01 00:00:00", "2026-01-01 ": "2026-01-01 00:00:00",
	} {
		e := parsed(t, text)
		if got := e.String(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if again := parsed(t, e.String()); again.String() != e.String() {
			t.Errorf("%q: its normal form %q is read as %q", text, e, again)
		}
	}
	for text, want := range map[string]string{
		"": "empty", "@1395716396": "single moment", strings.Repeat("x", 300): "300 bytes", "*/2-*-*": "neither a date nor a time", "Fri..Mon": "Fri..Mon go backwards",
		"Mon Tue": "number is expected", "*-*-* 25:00": "hour 25", "12:60": "minute 60", "12:00:60": "second 60", "5..1:00": "go backwards", "20/10:00": "past the end",
		"*-*-31/1": "past the end", "*-*~29": "day 29", "*-*~1/3": "past the end", "*-*~7..3": "go backwards", "2200-1-1": "year 2200", "Sat.. 1:00": "have no end", "Mon,,": "neither a day",
		" daily": "number is expected", "daily ": "neither a day", "UTC": "neither a day", "1:00  UTC": "follows the time", "2026-1": "month 2026", "1:00:": "number is expected", "1/0:00": "steps of 0",
		"*:*:1.": "no digit follows", "*-*-* 1:00 Mon": "follows the time", "mon*-*-*": "does not follow a day", "9999999999:00": "too large", "12 10:00": "neither a date nor a time",
		"1-2~3~4": "does not follow a date", "Mon-": "have no end", "x": "neither a day", "0" + strings.Repeat(",1", 60) + ":00": "at most 60",
	} {
		if e, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q in it", text, e, err, want)
		}
	}
}

func TestNext(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, row := range []struct {
		expression, after string
		want              []string // up to "never"
	}{
		{"*-*-* 02:30", "2026-03-28 12:00 CET", []string{"2026-03-30 02:30 CEST"}}, // there is no 02:30 on the 29th
		{"*-*-* 02:30", "2026-10-24 12:00 CEST", []string{"2026-10-25 02:30 CEST", "2026-10-26 02:30 CET"}},
		{"*:0/30", "2026-10-25 01:30 CEST", []string{"2026-10-25 02:00 CEST", "2026-10-25 02:30 CEST", "2026-10-25 03:00 CET"}},
		{"*:0/30", "2026-10-25 02:10 CET", []string{"2026-10-25 03:00 CET"}},
		{"*:0/30", "2026-03-29 01:30 CET", []string{"2026-03-29 03:00 CEST"}},
		{"*-02-29", "2026-01-01 00:00 CET", []string{"2028-02-29 00:00 CET", "2032-02-29 00:00 CET"}},
		{"*-02-30", "2026-01-01 00:00 CET", []string{"never"}},
		{"*-*~1 23:59", "2026-11-22 00:00 CET", []string{"2026-11-30 23:59 CET", "2026-12-31 23:59 CET"}},
		{"Fri *-*-13", "2026-01-01 00:00 CET", []string{"2026-02-13 00:00 CET", "2026-03-13 00:00 CET", "2026-11-13 00:00 CET"}},
		{"2026-11-22 10:00", "2026-11-22 09:59 CET", []string{"2026-11-22 10:00 CET", "never"}},
		{"20/3:00", "2026-11-22 21:00 CET", []string{"2026-11-22 23:00 CET", "2026-11-23 20:00 CET"}},
		{"Mon *:59:59.999999", "2026-11-23 23:00 CET", []string{"2026-11-23 23:59:59.999999 CET", "2026-11-30 00:59:59.999999 CET"}},
		{"daily", "2199-12-31 00:00 CET", []string{"never"}},
		{"daily", "1960-01-01 00:00 CET", []string{"1970-01-01 00:00 CET"}},
	} {
		at, err := time.ParseInLocation("2006-01-02 15:04 MST", row.after, berlin)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range row.want {
			got := "never"
			next, ok := parsed(t, row.expression).Next(at, berlin)
			if ok {
				layout := "2006-01-02 15:04 MST"
				if next.Second() != 0 {
					layout = "2006-01-02 15:04:05.999999 MST"
				}
				got = next.Format(layout)
			}
			if got != want {
				t.Errorf("%q after %v: got %s, want %s", row.expression, at, got, want)
			}
			at = next
		}
	}
}

// TestGapIsSkippedAtOnce: there are more moments in the hour that clocks skip, or show twice, than anybody would want to go through.
func TestGapIsSkippedAtOnce(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	e := parsed(t, "02:*:0/0.000001")
	for _, row := range [][2]string{{"2026-03-29T00:59:59Z", "2026-03-30T00:00:00Z"}, {"2026-10-25T01:00:00Z", "2026-10-26T01:00:00Z"}} {
		after, err := time.Parse(time.RFC3339, row[0])
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := e.Next(after, berlin); !ok || got.UTC().Format(time.RFC3339) != row[1] {
			t.Errorf("after %s: %v, want %s", row[0], got, row[1])
		}
	}
}

// genList makes lists of values, ranges and steps.
func genList(t *rapid.T, label string, from, to int) string {
	if rapid.IntRange(0, 2).Draw(t, label+" any") == 0 {
		return "*"
	}
	var parts []string
	for range rapid.IntRange(1, 3).Draw(t, label+" members") {
		start := rapid.IntRange(from, to).Draw(t, label+" start")
		part := fmt.Sprint(start)
		if start < to && rapid.IntRange(0, 2).Draw(t, label+" range") == 0 {
			part += fmt.Sprintf("..%d", rapid.IntRange(start+1, to).Draw(t, label+" stop"))
		}
		if start < to && rapid.IntRange(0, 2).Draw(t, label+" steps") == 0 {
			part += fmt.Sprintf("/%d", rapid.IntRange(1, to-start).Draw(t, label+" step"))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// genExpression makes expressions that are mostly valid.
func genExpression(t *rapid.T) string {
	text := ""
	for _, day := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"Mon", "tuesday", "Wed..Fri", "Sat", "Sun"}), 0, 3, rapid.ID[string]).Draw(t, "weekdays") {
		text += day + ","
	}
	if text != "" {
		text = strings.TrimSuffix(text, ",") + " "
	}
	if rapid.Bool().Draw(t, "date") {
		if rapid.Bool().Draw(t, "year") {
			text += genList(t, "year", 2024, 2031) + "-"
		}
		text += genList(t, "month", 1, 12)
		if rapid.IntRange(0, 3).Draw(t, "from end") == 0 {
			// Of a longer list systemd 252 takes the later members only if they are near the end of the month.
			list, _, _ := strings.Cut(genList(t, "day", 1, 28), ",")
			text += "~" + list + " "
		} else {
			text += "-" + genList(t, "day", 1, 31) + " "
		}
	}
	text += genList(t, "hour", 0, 23) + ":" + genList(t, "minute", 0, 59)
	if rapid.Bool().Draw(t, "seconds") {
		text += ":" + genList(t, "second", 0, 59)
	}
	return text
}

// TestNextAgainstModel compares with a model that tries every minute of some days.
func TestNextAgainstModel(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	rapid.Check(t, func(t *rapid.T) {
		text := genExpression(t)
		e, err := Parse(text)
		if err != nil {
			t.Skip(err)
		}
		// Days with a change of clocks among them.
		begin := time.Date(2026, rapid.SampledFrom([]time.Month{2, 3, 10, 12}).Draw(t, "month"), rapid.IntRange(22, 31).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"), 0, 0, 0, berlin)
		end := begin.Add(9 * 24 * time.Hour)
		var want []time.Time
		shown := map[string]bool{}
		for at := begin.Add(-3 * time.Hour); at.Before(end); at = at.Add(time.Minute) {
			wall := at.Format("2006-01-02 15:04")
			second := shown[wall] // the same on the clock
			shown[wall] = true
			if !second && matches(e, at) && at.After(begin) {
				micro, _ := e.micro.atLeast(0, minute-1)
				want = append(want, at.Add(time.Duration(micro)*time.Microsecond))
			}
		}
		at := begin.Add(time.Minute - time.Microsecond)
		for _, w := range want {
			got, ok := e.Next(at, berlin)
			if !ok || !got.Equal(w) {
				t.Fatalf("%q after %v: got %v, want %v", text, at, got, w)
			}
			at = w.Truncate(time.Minute).Add(time.Minute - time.Microsecond) // on to the next minute
		}
		if got, ok := e.Next(at, berlin); ok && got.Before(end) && got.Truncate(time.Minute).After(at) {
			t.Fatalf("%q after %v: got %v, want nothing before %v", text, at, got, end)
		}
		// A window contains what is at most its duration after a time of the expression.
		w := Window{Opens: e, Duration: time.Duration(rapid.IntRange(1, 200).Draw(t, "duration")) * time.Minute}
		now := begin.Add(time.Duration(rapid.IntRange(180, 9*24*60-1).Draw(t, "now")) * time.Minute).Add(59 * time.Second)
		opened, ok := e.Next(now.Add(-w.Duration), berlin)
		if w.Contains(now, berlin) != (ok && !opened.After(now)) {
			t.Fatalf("%q for %v at %v: %v", text, w.Duration, now, opened)
		}
	})
}

// matches tells by looking whether an expression elapses in a minute.
func matches(e Expression, at time.Time) bool {
	has := func(f field, v int) bool {
		if len(f) == 0 {
			return true
		}
		for _, s := range f {
			for x, n := s.start, 0; x <= v && n < 4000; x, n = x+s.repeat, n+1 {
				if x == v && (s.stop == none || x <= s.stop) {
					return true
				}
				if s.repeat == 0 {
					break
				}
			}
		}
		return false
	}
	day, days := at.Day(), e.day
	if e.fromEnd {
		last := time.Date(at.Year(), at.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
		days = nil
		for _, s := range e.day {
			first := s.start // the number from the end of the earliest day
			if s.stop != none {
				first = s.stop
			}
			for d := last + 1 - first; d <= last; d += max(s.repeat, 1) {
				if s.stop == none || last+1-d >= s.start {
					days = append(days, step{start: d, stop: none})
				}
				if s.repeat == 0 {
					break
				}
			}
		}
		if len(e.day) == 0 {
			days = nil
		}
	}
	weekday := int(at.Weekday()+6) % 7
	return (e.weekdays == 0 || e.weekdays>>weekday&1 != 0) && has(e.year, at.Year()) && has(e.month, int(at.Month())) && has(days, day) && has(e.hour, at.Hour()) && has(e.minute, at.Minute())
}

// systemdAnalyze asks the host's systemd about an expression.
func systemdAnalyze(t testing.TB, text, base, zone string, iterations int) (normal string, next []time.Time, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "calendar", "--iterations="+fmt.Sprint(iterations), "--base-time="+base, "--", text)
	cmd.Env = []string{"TZ=" + zone, "LC_ALL=C", "PATH=/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		if !strings.Contains(string(out), "Failed to parse calendar") {
			t.Logf("%q: %s", text, out)
			return "", nil, true // it gave up looking for when it elapses
		}
		return "", nil, false
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case key == "Normalized form":
			normal = value
		case key == "(in UTC)", zone == "UTC" && (key == "Next elapse" || strings.HasPrefix(key, "Iter")) && value != "never":
			at, err := time.Parse("Mon 2006-01-02 15:04:05 MST", strings.TrimSpace(value))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			next = append(next, at)
		}
	}
	return normal, next, true
}

// systemdSkips reports whether systemd may leave out a moment at which an expression elapses by our model: looking for a repetition such as that of *-1/8 it goes
// beyond the end of a month, a day or an hour, and goes on behind the first ones of the next (systemd 252, which says that *-1/8 is 9 January after 28 December).
func systemdSkips(e Expression, normal string, local time.Time) bool {
	return strings.Contains(normal, "/") && matches(e, local)
}

// TestAgainstSystemd compares what is accepted, the normal form and when it elapses with systemd's own.
func TestAgainstSystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	if testing.Short() {
		t.Skip("needs seconds: a hundred programs are run")
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := genExpression(rt)
		if rapid.IntRange(0, 9).Draw(rt, "spoilt") == 0 {
			at := rapid.IntRange(0, len(text)-1).Draw(rt, "where")
			text = text[:at] + rapid.SampledFrom([]string{",", ".", "/", "~", "-", " ", "*", "9", "x", ":"}).Draw(rt, "by what") + text[at+1:]
		}
		name := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}).Draw(rt, "zone")
		location := zone(t, name)
		begin := time.Date(2026, time.Month(rapid.IntRange(1, 12).Draw(rt, "month")), rapid.IntRange(1, 28).Draw(rt, "day"), rapid.IntRange(0, 23).Draw(rt, "hour"), rapid.IntRange(0, 59).Draw(rt, "minute"), 0, 0, time.UTC)
		normal, next, ok := systemdAnalyze(t, text, "@"+fmt.Sprint(begin.Unix()), name, 4)
		e, err := Parse(text)
		if ok != (err == nil) {
			rt.Fatalf("%q: systemd takes it: %v; %v", text, ok, err)
		}
		if !ok || normal == "" {
			return
		}
		if again, err := Parse(normal); err != nil || e.String() != normal && e.String() != again.String() { // of "0,0/1" and the like systemd makes *
			rt.Fatalf("%q: normal form %q, systemd's %q", text, e, normal)
		}
		at := begin
		for i, want := range next {
			got, ok := e.Next(at, location)
			if ok && got.Before(want) && systemdSkips(e, normal, got.In(location)) {
				return
			}
			if !ok || !got.Truncate(time.Second).Equal(want) {
				rt.Fatalf("%q in %s after %v, number %d: got %v, systemd says %v", text, name, at, i, got, want)
			}
			at = got
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"daily", "Mon..Fri,Sun 2020..2030/2-*~3/2 1,2:3/4:5.6/7 Europe/Berlin", "*:*:*", "@5", "1..1:00"} {
		f.Add(text)
	}
	berlin := zone(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(e.String())
		if err != nil || again.String() != e.String() {
			t.Fatalf("%q: normal form %q is read as %q, %v", text, e, again, err)
		}
		now := time.Date(2026, 3, 28, 12, 0, 0, 0, berlin)
		one, ok := e.Next(now, berlin)
		other, okOther := again.Next(now, berlin)
		if ok != okOther || !one.Equal(other) || ok && !one.After(now) {
			t.Fatalf("%q after %v: %v and %v", text, now, one, other)
		}
	})
}
