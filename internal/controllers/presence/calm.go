package presence

import "time"

// calm paces what follows from a host that says something else each time: some at once, and then one after each pause. Each moves the
// end one pause on; how far that is ahead of the clock is how many there were.
type calm struct{ end time.Time }

// pace is how much that is.
type pace struct {
	atOnce int
	pause  time.Duration
}

// What a host can cause, for as long as it likes, follows. It may call the server some times in a second, and whatever it says is about
// it alone; but each of these is work for all.

// changing: a round of the assignments takes up to a second in a fleet of ten thousand. A host that comes to all of its configs one after
// the other is told of at once.
func changing() pace { return pace{30, 5 * time.Second} }

// stirring: what is heard of instances is a round of the workloads, which is short: it looks at what has changed. A host with hundreds of instances has
// something new with each report while they are replaced, and the next one of a rollout waits for it.
func stirring() pace { return pace{300, time.Second} }

// writing: what is stored of a Node is some hundred KiB at most, and the store keeps some minutes of it.
func writing() pace { return pace{10, 10 * time.Second} }

// telling: of the 200 Events that are admitted in a second, one host would take the room of what others have to tell.
func telling() pace { return pace{20, 30 * time.Second} }

// wait is how long until the next one may come; 0: now.
func (c *calm) wait(p pace, now time.Time) time.Duration {
	return max(0, c.end.Add(-time.Duration(p.atOnce-1)*p.pause).Sub(now))
}

// pending is something to be told, at its pace.
type pending struct {
	is    bool
	often calm
}

// due takes what is pending if it may be told now; otherwise wake is when it may, if that is earlier.
func (x *pending) due(p pace, now time.Time, wake *time.Time) bool {
	wait := x.often.wait(p, now)
	switch {
	case !x.is:
		return false
	case wait > 0:
		*wake = earlier(*wake, now.Add(wait))
		return false
	}
	x.is = false
	x.often.note(p, now)
	return true
}

// note counts one.
func (c *calm) note(p pace, now time.Time) {
	if c.end.Before(now) {
		c.end = now
	}
	c.end = c.end.Add(p.pause)
}
