package core

import (
	"time"

	"tako.dev/tako/internal/run"
)

const (
	// echoesMax is how many reports are known again. With echoEvery that is a minute of them, as long as an answer may be on its way through relays
	// that are told to be slow.
	echoesMax = 64
	// echoEvery is the shortest between two that are told apart: of what is sent sooner the first is known, which is older than it need be.
	echoEvery = time.Second
)

// Echoes are when the last reports were made, by what their answers have again. The zero Echoes knows none. It is not safe for concurrent use.
type Echoes struct {
	sent [echoesMax]sentReport
	last int // index of the newest
}

type sentReport struct {
	echo uint64
	at   run.Moment
}

// Next is the echo of a report that is made at a moment: one that is random and not 0, or the last one, where that is of just before.
func (e *Echoes) Next(at run.Moment, random uint64) uint64 {
	if last := &e.sent[e.last]; last.echo != 0 && at.Sub(last.at) < echoEvery {
		return last.echo
	}
	e.last = (e.last + 1) % echoesMax
	e.sent[e.last] = sentReport{max(random, 1), at}
	return e.sent[e.last].echo
}

// Of is when the report with an echo was made; false: it is none of this run, or too long ago.
func (e *Echoes) Of(echo uint64) (at run.Moment, known bool) {
	for i := range e.sent {
		if e.sent[i].echo == echo && echo != 0 {
			return e.sent[i].at, true
		}
	}
	return 0, false
}
