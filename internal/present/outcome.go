package present

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

// Outcome is the cell of an outcome: sign, word and, in parentheses, detail: "↻ Repaired (drift)".
func Outcome(o reason.Outcome, d reason.Detail) Cell {
	text := o.Glyph() + " " + capital(outcomeWords(o))
	if d != "" {
		text += " (" + string(d) + ")"
	}
	return Cell{text: text, color: outcomeColor(o)}
}

// String is the cell as a plain text.
func (c Cell) String() string { return c.text }

// Render is the cell's text in its colour, made safe.
func (c Cell) Render(style Style) string { return style.paint(c.color, Escape(c.text)) }

func outcomeWords(o reason.Outcome) string {
	if o == reason.NotApplicable {
		return "not applicable"
	}
	return o.String()
}

func capital(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

func outcomeColor(o reason.Outcome) sgr {
	switch o {
	case reason.Kept:
		return green
	case reason.Repaired:
		return blue
	case reason.Failed, reason.Contended:
		return red
	case reason.Blocked, reason.Deferred:
		return yellow
	case reason.Unknown, reason.NotApplicable:
		return dim
	}
	return ""
}

// Duration is a length of time in its largest unit, rounded down, for a person: 850ms, 3s, 2m, 5h, 12d.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	sign := ""
	if d < 0 {
		sign, d = "-", max(-d, 0)
	}
	unit, name := time.Millisecond, "ms"
	switch {
	case d >= 2*day:
		unit, name = day, "d"
	case d >= time.Hour:
		unit, name = time.Hour, "h"
	case d >= time.Minute:
		unit, name = time.Minute, "m"
	case d >= time.Second:
		unit, name = time.Second, "s"
	}
	return sign + strconv.FormatInt(int64(d/unit), 10) + name
}

// Ago says how long before now a time was: "3s ago". A time after now, from a clock that was set back, is "just now".
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < time.Second {
		return "just now"
	}
	return Duration(d) + " ago"
}

// Bytes is a size in binary units with one digit behind the point: 512 B, 1.5 KiB, 20 MiB.
func Bytes(n int64) string {
	const step = 1024
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for (v >= step-0.05 || v <= -step+0.05) && u < len(units)-1 {
		v, u = v/step, u+1
	}
	if u == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + " " + units[u]
}
