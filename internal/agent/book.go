package agent

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/agent/store"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// restPause is how long after something has happened the loop rests: soon enough for a report on disk that somebody
// reads after a crash, and seldom enough for a host on which something happens all the time.
const restPause = 10 * time.Second

// book counts and tells.
type book struct {
	store    *store.Store
	onLine   func(Line)
	scrub    func(string) string // nil where there are no secrets
	pid      int
	totals   Totals
	troubles report.Troubles
	took     map[*part]time.Duration // of the operation whose results are being taken in
	unsaved  bool                    // something was reported since the report was saved
	loaded   bool                    // memory that loading needed has not been given back
	rest     *time.Timer             // when the loop rests next
	resting  bool                    // the timer is set
	rested   bool                    // the loop has just rested, and nothing has happened since
}

func newBook(st *store.Store, o *Options) *book {
	b := &book{store: st, onLine: o.OnLine, pid: os.Getpid(), totals: Totals{Since: time.Now()}, rest: time.NewTimer(restPause)}
	b.rest.Stop()
	return b
}

// counted counts the result of one operation on one part.
func (b *book) counted(verb converge.Verb, r converge.Result) {
	if verb != converge.Check {
		return
	}
	if r.Recognised {
		b.totals.Recognised++
		return
	}
	b.totals.Checks++
}

// reported takes a status that the engine wrote: it is counted, kept in the history, and told.
func (l *loop) reported(r converge.Report) {
	if l.ending && r.Err != nil {
		return // it was cut off by our own end, which is no news of the resource
	}
	p, b := l.parts[r.ID], l.book
	b.unsaved = true
	l.happened()
	line := Line{At: time.Now(), Resource: l.resource(r.ID), Took: b.took[p], Cause: report.CauseName(r.Cause)}
	line.Resource.Outcome, line.Resource.Detail = r.Outcome, r.Detail
	line.Resource.Problem = b.cleaned(l.explain(p, r.Status))
	if r.Outcome == reason.Repaired {
		line.Changes, line.Note = b.cleanAll(report.Changes(p.plan().Changes)), b.clean(p.note)
		p.found = nil
		p.setNote("")
		switch {
		case p.removal != nil || r.Detail == reason.Change:
			b.totals.Change++
		default:
			b.totals.Drift++
			line.Writer = l.writer(p)
			if r.Cause == converge.CauseExamined && !l.subs.IsSlow(r.ID) {
				b.totals.Missed++
			}
		}
	}
	if r.Outcome == reason.Contended {
		line.Writer = l.writer(p)
	}
	b.tell(line)
}

// writer says who changed a part since it was as declared last, where the kernel told. An older name is worse than none.
func (l *loop) writer(p *part) string {
	if p.res == nil {
		return ""
	}
	return l.subs.Writer(p.res.Watches(), time.Unix(0, p.sound))
}

// tell keeps a line in the history and shows it.
func (b *book) tell(line Line) {
	if err := b.store.Append(line.Happening()); err != nil {
		b.note("write the history", err)
	}
	if b.onLine != nil {
		b.onLine(line)
	}
}

// trouble tells of something that went wrong with the agent itself.
func (b *book) trouble(what string, err error) {
	b.show(report.ProblemOf(b.note(what, err)))
}

func (b *book) show(p *Problem) {
	if b.onLine != nil {
		p = b.cleaned(p)
		b.onLine(Line{At: time.Now(), Trouble: p})
	}
}

// clean takes the values of secrets out of a text.
func (b *book) clean(text string) string {
	if b.scrub == nil {
		return text
	}
	return b.scrub(text)
}

func (b *book) cleanAll(texts []string) []string {
	for i := range texts {
		texts[i] = b.clean(texts[i])
	}
	return texts
}

// cleaned is a problem without the values of secrets.
func (b *book) cleaned(p *Problem) *Problem {
	if p == nil || b.scrub == nil {
		return p
	}
	return &Problem{Code: p.Code, Message: b.clean(p.Message), Hint: b.clean(p.Hint), Evidence: b.clean(p.Evidence)}
}

// without is an error without the values of secrets. It is kept, and told as long as it stands, also when the host has other secrets by
// then, whose values are all that is known.
func (b *book) without(err *reason.Error) *reason.Error {
	if err == nil || b.scrub == nil {
		return err
	}
	clean := *err
	clean.Doing, clean.Hint, clean.Evidence = b.clean(err.Doing), b.clean(err.Hint), b.clean(err.Evidence)
	if err.Cause != nil {
		if text := err.Cause.Error(); b.clean(text) != text {
			clean.Cause = errors.New(b.clean(text))
		}
	}
	return &clean
}

// note keeps a trouble for the report, and shows it to nobody.
func (b *book) note(what string, err error) *reason.Error {
	return b.troubles.Happened(what, err, time.Now())
}

// stand says what goes on being wrong until somebody mends it. What is new of it is shown.
func (b *book) stand(errs []error) {
	news, changed := b.troubles.Stand(errs)
	for _, e := range news {
		b.show(report.ProblemOf(e))
	}
	b.unsaved = b.unsaved || changed
}

// save keeps the report on disk.
func (b *book) save(r *Report) {
	data, err := json.Marshal(r)
	if err == nil {
		err = b.store.SaveReport(data)
	}
	if b.unsaved = err != nil; b.unsaved {
		return // the store says so
	}
	b.troubles.Forget(b.store.Writes) // there is room again
}

// settled does what is only due when nothing else is: after loading at once, otherwise with the next rest, it saves what was
// found out and gives memory back.
func (l *loop) settled() {
	if l.engine == nil {
		return
	}
	l.kept()
	if !l.engine.Quiet() {
		l.tellServers()
		return
	}
	l.reached()
	l.tellServers()
	if l.book.loaded {
		l.book.loaded = false
		if err := l.store.SetConverged(l.converged); err != nil {
			l.book.trouble("note what is converged", err)
		}
		l.book.save(l.report(false))
		l.release()
	}
	b := l.book
	if !b.rested && !b.resting {
		b.rest.Reset(restPause)
		b.resting = true
	}
	b.rested = false
}

// kept tells once that this program keeps the host.
func (l *loop) kept() {
	if l.opts.OnKept == nil || l.told || l.joined != nil && !l.joined.links.State().Connected {
		return
	}
	err := l.opts.OnKept()
	if l.told = err == nil; !l.told { // it is tried again with the next event
		l.book.trouble("note that the program keeps the host", err)
	}
}

// rested saves the report and gives back what the last events needed. The memory would otherwise stay with a process that
// sleeps: the collector runs when something is allocated, not when nothing is.
func (l *loop) rested() {
	b := l.book
	b.resting = false
	if !l.engine.Quiet() {
		return // settled sets the timer again
	}
	b.rested = true
	if b.unsaved {
		b.save(l.report(false))
	}
	if l.joined != nil && l.joined.held.Flush() != nil {
		b.unsaved = true
	}
	if l.unread || l.unkept && !b.unsaved { // there is room again
		l.quiet.Reset(0)
	}
	if b.unsaved {
		b.rest.Reset(restPause)
		b.resting = true
	}
	l.release()
}

// converged yields what is known to have been converged with its present desire.
func (l *loop) converged(yield func(converge.Key, converge.Digest) bool) {
	for i, p := range l.parts {
		if p.removal == nil && l.engine.Proven(converge.ID(i)) && !yield(p.Key(), p.vertex.Digest) {
			return
		}
	}
}
