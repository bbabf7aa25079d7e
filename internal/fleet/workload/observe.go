package workload

import "time"

// Report is what an agent says of one instance.
type Report struct {
	UID     string
	Attempt int // how often it has started the instance; on its disk, so that it never goes back
	Phase   Phase
	Ready   bool
	Failure *Failure
	Taken   string // hash of the revision that it has taken in; empty from agents that do not tell
}

// Observe is an instance after a report, and whether that counted. What is about another incarnation of its name, or came late, does not:
// an instance goes forward only, within an attempt and from one to the next, and one that was asked to stop only to its end. Since when
// it is ready is by the clock of whoever calls, because clocks of hosts may be wrong.
func Observe(in Instance, r Report, now time.Time) (Instance, bool) {
	behind := r.Attempt < in.Attempt || r.Attempt == in.Attempt && r.Phase < in.Phase
	switch {
	case r.UID != in.UID, in.Phase.Ended():
		return in, false
	case r.Phase.Ended(): // nothing runs any more, whatever was to come
	case in.Phase == Terminating, behind:
		return in, false
	}
	in.Attempt, in.Phase, in.Failure, in.Taken = r.Attempt, r.Phase, r.Failure, r.Taken
	switch {
	case r.Phase != Running || !r.Ready:
		in.ReadySince = time.Time{}
	case in.ReadySince.IsZero():
		in.ReadySince = now
	}
	return in, true
}

// Drained reports whether nothing of what was on a node runs there any more. An instance that was asked to stop may run for as long as
// its grace; one that was given up, because nobody heard its node, too. Instances are those of all workloads that are to leave.
func Drained(nodeName string, instances []Instance) bool {
	for i := range instances {
		if instances[i].Node == nodeName && !instances[i].Phase.Ended() {
			return false
		}
	}
	return true
}
