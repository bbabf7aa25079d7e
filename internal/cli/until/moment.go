package until

import (
	"errors"
	"time"
)

// Moment is the value of a flag that says when something ends: a time of this clock, or with its zone.
type Moment struct{ time.Time }

// Set reads the flag. An hour is the next one of its kind.
func (e *Moment) Set(text string) error {
	now := time.Now()
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			e.Time = at
			return nil
		}
	}
	at, err := time.ParseInLocation("15:04", text, time.Local)
	if err != nil {
		return errors.New("write a time such as 18:00, '2026-12-27 08:00' or 2026-12-27T08:00:00Z")
	}
	e.Time = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, time.Local)
	if !e.Time.After(now) {
		e.Time = e.AddDate(0, 0, 1)
	}
	return nil
}

// String is what Set reads; empty where none is set.
func (e *Moment) String() string {
	if e.IsZero() {
		return ""
	}
	return e.Format(time.RFC3339)
}

// Type is the word for the flag's value.
func (e *Moment) Type() string { return "time" }
