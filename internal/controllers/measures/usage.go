package measures

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// forgetAfter is how long what a host has said is kept: longer than hosts are ever left alone (node.Quiet), with which one that is there still
	// has said something else by then.
	forgetAfter = 10 * time.Minute
	// apartMin is how far two samples must be apart for a rate: below it the milliseconds that counters are cut to are more than 1 %.
	apartMin = time.Second
	// cpuMax bounds what one instance may be said to use, in thousandths of processors: more than any host has, and a sum of all does not overflow.
	cpuMax = 1 << 30
	// memoryMax bounds the same in bytes.
	memoryMax = 1 << 50
)

// Usage is what instances take, as their hosts have said last. The zero value is ready for use, and safe for concurrent use.
type Usage struct {
	mu     sync.Mutex // guards what follows
	hosts  map[types.UID]*counters
	wanted map[types.UID]bool
	swept  time.Time
}

// counters are what one host has said last.
type counters struct {
	at        time.Time     // by our clock
	clock     uint64        // by the host's: milliseconds since it was booted
	over      time.Duration // since the sample before; 0: there is none
	instances []counter     // by UID
}

// counter is what is known of one instance. There may be some hundred thousand.
type counter struct {
	uid     string // shared with the last report
	cpu     uint64 // milliseconds since its last start
	memory  int64
	attempt uint32
	rate    int32 // thousandths of processors; below 0: not known
}

// Take notes what a host takes for its instances. The answer is after how long it is to say so again though nothing changes; 0: nobody waits for that.
func (u *Usage) Take(node types.UID, r *wire.Report, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweepLocked(now)
	if u.hosts == nil {
		u.hosts = map[types.UID]*counters{}
	}
	switch before := u.hosts[node]; {
	case r.Usage == nil || len(r.Instances) == 0:
		delete(u.hosts, node)
	case r.Usage.Sampled == 0, before != nil && before.clock == r.Usage.Sampled:
		// What it says was said before.
	default:
		u.hosts[node] = take(before, r, now)
	}
	if u.wanted[node] {
		return scale.Period
	}
	return 0
}

// take is what a report says, with what follows from it and the sample before. Counters that have gone back, as with another start, say nothing of a
// rate, and neither does a clock that has: the host was booted anew.
func take(before *counters, r *wire.Report, now time.Time) *counters {
	is := &counters{
		at: now.Add(-time.Duration(min(r.Usage.SampledAgo, uint64(forgetAfter/time.Millisecond))) * time.Millisecond), clock: r.Usage.Sampled,
		instances: make([]counter, 0, len(r.Instances)),
	}
	var apart uint64
	if before != nil && is.clock > before.clock && is.clock-before.clock < uint64(forgetAfter/time.Millisecond) {
		apart = is.clock - before.clock
	}
	is.over = time.Duration(apart) * time.Millisecond
	for i := range r.Instances {
		in := &r.Instances[i]
		if in.CPU == 0 && in.Memory == 0 {
			continue // it does not run, or nobody could look
		}
		c := counter{uid: in.UID, cpu: in.CPU, memory: int64(min(in.Memory, memoryMax)), attempt: in.Attempt, rate: -1}
		if was := before.of(in.UID); was != nil && was.attempt == c.attempt && c.cpu >= was.cpu && is.over >= apartMin {
			c.rate = int32(min(float64(c.cpu-was.cpu)*1000/float64(apart), cpuMax))
		}
		is.instances = append(is.instances, c)
	}
	slices.SortFunc(is.instances, func(a, b counter) int { return cmp.Compare(a.uid, b.uid) })
	return is
}

func (h *counters) of(uid string) *counter {
	if h == nil {
		return nil
	}
	at, found := slices.BinarySearchFunc(h.instances, uid, func(c counter, uid string) int { return cmp.Compare(c.uid, uid) })
	if !found {
		return nil
	}
	return &h.instances[at]
}

// sweepLocked forgets hosts that have said nothing for long.
func (u *Usage) sweepLocked(now time.Time) {
	if now.Sub(u.swept) < forgetAfter {
		return
	}
	u.swept = now
	for node, h := range u.hosts {
		if now.Sub(h.at) > forgetAfter {
			delete(u.hosts, node)
		}
	}
}

// Of is what an instance takes on a node; false where its host has not said. Its CPU is below 0 where only one sample was taken yet.
func (u *Usage) Of(node, instance types.UID) (scale.Sample, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h := u.hosts[node]
	c := h.of(string(instance))
	if c == nil {
		return scale.Sample{}, false
	}
	return scale.Sample{At: h.at, Over: h.over, CPU: int64(c.rate), Memory: c.memory}, true
}

// Want says of which nodes the hosts are to say every scale.Period what their instances take. The map is the callee's from then on.
func (u *Usage) Want(nodes map[types.UID]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wanted = nodes
}
