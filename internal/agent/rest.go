package agent

import (
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/agent/report"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// retryPause is how long after a fault of the disk what tells the loop something is begun again.
const retryPause = 10 * time.Second

// loadedPause is how long after loading the loop rests: memory is given back by the collector, which is not to take the processors from the
// programs that a state has just had started.
const loadedPause = time.Second

// reported takes a status that the engine wrote: it is counted, kept in the history, and told.
func (l *loop) reported(r converge.Report) {
	if l.ending && r.Err != nil {
		return // it was cut off by our own end, which is no news of the resource
	}
	p, b := l.parts[r.ID], l.book
	b.Unsaved = true
	l.happened()
	line := Line{At: time.Now(), Resource: l.resource(r.ID), Took: l.took[p], Cause: report.CauseName(r.Cause)}
	line.Resource.Outcome, line.Resource.Detail = r.Outcome, r.Detail
	line.Resource.Problem = b.Cleaned(l.explain(p, r.Status))
	if r.Outcome == reason.Repaired {
		line.Changes, line.Note = b.CleanAll(report.Changes(p.plan().Changes)), b.Clean(p.note)
		p.found = nil
		p.setNote("")
		if p.claim().Kind == declare.ClaimTimezone {
			l.quiet.Reset(declarationQuiet) // a fact is another one, of which nothing else tells
		}
		switch {
		case p.removal != nil || r.Detail == reason.Change:
			b.Totals.Change++
		default:
			b.Totals.Drift++
			line.Writer = l.writer(p)
			if r.Cause == converge.CauseExamined && !l.subs.IsSlow(r.ID) {
				b.Totals.Missed++
			}
		}
	}
	if r.Outcome == reason.Contended {
		line.Writer = l.writer(p)
	}
	b.Tell(line)
}

// writer says who changed a part since it was as declared last, where the kernel told. An older name is worse than none.
func (l *loop) writer(p *part) string {
	if p.res == nil {
		return ""
	}
	return l.subs.Writer(p.res.Watches(), time.Unix(0, p.sound))
}

// settled does what is only due when nothing else is: after loading it saves what was found out at once, otherwise with the next rest, which
// gives memory back.
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
	if l.loaded {
		l.loaded = false
		if err := l.store.SetConverged(l.converged); err != nil {
			l.book.Trouble("note what is converged", err)
		}
		l.book.Save(l.report(false))
		l.rest.In(loadedPause)
	}
	l.rest.Happened()
}

// kept tells once that this program keeps the host.
func (l *loop) kept() {
	if l.opts.OnKept == nil || l.told || l.joined != nil && !l.joined.links.State().Connected {
		return
	}
	err := l.opts.OnKept()
	if l.told = err == nil; !l.told { // it is tried again with the next event
		l.book.Trouble("note that the program keeps the host", err)
	}
}

// rested saves the report and gives back what the last events needed. The memory would otherwise stay with a process that
// sleeps: the collector runs when something is allocated, not when nothing is.
func (l *loop) rested() {
	b := l.book
	l.rest.Begun()
	if !l.engine.Quiet() {
		return // settled sets the timer again
	}
	l.rest.Rested()
	if b.Unsaved {
		b.Save(l.report(false))
	}
	if l.joined != nil && l.joined.held.Flush() != nil {
		b.Unsaved = true
	}
	if l.unread || l.unkept && !b.Unsaved { // there is room again
		l.quiet.Reset(0)
	}
	if b.Unsaved {
		l.rest.Again()
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
