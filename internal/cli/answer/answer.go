// Package answer reads what hosts answer when they are asked, and says it to a person:
//
//	history   Happening   what happened there, one line each
//	logs      LogLine     what a unit has said
//	graph     Graph       what waits for what there
//	evidence  Answer      why a resource is as it is; Adopt makes what stands there the declaration
//
// It knows no server. It owns no goroutine.
package answer

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Answer is how a host explains one of its resources.
type Answer struct {
	Resource Resource   `json:"resource"`
	Because  []Resource `json:"because"`
	Requires []struct {
		Title   string `json:"title"`
		Kind    string `json:"kind"`
		Why     string `json:"why"`
		Outcome string `json:"outcome"`
	} `json:"requires"`
	History    []Happening `json:"history"`
	Candidates []string    `json:"candidates"`
	// Differs is how what is there differs from what is declared; Unlooked why that cannot be told.
	Differs  []Difference `json:"differs"`
	Unlooked string       `json:"unlooked"`
}

// Difference is one field of a resource that is not as declared on a host.
type Difference struct {
	Field   string  `json:"field"` // content, mode, owner, group, target, type, ...; "" for the thing as a whole
	Have    string  `json:"have"`
	Want    string  `json:"want"`
	Content *string `json:"content"` // the whole text that is there, where it may be told
	Hidden  string  `json:"hidden"`  // why it may not
}

// String is the difference in a few words.
func (d *Difference) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", d.Field, cmp.Or(d.Have, "nothing"))) + ", declared " + cmp.Or(d.Want, "nothing")
}

// Resource is how a host sees one resource.
type Resource struct {
	Title    string    `json:"title"`
	Claim    string    `json:"claim"`
	Config   string    `json:"config"`
	Outcome  string    `json:"outcome"`
	Detail   string    `json:"detail"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
	RetryAt  time.Time `json:"retryAt"`
	Problem  *struct {
		Code     string `json:"code"`
		Message  string `json:"message"`
		Hint     string `json:"hint"`
		Evidence string `json:"evidence"`
	} `json:"problem"`
}

// Text is the explanation for a person.
func (a *Answer) Text(node string, now time.Time, style present.Style) string {
	var b strings.Builder
	fmt.Fprintf(&b, "● %s on node/%s\n", present.Quote(a.Resource.Title), present.Escape(node))
	b.WriteString(a.Resource.text("  ", now, style))
	fmt.Fprintf(&b, "  %s, declared by %s\n", present.Escape(a.Resource.Claim), present.Escape(a.Resource.Config))
	b.WriteString(a.differences(node))
	if a.Unlooked != "" {
		fmt.Fprintf(&b, "  it cannot be looked at: %s\n", present.Escape(a.Unlooked))
	}
	for i := range a.Because {
		b.WriteString("  because of\n" + a.Because[i].text("    ", now, style))
	}
	for _, r := range a.Requires {
		o, err := reason.ParseOutcome(r.Outcome)
		if err != nil {
			o = reason.Unknown
		}
		fmt.Fprintf(&b, "  after %s (%s)  %s\n", present.Quote(r.Title), present.Escape(strings.TrimSuffix(r.Kind+": "+r.Why, ": ")), present.Outcome(o, "").Render(style))
	}
	if len(a.History) > 0 {
		b.WriteString("  history\n")
		for i := range a.History {
			b.WriteString("    " + a.History[i].Line(style) + "\n")
		}
	}
	return b.String()
}

// differences are what there is instead of what is declared, and what can be done about it where nothing is.
func (a *Answer) differences(node string) string {
	var b strings.Builder
	for i := range a.Differs {
		d := &a.Differs[i]
		if d.Field == "" {
			return "  there is nothing of it\n"
		}
		fmt.Fprintf(&b, "  there is %s\n", present.Escape(d.String()))
	}
	if len(a.Differs) > 0 && a.Resource.Detail == string(reason.Held) {
		fmt.Fprintf(&b, "  next: tako adopt %s --node %s declares what is there\n", present.Escape(a.Resource.Title), present.Escape(node))
	}
	return b.String()
}

func (r *Resource) text(indent string, now time.Time, style present.Style) string {
	o, err := reason.ParseOutcome(r.Outcome)
	if err != nil {
		o = reason.Unknown
	}
	text := indent + present.Outcome(o, reason.Detail(r.Detail)).Render(style) + "  " + present.Quote(r.Title)
	if !r.Since.IsZero() {
		text += "  " + present.Ago(r.Since, now)
	}
	switch wait := present.Duration(r.RetryAt.Sub(now)); {
	case r.RetryAt.IsZero():
	case r.Attempts > 0:
		text += fmt.Sprintf("  (attempt %d, next in %s)", r.Attempts, wait)
	default:
		text += fmt.Sprintf("  (next in %s)", wait)
	}
	text += "\n"
	if r.Problem == nil {
		return text
	}
	text += fmt.Sprintf("%s  %s: %s\n", indent, r.Problem.Code, present.Escape(r.Problem.Message))
	for _, line := range strings.Split(r.Problem.Evidence, "\n") {
		if line != "" {
			text += indent + "  | " + present.Escape(line) + "\n"
		}
	}
	if r.Problem.Hint != "" {
		text += indent + "  help: " + present.Escape(r.Problem.Hint) + "\n"
	}
	return text
}
