package instances

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
)

const (
	// loops is how many tasks of a host end badly all the time.
	loops = 200
	// loopBytes is how much memory one of them may cost in each restart that is remembered, the notes of the test included.
	loopBytes = 8 << 10
)

// TestCrashLoopsDisturbNobody: with hundreds of tasks that end as soon as they have begun a host does no more than their pauses allow, keeps no more the
// longer it lasts, and its other tasks go on.
func TestCrashLoopsDisturbNobody(t *testing.T) {
	r := newRig(t)
	flag := filepath.Join(r.dir, "ready")
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	web := task("serve", flag)
	web.Ports = []workload.Port{{Name: "http"}}
	web.Readiness = &workload.Probe{HTTP: &workload.HTTPProbe{Port: "http", Path: "/ready"}, Period: "200ms", Timeout: "10s"}
	r.start()
	calm := r.add(nil, web)
	r.is(calm, wire.InstanceRunning, true)
	pids := r.pids(calm)

	began := now()
	for range loops {
		r.add(func(_ *catalog.Instance, t *catalog.Template) { t.Spec.Restart = workload.Restart{} }, task("exit", "7"))
	}
	r.restarted(2)
	heap, goroutines := heapBytes(), goruntime.NumGoroutine()
	r.restarted(3)
	if grown := heapBytes() - heap; grown > loops*loopBytes {
		t.Errorf("%d bytes of memory more are in use after another restart of each", grown)
	}
	if n := goruntime.NumGoroutine(); n > goroutines+2*loops {
		t.Errorf("there are %d goroutines, and there were %d", n, goroutines)
	}
	if attempts, err := os.ReadDir(filepath.Join(r.dir, "runtimes/process/attempts")); err != nil || len(attempts) > 3*loops {
		t.Errorf("%d attempts are kept, %v", len(attempts), err)
	}
	// The pauses before n restarts are 1, 2, 4 ... seconds, which is 2^n - 1 together.
	told := r.keeper.Told()
	most := uint32(math.Log2(time.Duration(now()-began).Seconds() + 1))
	for _, n := range told {
		switch {
		case n.UID == calm && (n.Restarts > 0 || n.Phase != wire.InstanceRunning):
			t.Errorf("beside them one is %+v", n)
		case n.Restarts > most:
			t.Errorf("%s was started %d times again, and its pauses allow %d", n.UID, n.Restarts, most)
		case n.Code != 0 && n.UID != calm && n.Code != reason.TaskEnded:
			t.Errorf("told is %+v", n)
		}
	}
	up := r.is(calm, wire.InstanceRunning, true)
	if is := r.pids(calm); !slices.Equal(is, pids) {
		t.Errorf("beside them one ran as %v, and runs as %v", pids, is)
	}
	if code, _ := get(t, up.Ports[0].Number, "/ready"); code != http.StatusOK {
		t.Errorf("it answers %d", code)
	}
}

// restarted waits until each task that crashes was started again so often.
func (r *rig) restarted(times uint32) {
	r.t.Helper()
	r.within(10*deadline, fmt.Sprintf("each was started again %d times", times), func(told []wire.Instance) bool {
		n := 0
		for i := range told {
			if told[i].Restarts >= times {
				n++
			}
		}
		return n == loops
	})
}

// heapBytes is what is in use of the heap.
func heapBytes() int64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
