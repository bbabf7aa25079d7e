package until

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// Lifetime is the value of a flag that says how long something is good for. It has days, which people count tokens in, and a word
// for what has no end, so that nobody gets that by a wrong sign.
type Lifetime struct{ time.Duration } // 0 means without end

// never is how a person says that there is no end.
const never = "never"

// lifetimeMin is the unit of the times that the API keeps: anything shorter would have ended when it is made.
const lifetimeMin = time.Second

// days are in front of what Go reads: 30d, 1d12h.
var days = regexp.MustCompile(`^(\d+)d(.*)$`)

// Set reads the flag.
func (l *Lifetime) Set(text string) error {
	if text == never {
		l.Duration = 0
		return nil
	}
	wrong := errors.New("write a time such as 90m, 24h or 30d, or never")
	const day, daysMax = 24 * time.Hour, 36_500 // a hundred years, and far from what a Duration can hold
	rest, more := text, time.Duration(0)
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n > daysMax {
			return fmt.Errorf("at most %d days can be said; %w", daysMax, wrong)
		}
		rest, more = m[2], time.Duration(n)*day
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil {
			return wrong
		}
		more += d
	}
	if more < lifetimeMin {
		return fmt.Errorf("it must end after now; %w", wrong)
	}
	l.Duration = more
	return nil
}

// String writes the flag's value as Set reads it.
func (l *Lifetime) String() string {
	const day = 24 * time.Hour
	switch {
	case l.Duration == 0:
		return never
	case l.Duration%day == 0:
		return strconv.Itoa(int(l.Duration/day)) + "d"
	}
	return l.Duration.String()
}

// Type names the value in help.
func (l *Lifetime) Type() string { return "time" }
