package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// The times of nodes that refuse what they were thought to take.
const (
	// avoidMin is how long a workload keeps away from a node that has refused one of its instances: a node's next report comes before.
	avoidMin = time.Minute
	// avoidMax is the longest, after refusals in a row, each of which doubles it.
	avoidMax = time.Hour
	// quarantineAfter is how many refusals within avoidMax, of whichever workloads, make a node that nothing is placed on: it and we do not
	// agree about what it has, and the next instance would learn that the hard way too.
	quarantineAfter = 3
	// avoidedMax bounds the memory of refusals. Beyond it the one that is over first is forgotten: the node is asked again sooner.
	avoidedMax = 10_000
	// whyMax bounds, in bytes, what is remembered of an agent's words.
	whyMax = 256
)

// avoidKey is a node that a workload keeps away from; with an empty workload all do.
type avoidKey struct {
	workload string
	node     int32
}

// avoided is why, and for how long.
type avoided struct {
	until time.Time
	last  time.Time
	count int
	why   string
}

// avoidance remembers refusals.
type avoidance struct {
	byWorkload map[string]map[int32]*avoided
	count      int
	swept      time.Time // when what is over was forgotten
}

func newAvoidance() avoidance { return avoidance{byWorkload: map[string]map[int32]*avoided{}} }

// Rejected tells that the agent of a node has refused an instance that the store had bound. The instance is over; one that takes its place
// goes elsewhere for a while, and so does everything after several refusals.
func (s *Snapshot) Rejected(in Instance, why string, now time.Time) {
	s.RemoveInstance(in.Name)
	node, known := s.numbers[in.Node]
	if !known {
		return
	}
	why = strings.ToValidUTF8(why[:min(len(why), whyMax)], "")
	own := s.avoided.entry(avoidKey{in.Workload, node}, now)
	own.until, own.why = now.Add(backoff(own.count, avoidMin, avoidMax)), why
	all := s.avoided.entry(avoidKey{"", node}, now)
	if all.count >= quarantineAfter {
		all.until, all.why = now.Add(backoff(all.count-quarantineAfter+1, avoidMin, avoidMax)), why
	}
}

// entry finds what is remembered, with one refusal more, or begins anew where the last one is long ago.
func (a *avoidance) entry(k avoidKey, now time.Time) *avoided {
	a.expire(now)
	byNode := a.byWorkload[k.workload]
	if byNode == nil {
		byNode = map[int32]*avoided{}
		a.byWorkload[k.workload] = byNode
	}
	e := byNode[k.node]
	if e != nil && !e.over().After(now) {
		e.count = 0
	}
	if e == nil {
		e = &avoided{}
		byNode[k.node] = e
		a.count++
	}
	e.count, e.last = e.count+1, now
	return e
}

// over is when an entry does not matter any more: the back-off begins anew when there was no refusal for as long as it can be.
func (e *avoided) over() time.Time {
	end := e.last.Add(avoidMax)
	if e.until.After(end) {
		end = e.until
	}
	return end
}

// expire forgets what is over, and, where there is too much, what is over next.
func (a *avoidance) expire(now time.Time) {
	if a.count < avoidedMax && now.Sub(a.swept) < avoidMin {
		return
	}
	a.swept = now
	var next avoidKey
	var at time.Time
	for w, byNode := range a.byWorkload {
		for n, e := range byNode {
			end := e.over()
			if !end.After(now) {
				a.remove(avoidKey{w, n})
			} else if at.IsZero() || end.Before(at) || end.Equal(at) && (w < next.workload || w == next.workload && n < next.node) {
				next, at = avoidKey{w, n}, end
			}
		}
	}
	if a.count >= avoidedMax {
		a.remove(next)
	}
}

func (a *avoidance) remove(k avoidKey) {
	delete(a.byWorkload[k.workload], k.node)
	if len(a.byWorkload[k.workload]) == 0 {
		delete(a.byWorkload, k.workload)
	}
	a.count--
}

func (a *avoidance) forgetNode(node int32) {
	for w, byNode := range a.byWorkload {
		if byNode[node] != nil {
			a.remove(avoidKey{w, node})
		}
	}
}

func (a *avoidance) forgetWorkload(workload string) {
	a.count -= len(a.byWorkload[workload])
	delete(a.byWorkload, workload)
}

// nodes calls a function with the nodes that a workload keeps away from now, and says when that ends first.
func (a *avoidance) nodes(workload string, now time.Time, do func(node int32, e *avoided)) (until time.Time) {
	for _, key := range []string{workload, ""} {
		for n, e := range a.byWorkload[key] {
			if !e.until.After(now) {
				continue
			}
			do(n, e)
			if until.IsZero() || e.until.Before(until) {
				until = e.until
			}
		}
	}
	return until
}

// text says why a node is avoided.
func (e *avoided) text() string {
	return fmt.Sprintf("refused %d times, the last time at %s (%s), and is left alone until %s",
		e.count, e.last.UTC().Format(time.TimeOnly), e.why, e.until.UTC().Format(time.TimeOnly))
}

// backoff is the first pause for the first time, and twice as much each time after.
func backoff(times int, first, most time.Duration) time.Duration {
	pause := first
	for range times - 1 {
		if pause *= 2; pause >= most {
			return most
		}
	}
	return pause
}
