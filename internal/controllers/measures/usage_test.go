package measures

import (
	"fmt"
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"tako.dev/tako/internal/fleet/scale"
	"tako.dev/tako/internal/transfer/wire"
)

var begin = time.Date(2026, 3, 4, 15, 0, 0, 0, time.UTC)

// told is a report of a host that was looked at so many seconds after it was booted.
func told(seconds uint64, instances ...wire.Instance) *wire.Report {
	return &wire.Report{Usage: &wire.Usage{Sampled: seconds * 1000, SampledAgo: 500}, Instances: instances}
}

func instance(uid string, attempt uint32, cpu, memory uint64) wire.Instance {
	return wire.Instance{UID: uid, Attempt: attempt, Phase: wire.InstanceRunning, CPU: cpu, Memory: memory}
}

// TestRate: of two samples of one attempt follows a rate, over the time by the host's clock; the first one says what is held alone.
func TestRate(t *testing.T) {
	var u Usage
	u.Take("n1", told(100, instance("b", 1, 5000, 1<<20), instance("a", 1, 1000, 2<<20)), begin)
	if s, known := u.Of("n1", "a"); !known || s.CPU >= 0 || s.Memory != 2<<20 || !s.At.Equal(begin.Add(-500*time.Millisecond)) {
		t.Errorf("after one sample %+v, %v", s, known)
	}
	later := begin.Add(5 * time.Minute) // our clock says nothing of how far two samples are apart
	u.Take("n1", told(110, instance("a", 1, 3500, 3<<20), instance("b", 1, 5000, 1<<20)), later)
	want := scale.Sample{At: later.Add(-500 * time.Millisecond), Over: 10 * time.Second, CPU: 250, Memory: 3 << 20}
	if s, _ := u.Of("n1", "a"); s != want {
		t.Errorf("2.5 s in ten are %+v, want %+v", s, want)
	}
	if s, known := u.Of("n1", "b"); !known || s.CPU != 0 {
		t.Errorf("what does nothing takes %+v, %v", s, known)
	}
	for _, c := range []struct{ node, in types.UID }{{"n2", "a"}, {"n1", "c"}, {"n1", ""}} {
		if s, known := u.Of(c.node, c.in); known {
			t.Errorf("instance %q on %q, of which nobody has said anything, takes %+v", c.in, c.node, s)
		}
	}
}

// TestNoRate: what says nothing of a rate.
func TestNoRate(t *testing.T) {
	for what, after := range map[string]*wire.Report{
		"another attempt": told(110, instance("a", 2, 9000, 1)), "counter went back": told(110, instance("a", 1, 10, 1)), "host booted anew": told(5, instance("a", 1, 9000, 1)),
		"too soon": {Usage: &wire.Usage{Sampled: 100_100}, Instances: []wire.Instance{instance("a", 1, 9000, 1)}}, "too late": told(100_000, instance("a", 1, 9000, 1)),
	} {
		var u Usage
		u.Take("n", told(100, instance("a", 1, 1000, 1)), begin)
		u.Take("n", after, begin.Add(time.Second))
		if s, known := u.Of("n", "a"); !known || s.CPU >= 0 {
			t.Errorf("%s: %+v, %v", what, s, known)
		}
	}
}

// TestRepeated: a report that says what the one before has said changes nothing; one of a host without instances, or of one that does not tell,
// takes away what was known, and so does time.
func TestRepeated(t *testing.T) {
	var u Usage
	u.Take("n", told(100, instance("a", 1, 1000, 1)), begin)
	u.Take("n", told(110, instance("a", 1, 2000, 1)), begin.Add(10*time.Second))
	before, _ := u.Of("n", "a")
	u.Take("n", told(110, instance("a", 1, 2000, 1)), begin.Add(11*time.Second))
	u.Take("n", told(0, instance("a", 1, 2000, 1)), begin.Add(12*time.Second))
	if s, _ := u.Of("n", "a"); s != before || s.CPU != 100 {
		t.Errorf("it takes %+v, and was %+v", s, before)
	}
	for what, r := range map[string]*wire.Report{"nothing runs": told(120), "does not tell": {Instances: []wire.Instance{instance("a", 1, 3000, 1)}}} {
		u.Take("n", told(110, instance("a", 1, 2000, 1)), begin)
		u.Take("n", r, begin)
		if s, known := u.Of("n", "a"); known {
			t.Errorf("%s, and it takes %+v", what, s)
		}
	}
	u.Take("n", told(110, instance("a", 1, 2000, 1)), begin.Add(time.Minute))
	u.Take("other", told(1), begin.Add(time.Hour))
	if s, known := u.Of("n", "a"); known {
		t.Errorf("an hour later it takes %+v", s)
	}
}

// TestLies: whatever a host says, what comes out is bounded.
func TestLies(t *testing.T) {
	var u Usage
	u.Take("n", told(100, instance("a", 1, 0, 1)), begin)
	u.Take("n", &wire.Report{Usage: &wire.Usage{Sampled: 101_000, SampledAgo: math.MaxUint64}, Instances: []wire.Instance{instance("a", 1, math.MaxUint64, math.MaxUint64)}}, begin)
	if s, _ := u.Of("n", "a"); s.CPU != cpuMax || s.Memory != memoryMax || s.At.After(begin) || begin.Sub(s.At) > forgetAfter {
		t.Errorf("it takes %+v", s)
	}
}

// TestWanted: hosts are asked as long as somebody waits for what they say, and no others.
func TestWanted(t *testing.T) {
	var u Usage
	u.Want(map[types.UID]bool{"n": true})
	if a, b := u.Take("n", told(1), begin), u.Take("m", told(1), begin); a != scale.Period || b != 0 {
		t.Errorf("asked after %s, the other after %s", a, b)
	}
	u.Want(nil)
	if a := u.Take("n", told(2), begin); a != 0 {
		t.Errorf("asked after %s", a)
	}
}

// BenchmarkTake: a report of a host with 200 instances.
func BenchmarkTake(b *testing.B) {
	r := told(1)
	for i := range 200 {
		r.Instances = append(r.Instances, instance(fmt.Sprintf("8f4e7b1c-0000-4000-8000-%012d", i), 1, 1, 1))
	}
	var u Usage
	for b.Loop() {
		r.Usage.Sampled += 15_000
		u.Take("n", r, begin)
	}
}
