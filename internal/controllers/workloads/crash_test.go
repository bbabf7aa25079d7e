package workloads

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

// crashes is what becomes of tasks that end right after they have begun, as run/core has it: they are started again after pauses that double.
type crashes struct {
	next  map[types.UID]time.Time
	pause map[types.UID]time.Duration
}

const (
	crashFirst = time.Second
	crashMost  = 5 * time.Minute
	crashAfter = 250 * time.Millisecond
	// crashBytes is how much memory may be kept of an instance the more often it has crashed: what is told of it has other words.
	crashBytes = 1 << 10
)

// live is one step of an instance that crashes. It reports whether anything has changed.
func (x *crashes) live(now time.Time, has *wire.Instance) bool {
	uid := types.UID(has.UID)
	if now.Before(x.next[uid]) {
		return false
	}
	if has.Phase != wire.InstanceRunning {
		x.next[uid] = now.Add(crashAfter)
		has.Attempt = max(has.Attempt, 1)
		has.Phase, has.Ready, has.Code, has.Message, has.Since = wire.InstanceRunning, true, 0, "", 0
		return true
	}
	pause := max(crashFirst, min(2*x.pause[uid], crashMost))
	x.pause[uid], x.next[uid] = pause, now.Add(pause)
	has.Message = fmt.Sprintf("task web: attempt %d exit code 1; restart %d comes %v after that", has.Attempt, has.Restarts+1, pause)
	has.Restarts++
	has.Attempt++ // the one that comes: what is told goes forward only
	has.Phase, has.Ready, has.Code, has.Since = wire.InstanceStarting, false, reason.TaskEnded, now.UnixMilli()
	return true
}

// heapBytes is what is in use of the heap.
func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// storm lets time go on with instances that crash, and returns how many writes there were in each second.
func (r *rig) storm(d time.Duration) (writes []int) {
	const step = 250 * time.Millisecond
	for end := r.now.Add(d); r.now.Before(end); {
		before := r.store.writes
		for range time.Second / step {
			r.now = r.now.Add(step)
			r.round()
			for _, h := range r.hosts {
				changed := false
				for _, has := range h.has {
					changed = r.crashes.live(r.now, has) || changed
				}
				if changed {
					h.tell()
					h.speak()
				}
			}
		}
		writes = append(writes, r.store.writes-before)
	}
	return writes
}

// TestTenThousandCrashLoops: however many instances come and go, what is stored of them is bounded, what else is declared is placed at once, and in the
// end what is stored is true of all.
func TestTenThousandCrashLoops(t *testing.T) {
	const hosts, alone, together, each = 100, 5000, 50, 100
	r := newRig(t)
	r.many, r.crashes = true, &crashes{next: map[types.UID]time.Time{}, pause: map[types.UID]time.Duration{}}
	r.quality = func(in *v1alpha1.Instance) quality {
		if in.Spec.Workload == "calm" {
			return good
		}
		return crashing
	}
	for i := range hosts {
		r.join(fmt.Sprintf("n%02d", i))
	}
	spec := web(1)
	spec.Template.Tasks[0].Resources.Requests.CPU, spec.Template.Tasks[0].Resources.Requests.Memory = "10m", "16Mi"
	for i := range alone {
		r.declare(fmt.Sprintf("alone-%d", i), spec)
	}
	for i := range together {
		many, n := spec, int32(each)
		many.Replicas = &n
		r.declare(fmt.Sprintf("many-%d", i), many)
	}
	r.until("all have nodes", func() string {
		return unless(len(r.w.instances) == alone+together*each, fmt.Sprint(len(r.w.instances)))
	})

	bounded := func(writes []int, others int) {
		t.Helper()
		for i, n := range writes {
			if n > int(time.Second/countsEvery)*statusesMax+others {
				t.Errorf("in second %d there were %d writes: %v", i, n, writes)
			}
		}
	}
	first := r.storm(4 * time.Second)
	bounded(first, 0)
	if first[0] == 0 {
		t.Error("nothing is told of what crashes")
	}
	heap := heapBytes()
	r.declare("calm", web(3))
	for range 3 { // its revision, its status, its instances
		r.round()
	}
	if n := len(r.instances("calm")); n != 3 {
		t.Errorf("%d of 3 instances are placed while others crash", n)
	}
	bounded(r.storm(30*time.Second), 20)
	if grown := heapBytes() - heap; grown > (alone+together*each)*crashBytes {
		t.Errorf("%d bytes of memory more are in use after some more restarts of each", grown)
	}
	// From now on pauses are so long that nothing happens.
	bounded(r.storm(20*time.Second), 20)
	down, wrong := 0, 0
	for _, o := range all[*v1alpha1.Workload](r.store) {
		available := int32(0)
		for _, in := range r.w.workloads[keyOf(o)].instances {
			if !in.seen.ReadySince.IsZero() {
				available++
			}
		}
		if available < *o.Spec.Replicas {
			down++
		}
		if o.Status.AvailableReplicas != available {
			wrong++
		}
	}
	if down < alone || wrong > 0 {
		t.Errorf("%d workloads lack instances, and of %d workloads other numbers are stored", down, wrong)
	}
}
