package present

import (
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/internal/reason"
)

// Happening is one line of a host's history.
type Happening struct {
	At      time.Time
	Title   string // of the resource
	Outcome string // a reason.Outcome by name: one that a later version has written is shown as unknown
	Detail  string
	Changes []string
	Message string
	Writer  string
	Cause   string
	Took    time.Duration // 0: it is not known
}

// Line is the happening on one line, without its end. Its time has a form of package time, in the time zone of who looks.
func (h *Happening) Line(form string, style Style) string {
	o, err := reason.ParseOutcome(h.Outcome)
	if err != nil {
		o = reason.Unknown
	}
	text := fmt.Sprintf("%s  %-22s %s", h.At.Local().Format(form), Outcome(o, reason.Detail(h.Detail)).Render(style), Quote(h.Title))
	for _, part := range []string{strings.Join(h.Changes, ", "), h.Message} {
		if part != "" {
			text += ": " + Escape(part)
		}
	}
	if h.Writer != "" {
		text += "; changed by " + Escape(h.Writer)
	}
	var how []string
	if h.Took > 0 {
		how = append(how, h.Took.Round(10*time.Microsecond).String())
	}
	if h.Cause != "" {
		how = append(how, "cause: "+Escape(h.Cause))
	}
	if len(how) > 0 {
		text += "  (" + strings.Join(how, ", ") + ")"
	}
	return text
}
