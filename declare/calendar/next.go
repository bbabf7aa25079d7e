package calendar

import "time"

// local is a wall-clock time, to the microsecond.
type local struct {
	date
	clock
}

type date struct{ year, month, day int }

type clock struct{ hour, minute, micro int }

func localOf(t time.Time) local {
	year, month, day := t.Date()
	return local{date{year, int(month), day}, clock{t.Hour(), t.Minute(), t.Second()*second + t.Nanosecond()/1000}}
}

// utc is the moment at which clocks of UTC show the time.
func (l local) utc() time.Time {
	return time.Date(l.year, time.Month(l.month), l.day, l.hour, l.minute, 0, l.micro*1000, time.UTC)
}

// Next returns the first time after the given one at which the expression elapses; false if it never does, which systemd says of all that is
// after the year 2199. zone is that in which the expression is to be read: the host's, or where Zone says a name, that one.
func (e Expression) Next(after time.Time, zone *time.Location) (time.Time, bool) {
	least := after.Truncate(time.Microsecond).Add(time.Microsecond).In(zone)
	l := localOf(least)
	if first, _, ok := instant(l, zone); ok && first.Before(least) {
		// Clocks show this the second time: go on where they show again what they have not shown yet.
		turn, _ := least.ZoneBounds()
		l = wall(turn, offset(turn.Add(-1)))
	}
	for {
		var ok bool
		if l, ok = e.from(l); !ok {
			return time.Time{}, false
		}
		at, gapEnd, ok := instant(l, zone)
		if ok {
			return at, true
		}
		l = gapEnd
	}
}

// from returns the first wall-clock time of the expression that is not before l.
func (e Expression) from(l local) (local, bool) {
	first, _ := e.clockFrom(clock{})
	at, ok := e.clockFrom(l.clock)
	day := l.date
	if !ok {
		at, day.day = first, day.day+1
	}
	found, ok := e.dateFrom(day)
	if found != day {
		at = first
	}
	return local{found, at}, ok
}

// clockFrom returns the first time of day that is not before c.
func (e Expression) clockFrom(c clock) (clock, bool) {
	firstMinute, _ := e.minute.atLeast(0, 59)
	firstMicro, _ := e.micro.atLeast(0, minute-1)
	hour, ok := e.hour.atLeast(c.hour, 23)
	if !ok {
		return clock{}, false
	}
	if hour > c.hour {
		return clock{hour, firstMinute, firstMicro}, true
	}
	if m, ok := e.minute.atLeast(c.minute, 59); ok && m == c.minute {
		if micro, ok := e.micro.atLeast(c.micro, minute-1); ok {
			return clock{hour, m, micro}, true
		}
	}
	least := c.minute
	if m, ok := e.minute.atLeast(c.minute, 59); ok && m == c.minute {
		least++
	}
	if m, ok := e.minute.atLeast(least, 59); ok {
		return clock{hour, m, firstMicro}, true
	}
	hour, ok = e.hour.atLeast(c.hour+1, 23)
	return clock{hour, firstMinute, firstMicro}, ok
}

// dateFrom returns the first date that is not before d, whose day may be one past the end of its month.
func (e Expression) dateFrom(d date) (date, bool) {
	for {
		year, ok := e.year.atLeast(max(d.year, yearMin), yearMax)
		if !ok {
			return date{}, false
		}
		if year > d.year {
			d = date{year, 1, 1}
		}
		for ; ; d.month, d.day = d.month+1, 1 {
			month, ok := e.month.atLeast(d.month, 12)
			if !ok {
				break
			}
			if month > d.month {
				d.month, d.day = month, 1
			}
			if e.dayFrom(&d) {
				return d, true
			}
		}
		d = date{d.year + 1, 1, 1}
	}
}

// dayFrom moves d to the first day that is wanted in its month from there on.
func (e Expression) dayFrom(d *date) bool {
	last := time.Date(d.year, time.Month(d.month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
	days := e.day
	if e.fromEnd {
		days = days.fromEnd(last)
	}
	for day := d.day; ; day++ {
		var ok bool
		if day, ok = days.atLeast(day, last); !ok {
			return false
		}
		weekday := int(time.Date(d.year, time.Month(d.month), day, 0, 0, 0, 0, time.UTC).Weekday()+6) % 7
		if e.weekdays == 0 || e.weekdays>>weekday&1 != 0 {
			d.day = day
			return true
		}
	}
}

// fromEnd turns days counted from the end into those of a month with that many days. Ranges run forwards from their earlier day.
func (f field) fromEnd(last int) field {
	out := make(field, len(f))
	for i, s := range f {
		out[i] = step{start: last + 1 - s.start, stop: none, repeat: s.repeat}
		if s.stop != none {
			out[i].start, out[i].stop = last+1-s.stop, last+1-s.start
		}
	}
	return out
}

// offset is how far clocks of t's zone are before UTC at t.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// wall is what clocks that are that far before UTC show at t.
func wall(t time.Time, ahead time.Duration) local { return localOf(t.UTC().Add(ahead)) }

// instant returns the first moment at which clocks of a zone show l. If there is none, gapEnd is what they show after they were put forward
// past it.
func instant(l local, zone *time.Location) (at time.Time, gapEnd local, ok bool) {
	// No zone is that far from UTC, so that the moment is not before this one.
	const offsetMax = 26 * time.Hour
	shown := l.utc()
	t := shown.Add(-offsetMax).In(zone)
	for {
		at = shown.Add(-offset(t)).In(zone)
		_, end := t.ZoneBounds()
		switch {
		case at.Before(t):
			return time.Time{}, wall(t, offset(t)), false
		case end.IsZero() || at.Before(end):
			return at, local{}, true
		}
		t = end
	}
}
