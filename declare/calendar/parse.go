package calendar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// everyWeekday is all bits of Expression.weekdays.
const everyWeekday = 1<<7 - 1

// word returns what one of the words of systemd.time(7) stands for.
func word(text string) string {
	switch strings.ToLower(text) {
	case "minutely":
		return "*-*-* *:*:00"
	case "hourly":
		return "*-*-* *:00:00"
	case "daily":
		return "*-*-* 00:00:00"
	case "weekly":
		return "Mon *-*-* 00:00:00"
	case "monthly":
		return "*-*-01 00:00:00"
	case "quarterly":
		return "*-01,04,07,10-01 00:00:00"
	case "semiannually", "semi-annually", "biannually", "bi-annually":
		return "*-01,07-01 00:00:00"
	case "yearly", "annually", "anually":
		return "*-01-01 00:00:00"
	}
	return text
}

// Parse reads an expression. The error is in words for whoever wrote it.
func Parse(text string) (Expression, error) {
	switch {
	case text == "":
		return Expression{}, errors.New("it is empty")
	case len(text) > TextBytesMax:
		return Expression{}, fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), TextBytesMax)
	case text[0] == '@':
		return Expression{}, errors.New("it is a single moment, which no calendar has")
	}
	var e Expression
	text, e.zone = cutZone(text)
	r := reader{rest: word(text)}
	if err := r.expression(&e); err != nil {
		return Expression{}, err
	}
	return e, nil
}

// cutZone cuts off a time zone: a last word that can be the name of one.
func cutZone(text string) (rest, zone string) {
	at := strings.LastIndexByte(text, ' ')
	if at < 1 || !isZoneName(text[at+1:]) {
		return text, ""
	}
	zone = text[at+1:]
	if strings.EqualFold(zone, "UTC") {
		zone = "UTC"
	}
	return text[:at], zone
}

// isZoneName tells names of the zone database from the rest of an expression: what begins with a letter and is no day.
func isZoneName(s string) bool {
	if s == "" || !isLetter(s[0]) || strings.Contains(s, "//") || strings.HasSuffix(s, "/") {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && !isDigit(c) && strings.IndexByte("_+-/", c) < 0 {
			return false
		}
	}
	for _, name := range dayNames() {
		if strings.EqualFold(s, name) || strings.EqualFold(s, name[:3]) {
			return false
		}
	}
	// Days in a row with a hyphen, "Mon-Fri", are not a zone either.
	first, last, isRange := strings.Cut(s, "-")
	return !isRange || weekdayOf(first) == none || weekdayOf(last) == none
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// weekdayOf returns the number of a day's name, long or short.
func weekdayOf(s string) int {
	for i, name := range dayNames() {
		if strings.EqualFold(s, name) || strings.EqualFold(s, name[:3]) {
			return i
		}
	}
	return none
}

// reader is what is still to be read.
type reader struct{ rest string }

// expression reads all but the zone.
func (r *reader) expression(e *Expression) error {
	if err := r.weekdays(e); err != nil {
		return err
	}
	if err := r.date(e); err != nil {
		return err
	}
	return r.time(e)
}

func (r *reader) take(prefix string) bool {
	rest, ok := strings.CutPrefix(r.rest, prefix)
	r.rest = rest
	return ok
}

func (r *reader) spaces() { r.rest = strings.TrimLeft(r.rest, " ") }

// atEnd reports whether a part is over.
func (r *reader) atEnd() bool { return r.rest == "" || r.rest[0] == ' ' }

// weekdays reads a list of days and ranges of days.
func (r *reader) weekdays(e *Expression) error {
	if r.rest == "" || !isLetter(r.rest[0]) {
		return nil
	}
	from := none // where a range begins
	for {
		n := 0
		for n < len(r.rest) && isLetter(r.rest[n]) {
			n++
		}
		day := weekdayOf(r.rest[:n])
		switch {
		case day == none:
			return fmt.Errorf("%q is neither a day of the week nor a word such as daily", r.rest)
		case day < from:
			return fmt.Errorf("the days %s..%s go backwards", short(from), short(day))
		}
		for d := max(from, 0); from != none && d < day; d++ {
			e.weekdays |= 1 << d
		}
		e.weekdays |= 1 << day
		r.rest = r.rest[n:]
		began := from
		from = none
		switch {
		case r.atEnd():
			r.spaces()
			e.anyWeekday()
			return nil
		case r.take(","):
		case began == none && (r.take("..") || r.take("-")):
			from = day
		default:
			return fmt.Errorf("%q does not follow a day of the week", r.rest)
		}
		if r.atEnd() {
			if from != none {
				return fmt.Errorf("the days from %s on have no end", short(from))
			}
			r.spaces()
			e.anyWeekday()
			return nil
		}
	}
}

// anyWeekday makes all days the same as none.
func (e *Expression) anyWeekday() {
	if e.weekdays == everyWeekday {
		e.weekdays = 0
	}
}

// date reads a date, if one comes: what is followed by a colon, or stands alone, is a time.
func (r *reader) date(e *Expression) error {
	if r.rest == "" {
		return nil
	}
	ahead := *r
	parts := make([]field, 0, 3)
	for len(parts) < cap(parts) {
		f, err := ahead.field(1)
		if err != nil {
			return err
		}
		parts = append(parts, f)
		if len(parts) == 1 && (ahead.rest == "" || ahead.rest[0] == ':') {
			return nil
		}
		if ahead.atEnd() {
			break
		}
		if e.fromEnd || len(parts) == cap(parts) {
			return fmt.Errorf("%q does not follow a date", ahead.rest)
		}
		if e.fromEnd = ahead.take("~"); !e.fromEnd && !ahead.take("-") {
			return fmt.Errorf("%q is neither a date nor a time", r.rest)
		}
	}
	if len(parts) == 1 {
		return fmt.Errorf("%q is neither a date nor a time", r.rest)
	}
	ahead.spaces()
	*r = ahead
	return e.setDate(parts)
}

// setDate takes [year,] month and day.
func (e *Expression) setDate(parts []field) (err error) {
	if len(parts) == 3 {
		if e.year, err = century(parts[0]).settled("year", yearMin, yearMax, false); err != nil {
			return err
		}
		parts = parts[1:]
	}
	if e.month, err = parts[0].settled("month", 1, 12, false); err != nil {
		return err
	}
	most := 31
	if e.fromEnd {
		most = fromEndMax
	}
	if e.day, err = parts[1].settled("day", 1, most, e.fromEnd); err != nil {
		return err
	}
	e.fromEnd = e.fromEnd && len(e.day) > 0
	return nil
}

// century makes years of two digits those from 1970 to 2069.
func century(f field) field {
	full := func(year int) int {
		switch {
		case year >= 0 && year < 70:
			return year + 2000
		case year >= 70 && year < 100:
			return year + 1900
		}
		return year
	}
	for i := range f {
		f[i].start, f[i].stop = full(f[i].start), full(f[i].stop)
	}
	return f
}

// time reads a time, which is midnight where there is none and on the minute where there are no seconds.
func (r *reader) time(e *Expression) (err error) {
	zero := field{{start: 0, stop: none}}
	e.hour, e.minute, e.micro = zero, zero, zero
	if r.rest == "" {
		return nil
	}
	if e.hour, err = r.field(1); err != nil {
		return err
	}
	if !r.take(":") {
		return fmt.Errorf("a time has hours and minutes with a colon between them, and %q follows the hours", r.rest)
	}
	if e.minute, err = r.field(1); err != nil {
		return err
	}
	if r.take(":") {
		if e.micro, err = r.field(second); err != nil {
			return err
		}
	}
	if r.rest != "" {
		return fmt.Errorf("%q follows the time", r.rest)
	}
	if e.hour, err = e.hour.settled("hour", 0, 23, false); err != nil {
		return err
	}
	if e.minute, err = e.minute.settled("minute", 0, 59, false); err != nil {
		return err
	}
	if e.micro, err = e.micro.settled("second", 0, minute-1, false); slices.Contains(e.micro, everySecond()) && len(e.micro) > 1 && e.micro.whole() {
		e.micro = field{everySecond()}
	}
	return err
}

// everySecond is what * means for seconds.
func everySecond() step { return step{start: 0, stop: none, repeat: second} }

// whole reports whether all members of a list begin at, and go in steps of, whole seconds.
func (f field) whole() bool {
	return !slices.ContainsFunc(f, func(s step) bool { return s.start%second != 0 || s.repeat%second != 0 })
}

// field reads * or a list; unit is what the number one stands for.
func (r *reader) field(unit int) (field, error) {
	if r.take("*") {
		if unit == second {
			return field{everySecond()}, nil
		}
		return nil, nil
	}
	var f field
	for {
		s := step{stop: none}
		var err error
		if s.start, err = r.number(unit); err != nil {
			return nil, err
		}
		if r.take("..") {
			if s.stop, err = r.number(unit); err != nil {
				return nil, err
			}
			s.repeat = unit
		}
		if r.take("/") {
			if s.repeat, err = r.number(unit); err != nil {
				return nil, err
			}
			if s.repeat == 0 {
				return nil, errors.New("steps of 0 lead nowhere")
			}
		}
		if f = append(f, s); len(f) > StepsMax {
			return nil, fmt.Errorf("a list has at most %d members", StepsMax)
		}
		if !r.take(",") {
			return f, nil
		}
	}
}

// number reads digits; of seconds up to six decimals too, and a seventh that rounds.
func (r *reader) number(unit int) (int, error) {
	const digitsMax = 9 // far above any bound, and no overflow as microseconds
	n := digits(r.rest)
	if n == 0 {
		return 0, fmt.Errorf("a number is expected where %q stands", r.rest)
	}
	if n > digitsMax {
		return 0, fmt.Errorf("%s is too large a number", r.rest[:n])
	}
	v, err := strconv.Atoi(r.rest[:n])
	if err != nil {
		return 0, err
	}
	v *= unit
	r.rest = r.rest[n:]
	if unit != second || !strings.HasPrefix(r.rest, ".") || strings.HasPrefix(r.rest, "..") {
		return v, nil
	}
	n = digits(r.rest[1:])
	if n == 0 {
		return 0, errors.New("no digit follows the point of a number")
	}
	const decimals = 6
	text := r.rest[1 : 1+n]
	r.rest = r.rest[1+n:]
	fraction, err := strconv.Atoi((text + "000000")[:decimals])
	if len(text) > decimals && text[decimals] >= '5' {
		fraction++
	}
	return v + fraction, err
}

func digits(s string) (n int) {
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// settled checks the values of a part and brings its list into its normal form.
func (f field) settled(what string, from, to int, fromEnd bool) (field, error) {
	for i, s := range f {
		for _, v := range []int{s.start, s.stop} {
			if v != none && (v < from || v > to) {
				return nil, fmt.Errorf("%s %s is not from %s to %s", what, valueText(what, v), valueText(what, from), valueText(what, to))
			}
		}
		if s.stop != none && s.stop < s.start {
			return nil, fmt.Errorf("the %ss %s..%s go backwards", what, valueText(what, s.start), valueText(what, s.stop))
		}
		if s.stop > s.start {
			s.stop -= (s.stop - s.start) % s.repeat
		}
		switch {
		case s.stop == s.start:
			s.stop, s.repeat = none, 0
		case s.stop == none && (!fromEnd && s.start+s.repeat > to || fromEnd && s.start-s.repeat < from):
			return nil, fmt.Errorf("steps of %s lead from %s %s past the end", valueText(what, s.repeat), what, valueText(what, s.start))
		}
		f[i] = s
	}
	slices.SortFunc(f, step.compare)
	return slices.Compact(f), nil
}

func (s step) compare(other step) int {
	switch {
	case s.start != other.start:
		return s.start - other.start
	case s.stop != other.stop:
		return s.stop - other.stop
	}
	return s.repeat - other.repeat
}

func valueText(what string, v int) string {
	if what == "second" {
		return strconv.FormatFloat(float64(v)/second, 'f', -1, 64)
	}
	return strconv.Itoa(v)
}
