// Package cron reads schedules as crontab(5) has them, "30 2 * * 1-5" or "@daily", and says when they are due. It is pure: it reads neither
// a clock nor the zones of a host, both are arguments.
//
//	expression: MINUTE HOUR DAY-OF-MONTH MONTH DAY-OF-WEEK, or @hourly, @daily, @weekly, @monthly, @yearly
//	each field: a list of *, VALUE and FROM-TO, of which * and FROM-TO may have a /STEP
//
// Months and days of the week may be names of three letters; Sunday is 0 and 7. Where both fields of days are restricted, that is, neither
// begins with *, a day is meant that is one of either. Otherwise it must be one of both.
//
// An expression is a set of wall-clock times. Each of them is due once: at the first moment at which clocks show it or, where they are put
// forward past it, a later time. So what is left out in spring is made up for right after the gap, all of it together, and what comes twice
// in autumn counts the first time.
package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// TextBytesMax bounds the text of an expression: ours, far above any real one.
const TextBytesMax = 256

// Expression is one schedule.
type Expression struct {
	minutes, hours, days, months, weekdays uint64 // bit n is the value n
	// either says that both fields of days are restricted.
	either bool
}

// field is what one of the five takes.
type field struct {
	what        string
	least, most int
	names       string // of values from least on, three letters each
}

func fields() [5]field {
	return [5]field{
		{"minute", 0, 59, ""},
		{"hour", 0, 23, ""},
		{"day of the month", 1, 31, ""},
		{"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
		{"day of the week", 0, 7, "sunmontuewedthufrisat"},
	}
}

// words are the expressions that a word stands for. @reboot is none of them: a fleet has no such moment.
func words() map[string]string {
	return map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}
}

// Parse reads an expression. The error says in words what is wrong.
func Parse(text string) (Expression, error) {
	if len(text) > TextBytesMax {
		return Expression{}, fmt.Errorf("it has %d bytes, at most %d are read", len(text), TextBytesMax)
	}
	if strings.HasPrefix(text, "@") {
		long, ok := words()[strings.ToLower(text)]
		if !ok {
			return Expression{}, errors.New("the words are @hourly, @daily, @weekly, @monthly and @yearly")
		}
		text = long
	}
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(parts) != 5 {
		return Expression{}, fmt.Errorf("there are %d fields, and not minute, hour, day of the month, month and day of the week", len(parts))
	}
	var sets [5]uint64
	for i, f := range fields() {
		var err error
		if sets[i], err = f.parse(parts[i]); err != nil {
			return Expression{}, err
		}
	}
	const sunday, seven = 1 << 0, 1 << 7
	if sets[4]&seven != 0 {
		sets[4] = sets[4]&^seven | sunday
	}
	return Expression{
		minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4],
		either: parts[2][0] != '*' && parts[4][0] != '*',
	}, nil
}

func (f field) parse(text string) (uint64, error) {
	var set uint64
	for member := range strings.SplitSeq(text, ",") {
		bits, err := f.member(member)
		if err != nil {
			return 0, err
		}
		set |= bits
	}
	return set, nil
}

// member reads *, VALUE or FROM-TO, with /STEP behind.
func (f field) member(text string) (uint64, error) {
	span, stepText, stepped := strings.Cut(text, "/")
	from, to, ranged := strings.Cut(span, "-")
	first, last := f.least, f.most
	if span == "*" {
		if f.most == 7 {
			last = 6 // Sunday is there already
		}
		ranged = true
	} else {
		var err error
		if first, err = f.value(from); err != nil {
			return 0, err
		}
		last = first
		if ranged {
			if last, err = f.value(to); err != nil {
				return 0, err
			}
		}
	}
	step := 1
	switch {
	case stepped && !ranged:
		return 0, fmt.Errorf("%s %q: steps go through a range, or through *", f.what, text)
	case stepped:
		var err error
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 || step > f.most || strings.Trim(stepText, "0123456789") != "" {
			return 0, fmt.Errorf("%s %q: steps are from 1 to %d", f.what, text, f.most)
		}
	}
	if last < first {
		return 0, fmt.Errorf("%s %q goes backwards", f.what, text)
	}
	var set uint64
	for v := first; v <= last; v += step {
		set |= 1 << v
	}
	return set, nil
}

// value reads a number or a name.
func (f field) value(text string) (int, error) {
	if len(text) == 3 && f.names != "" {
		if at := strings.Index(f.names, strings.ToLower(text)); at >= 0 && at%3 == 0 {
			return f.least + at/3, nil
		}
	}
	n, err := strconv.Atoi(text)
	const digitsMax = 2
	if err != nil || len(text) > digitsMax || n < f.least || n > f.most || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%s %q is not from %d to %d", f.what, text, f.least, f.most)
	}
	return n, nil
}
