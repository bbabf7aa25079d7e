// Package calendar reads the calendar expressions of systemd.time(7), such as "daily", "Mon..Fri 02:00" or "*-*-01 04:00:00 UTC", and
// says when they elapse. It is pure: it reads neither a clock nor the zones of a host, both are arguments.
//
//	expression: [WEEKDAYS] [[YEAR-]MONTH-DAY] [HOUR:MINUTE[:SECOND]] [ZONE], or a word such as "daily"
//	WEEKDAYS:   Mon,Wed..Fri            DAY:  after ~ instead of - counted from the end of the month
//	each part:  *, or a list of VALUE, FROM..TO, each with /STEP; seconds have up to six decimals
//
// An expression is a set of wall-clock times. Where clocks go forward, those that are skipped do not elapse. Where clocks go back, those
// that come twice elapse the first time only.
//
// Not read are a single moment in seconds since 1970 ("@1395716396") and the abbreviations of a host's own zone ("CEST"): what they mean
// is not the same on every host.
package calendar

import (
	"strconv"
	"strings"
)

// The bounds of systemd.
const (
	yearMin, yearMax = 1970, 2199
	second           = 1_000_000 // the finest part are microseconds
	minute           = 60 * second
	fromEndMax       = 28 // days before the end of the month: every month has these
	// TextBytesMax bounds the text of an expression, and StepsMax the members of a list: ours, far above any real one.
	TextBytesMax = 256
	StepsMax     = 60
)

// Expression is one calendar expression. Expressions that mean the same have the same String.
type Expression struct {
	weekdays         uint8 // bit 0 is Monday; 0 is any
	year, month, day field
	fromEnd          bool // days are counted from the end of the month, which is 1
	hour, minute     field
	micro            field // seconds, in microseconds
	zone             string
}

// step is one member of a list: start, and what follows in steps of repeat up to stop.
type step struct {
	start, stop, repeat int // stop is none where it is not given, repeat 0
}

const none = -1

// field is the values of one part; empty is any.
type field []step

// atLeast returns the smallest value of a field that is not less than v nor more than most.
func (f field) atLeast(v, most int) (int, bool) {
	if len(f) == 0 {
		return v, v <= most
	}
	best := most + 1
	for _, s := range f {
		best = min(best, s.atLeast(v, best))
	}
	return best, best <= most
}

// atLeast returns the smallest value of a step that is not less than v, or other.
func (s step) atLeast(v, other int) int {
	switch {
	case s.start >= v:
		return s.start
	case s.repeat == 0:
		return other
	}
	at := s.start + (v-s.start+s.repeat-1)/s.repeat*s.repeat
	if s.stop != none && at > s.stop {
		return other
	}
	return at
}

// Zone returns the name of the time zone that the expression is in; empty for that of the host.
func (e Expression) Zone() string { return e.zone }

// names of days, as they are written.
func dayNames() [7]string {
	return [...]string{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"}
}

// short is the name of a day, as it is shown.
func short(day int) string { return dayNames()[day][:3] }

// String returns the expression in its normal form, as `systemd-analyze calendar` does.
func (e Expression) String() string {
	var b strings.Builder
	if days := e.weekdayText(); days != "" {
		b.WriteString(days + " ")
	}
	last := "-"
	if e.fromEnd {
		last = "~"
	}
	b.WriteString(e.year.text(4) + "-" + e.month.text(2) + last + e.day.text(2))
	b.WriteString(" " + e.hour.text(2) + ":" + e.minute.text(2) + ":" + e.micro.secondsText())
	if e.zone != "" {
		b.WriteString(" " + e.zone)
	}
	return b.String()
}

// weekdayText joins three and more days in a row by "..".
func (e Expression) weekdayText() string {
	var parts []string
	for day := 0; day < 7; day++ {
		end := day
		for end < 7 && e.weekdays>>end&1 != 0 {
			end++
		}
		if end-day > 2 {
			parts = append(parts, short(day)+".."+short(end-1))
			day = end - 1
		} else if end > day {
			parts = append(parts, short(day))
		}
	}
	return strings.Join(parts, ",")
}

func (f field) text(width int) string {
	return f.join(1, func(v int, padded bool) string {
		text := strconv.Itoa(v)
		if padded {
			text = strings.Repeat("0", max(0, width-len(text))) + text
		}
		return text
	})
}

func (f field) secondsText() string {
	if len(f) == 1 && f[0] == everySecond() {
		return "*"
	}
	return f.join(second, func(v int, padded bool) string {
		text := strconv.Itoa(v / second)
		if padded && len(text) < 2 {
			text = "0" + text
		}
		if rest := v % second; rest > 0 {
			text += "." + strconv.Itoa(rest + second)[1:]
		}
		return text
	})
}

// join writes a list; a range in steps of unit is written without them.
func (f field) join(unit int, number func(v int, padded bool) string) string {
	if len(f) == 0 {
		return "*"
	}
	parts := make([]string, len(f))
	for i, s := range f {
		parts[i] = number(s.start, true)
		if s.stop != none {
			parts[i] += ".." + number(s.stop, true)
		}
		if s.repeat > 0 && (s.stop == none || s.repeat != unit) {
			parts[i] += "/" + number(s.repeat, false)
		}
	}
	return strings.Join(parts, ",")
}
