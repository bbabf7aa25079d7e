package node

import "time"

const (
	// answersPerSecond is how many hosts to which nothing happens shall report in a second: each takes the server a fraction of a millisecond.
	answersPerSecond = 40
	// quietMax is the longest that a host is left alone. An agent that hangs is found that much later; a host or a link that is lost is not.
	quietMax = 5 * time.Minute
	// quietMin is less than what hosts leave by themselves between two reports: to ask for it would change nothing.
	quietMin = time.Minute
)

// Quiet is for how long at least and at most a host may be silent to which nothing happens, where there are so many: the more there are, the
// less often each says that it is there. Draw between the two, or hosts that came together would go on to report together. Zero: as always.
func Quiet(nodes int) (least, most time.Duration) {
	mean := min(time.Duration(nodes)*time.Second/answersPerSecond, quietMax*4/5)
	if mean < quietMin {
		return 0, 0
	}
	return mean * 3 / 4, mean * 5 / 4
}
