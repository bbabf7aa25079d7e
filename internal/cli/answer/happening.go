package answer

import (
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Happening is one line of a host's history, as its agent keeps it.
type Happening struct {
	At      time.Time `json:"at"`
	Claim   string    `json:"claim"`
	Title   string    `json:"title"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Writer  string    `json:"writer"`
	Changes []string  `json:"changes"`
}

// Line is the happening on one line, for a person.
func (h *Happening) Line(style present.Style) string {
	o, err := reason.ParseOutcome(h.Outcome)
	if err != nil {
		o = reason.Unknown // written by a later version
	}
	text := fmt.Sprintf("%s  %-22s %s", h.At.Local().Format(timeForm), present.Outcome(o, reason.Detail(h.Detail)).Render(style), present.Quote(h.Title))
	for _, part := range []string{strings.Join(h.Changes, ", "), h.Message} {
		if part != "" {
			text += ": " + present.Escape(part)
		}
	}
	if h.Writer != "" {
		text += "; changed by " + present.Escape(h.Writer)
	}
	return text
}
