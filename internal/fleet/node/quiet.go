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

// leaseSlack is how much longer than its lease a host may be silent on which an exclusive copy is begun: the copy waits for a second report, which may
// be made 30 s after the lease of the first one at the latest (agent/instances/core), and the way of that, through relays and back, takes some of them.
const leaseSlack = 10 * time.Second

// ReportEvery is after how long a host reports in any case on which a copy with a lease may be placed: with less it could not tell whether a fence has
// passed before the copy came, and would refuse it. Zero: hosts are never silent for as long as that.
func ReportEvery(lease time.Duration) time.Duration {
	if every := lease + leaseSlack; lease > 0 && every < quietMax {
		return every
	}
	return 0
}
