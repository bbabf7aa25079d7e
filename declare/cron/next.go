package cron

import (
	"math/bits"
	"time"
)

// yearsMax is how far ahead Next looks. The rarest day is a 29 February that is a Sunday, which two fields that begin with * can ask for:
// there are 40 years between two of them where a century has no leap day.
const yearsMax = 41

// turnsWithin is how far back clocks that were turned back may still show what they have shown already. No zone has ever been turned back by
// more than a day.
const turnsWithin = 25 * time.Hour

// Next returns the first time after the given one at which the expression is due; false if it never is. zone is where its wall-clock times
// are read.
//
//	due(wall) = the first moment at which clocks show wall or later
//	Next      = due(the first wall of the expression that clocks have not shown or passed by then)
func (e Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	wall, ok := e.from(unshown(after.In(zone)))
	if !ok {
		return time.Time{}, false
	}
	return due(wall, zone), true
}

// unshown returns the first whole minute that clocks of t's zone have neither shown nor passed at t, as a time of UTC.
func unshown(t time.Time) time.Time {
	least := wallOf(t).Truncate(time.Minute).Add(time.Minute)
	for at := t; ; {
		turn, _ := at.ZoneBounds()
		if turn.IsZero() || t.Sub(turn) > turnsWithin {
			return least
		}
		before := turn.Add(-1)
		// What clocks would have shown at the turn is the first that they did not.
		shown := turn.UTC().Add(offset(before))
		if rounded := shown.Truncate(time.Minute); rounded.Before(shown) {
			shown = rounded.Add(time.Minute)
		}
		if shown.After(least) {
			least = shown
		}
		at = before
	}
}

// offset is how far clocks of t's zone are before UTC at t.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wallOf returns the time of UTC that looks like what clocks show at t.
func wallOf(t time.Time) time.Time { return t.UTC().Add(offset(t)) }

// due returns the first moment at which clocks of a zone show a wall-clock time or a later one.
func due(wall time.Time, zone *time.Location) time.Time {
	const offsetMax = 26 * time.Hour // no zone is that far from UTC, so that the moment is not before the first one looked at
	t := wall.Add(-offsetMax).In(zone)
	for {
		at := wall.Add(-offset(t)).In(zone)
		_, end := t.ZoneBounds()
		switch {
		case at.Before(t):
			return t // clocks were put forward past it, to what they show now
		case end.IsZero() || at.Before(end):
			return at
		}
		t = end
	}
}

// from returns the first wall-clock time of the expression that is not before one, both as times of UTC.
func (e Expression) from(wall time.Time) (time.Time, bool) {
	year, month, day := wall.Date()
	hour, minute := wall.Hour(), wall.Minute()
	for last := year + yearsMax; year <= last; {
		if e.months>>month&1 == 0 {
			year, month, day = nextMonth(year, month)
			hour, minute = 0, 0
			continue
		}
		date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		if date.Month() != month {
			year, month, day = nextMonth(year, month)
			hour, minute = 0, 0
			continue
		}
		if h, m, ok := e.clock(hour, minute); ok && e.on(date) {
			return date.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute), true
		}
		day, hour, minute = day+1, 0, 0
	}
	return time.Time{}, false
}

func nextMonth(year int, month time.Month) (int, time.Month, int) {
	if month == time.December {
		return year + 1, time.January, 1
	}
	return year, month + 1, 1
}

// on reports whether a day is one of the expression.
func (e Expression) on(date time.Time) bool {
	day, weekday := e.days>>date.Day()&1 != 0, e.weekdays>>date.Weekday()&1 != 0
	if e.either {
		return day || weekday
	}
	return day && weekday
}

// clock returns the first time of a day that is not before one.
func (e Expression) clock(hour, minute int) (h, m int, ok bool) {
	if e.hours>>hour&1 != 0 {
		if m, ok := first(e.minutes, minute); ok {
			return hour, m, true
		}
	}
	if h, ok = first(e.hours, hour+1); !ok {
		return 0, 0, false
	}
	m, ok = first(e.minutes, 0)
	return h, m, ok
}

// first returns the smallest value of a set that is not below least.
func first(set uint64, least int) (int, bool) {
	set = set >> least << least
	return bits.TrailingZeros64(set), set != 0
}
