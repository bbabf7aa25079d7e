package assignments

import (
	"maps"
	"slices"
	"time"
)

const (
	// patienceTimes is how many times as long as their Assignments take to write hosts wait for more instances: so at most a tenth of the time goes to that, and
	// the rest to the instances. With three times, 10,000 of them on 5,000 hosts are stored after 10.4 s, with nine after 3.8 s.
	patienceTimes = 9
	// patienceMax is the longest time that a host waits for more instances: ours, about as long as 200,000 take to come, and three times what the Assignments
	// of 5,000 hosts with dozens of instances take to write. With half as long those were written in the middle, three times, and all ran a minute later.
	patienceMax = time.Minute
	// quietTimes is how many times as long as their Assignments take to write nothing has to come until hosts wait no longer: half as long. The controller of
	// workloads thinks and pauses between its creates, the longer the more instances there are.
	quietTimes = 0.5
	// quietMin and quietMax bound that: ours, longer than that controller thinks about some thousand instances, and about as long as about a hundred thousand.
	quietMin, quietMax = 500 * time.Millisecond, 8 * time.Second
	// sampleMax is how many are written to learn what one takes now, where at least sampleOf times as many wait: what a few took before the others came, on a server
	// that had nothing else to do, was a quarter of what it takes beside them, and 5,000 were written in the middle of 200,000 instances for it.
	sampleMax, sampleOf = 4 * writesMax, 10
)

// patience has hosts wait for more of their instances while those come and go by the thousand. An Assignment lists all instances of its host, and each
// one that is written is signed, fetched and reported: to write it for every instance would take most of the time in which the others could come.
//
// After Assignments were written, the next ones whose instances have changed wait for some times as long as it takes to write them. So a single one waits for
// nothing that could be noticed, and where there are more to write than can be written, each host is written for all that has come meanwhile (ADR 118).
type patience struct {
	wrote   time.Time       // when Assignments were written last
	each    time.Duration   // that one takes beside others
	last    time.Time       // when something came last
	waiting map[string]bool // nodes
	sampled bool            // some of those who waited were written, to learn what one takes
}

func newPatience() patience { return patience{waiting: map[string]bool{}} }

// take is told of nodes whose instances have changed, and returns those whose Assignments are to be planned now.
func (p *patience) take(changed []string, now time.Time) (ready []string) {
	if len(changed) > 0 {
		p.last = now
	}
	for _, node := range changed {
		p.waiting[node] = true
	}
	at, sample := p.next()
	if now.Before(at) {
		return nil
	}
	ready = slices.Sorted(maps.Keys(p.waiting))
	// After a rest nobody waits for longer, whatever one takes.
	if p.sampled = sample && now.Before(p.wrote.Add(patienceMax)); p.sampled {
		ready = some(ready)
	}
	for _, node := range ready {
		delete(p.waiting, node)
	}
	return ready
}

// some are sampleMax of at least as many nodes. They are spread over all: the first ones may be of a kind.
func some(nodes []string) []string {
	chosen := make([]string, sampleMax)
	for i := range chosen {
		chosen[i] = nodes[i*len(nodes)/sampleMax]
	}
	return chosen
}

// planned is told that the Assignment of a node is planned, for whatever reason: it does not wait any more.
func (p *patience) planned(node string) { delete(p.waiting, node) }

// written is told how long it took to write some Assignments, at the end. The time from which those count that wait already stays as it is: Assignments are
// written for other reasons too, again and again.
func (p *patience) written(count int, took time.Duration, now time.Time) {
	at := (count + writesMax - 1) / writesMax // one after the other, each of so many at once
	// A few that are written by themselves say little about many, and nothing against what was learned from more while those wait.
	least := p.each / 2
	if p.sampled && count < sampleMax {
		least = p.each
	}
	p.each = max(took/time.Duration(max(at, 1)*writesMax), least)
	if len(p.waiting) == 0 {
		p.wrote = now
	}
}

// wakeAt is when those that wait, or some of them, are to be planned: it may be over. Zero: nobody waits, or nothing was written yet.
func (p *patience) wakeAt() time.Time {
	at, _ := p.next()
	return at
}

// next is wakeAt, and whether some are to be written then to learn how long the others wait.
func (p *patience) next() (at time.Time, sample bool) {
	if len(p.waiting) == 0 || p.wrote.IsZero() {
		return time.Time{}, false
	}
	take := time.Duration(len(p.waiting)) * p.each
	wait := min(patienceTimes*take, patienceMax)
	if quiet := p.last.Add(min(max(time.Duration(quietTimes*float64(take)), quietMin), quietMax)); quiet.Before(p.wrote.Add(wait)) {
		return quiet, false
	}
	return p.wrote.Add(wait), !p.sampled && wait < patienceMax && len(p.waiting) >= sampleOf*sampleMax
}
