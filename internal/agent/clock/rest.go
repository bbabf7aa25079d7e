package clock

import "time"

// restPause is how long after something has happened a loop rests: soon enough for a report on disk that somebody reads after a crash, and seldom enough for a host
// on which something happens all the time.
const restPause = 10 * time.Second

// Rest is when a loop rests. Use NewRest. It belongs to one goroutine.
type Rest struct {
	timer  *time.Timer
	set    bool // the timer is
	rested bool // the loop has just rested, and nothing has happened since
}

// NewRest makes one that is not due before something has happened.
func NewRest() *Rest {
	r := &Rest{timer: time.NewTimer(restPause)}
	r.timer.Stop()
	return r
}

// Due has something when the loop is to rest.
func (r *Rest) Due() <-chan time.Time { return r.timer.C }

// Happened has the loop rest by and by. What a rest itself has brought about is no reason for the next one.
func (r *Rest) Happened() {
	if !r.rested && !r.set {
		r.In(restPause)
	}
	r.rested = false
}

// In has the loop rest after so long, and not when it was to before.
func (r *Rest) In(d time.Duration) {
	r.timer.Reset(d)
	r.set = true
}

// Begun is that Due had something.
func (r *Rest) Begun() { r.set = false }

// Rested is that the loop rests.
func (r *Rest) Rested() { r.rested = true }

// Again has a loop rest once more for which something is left to do.
func (r *Rest) Again() { r.In(restPause) }
