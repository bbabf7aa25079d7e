// Package book is where the agent counts and tells: each line goes to the history and to whoever watches, what goes wrong with the agent itself is kept
// for its report, and nothing leaves it with the value of a secret in it. It owns no goroutine; one goroutine owns a Book.
package book

import (
	"encoding/json"
	"errors"
	"time"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// Book counts and tells. Use New.
type Book struct {
	store     *store.Store
	onLine    func(report.Line)
	troubles  report.Troubles
	restraint restraint

	Scrub  func(string) string // takes the values of secrets out of a text; nil where there are none
	Totals report.Totals
	// Unsaved says that something was reported since the report was saved.
	Unsaved bool
}

// New makes a Book over the history of a state directory. onLine may be nil.
func New(st *store.Store, onLine func(report.Line)) *Book {
	return &Book{store: st, onLine: onLine, Totals: report.Totals{Since: time.Now()}}
}

// Troubles are what went wrong lately, or stands.
func (b *Book) Troubles(now time.Time) []*reason.Error { return b.troubles.List(now) }

// Counted counts the result of one operation on one part.
func (b *Book) Counted(verb converge.Verb, r converge.Result) {
	if verb != converge.Check {
		return
	}
	if r.Recognised {
		b.Totals.Recognised++
		return
	}
	b.Totals.Checks++
}

// Tell keeps a line in the history and shows it, unless there were too many of its resource lately.
func (b *Book) Tell(line report.Line) {
	if !b.restraint.lets(&line) {
		return
	}
	if err := b.store.Append(line.Happening()); err != nil {
		b.Note("write the history", err)
	}
	if b.onLine != nil {
		b.onLine(line)
	}
}

// Trouble tells of something that went wrong with the agent itself.
func (b *Book) Trouble(what string, err error) {
	b.Show(report.ProblemOf(b.Note(what, err)))
}

// Show shows a problem to whoever watches.
func (b *Book) Show(p *report.Problem) {
	if b.onLine != nil {
		p = b.Cleaned(p)
		b.onLine(report.Line{At: time.Now(), Trouble: p})
	}
}

// Clean takes the values of secrets out of a text.
func (b *Book) Clean(text string) string {
	if b.Scrub == nil {
		return text
	}
	return b.Scrub(text)
}

// CleanAll cleans each of them, in place.
func (b *Book) CleanAll(texts []string) []string {
	for i := range texts {
		texts[i] = b.Clean(texts[i])
	}
	return texts
}

// Cleaned is a problem without the values of secrets.
func (b *Book) Cleaned(p *report.Problem) *report.Problem {
	if p == nil || b.Scrub == nil {
		return p
	}
	return &report.Problem{Code: p.Code, Message: b.Clean(p.Message), Hint: b.Clean(p.Hint), Evidence: b.Clean(p.Evidence)}
}

// Without is an error without the values of secrets. It is kept, and told as long as it stands, also when the host has other secrets by
// then, whose values are all that is known.
func (b *Book) Without(err *reason.Error) *reason.Error {
	if err == nil || b.Scrub == nil {
		return err
	}
	clean := *err
	clean.Doing, clean.Hint, clean.Evidence = b.Clean(err.Doing), b.Clean(err.Hint), b.Clean(err.Evidence)
	if err.Cause != nil {
		if text := err.Cause.Error(); b.Clean(text) != text {
			clean.Cause = errors.New(b.Clean(text))
		}
	}
	return &clean
}

// Note keeps a trouble for the report, and shows it to nobody.
func (b *Book) Note(what string, err error) *reason.Error {
	return b.troubles.Happened(what, err, time.Now())
}

// Stand says what goes on being wrong until somebody mends it. What is new of it is shown.
func (b *Book) Stand(errs []error) {
	news, changed := b.troubles.Stand(errs)
	for _, e := range news {
		b.Show(report.ProblemOf(e))
	}
	b.Unsaved = b.Unsaved || changed
}

// Save keeps the report on disk.
func (b *Book) Save(r *report.Report) {
	data, err := json.Marshal(r)
	if err == nil {
		err = b.store.SaveReport(data)
	}
	if b.Unsaved = err != nil; b.Unsaved {
		return // the store says so
	}
	b.troubles.Forget(b.store.Writes) // there is room again
}
