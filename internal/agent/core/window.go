package core

import (
	"errors"
	"fmt"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/calendar"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// Zones finds the rules of a time zone by its name.
type Zones func(name string) (*time.Location, error)

// windows are the times in which something may be done to a resource. It is a converge.Window.
type windows struct{ list []opening }

// opening is one of them.
type opening struct {
	calendar.Window
	zone *time.Location // nil is the host's
}

// Open is part of converge.Window.
func (w *windows) Open(now time.Time) (open bool, next time.Time) {
	for _, o := range w.list {
		zone := o.zone
		if zone == nil {
			zone = now.Location()
		}
		if o.Contains(now, zone) {
			return true, time.Time{}
		}
		if at, ok := o.Window.Next(now, zone); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return false, next
}

func (c *compiler) zone(name string) (*time.Location, error) {
	if c.in.Zones == nil {
		return nil, errors.New("no time zones are known here")
	}
	return c.in.Zones(name)
}

// windowsOf returns the windows of a resource, one value for all that have the same, and none where it has none. The error is WindowZone, and then
// they never open.
func (c *compiler) windowsOf(r *declare.Resource, title string) (converge.Window, error) {
	times := r.Times()
	if len(times) == 0 {
		return nil, nil
	}
	same := fmt.Sprint(r.Windows)
	if w := c.windows[same]; w != nil {
		return w, nil
	}
	w := &windows{}
	for _, t := range times {
		o := opening{Window: t}
		if name := t.Opens.Zone(); name != "" {
			zone, err := c.zone(name)
			if err != nil {
				return &windows{}, &reason.Error{Code: reason.WindowZone, Doing: "find out when " + title + " may be changed", Cause: err, Hint: "install tzdata on the host, or write the window in UTC"}
			}
			o.zone = zone
		}
		w.list = append(w.list, o)
	}
	if c.windows == nil {
		c.windows = map[string]*windows{}
	}
	c.windows[same] = w
	return w, nil
}
