package scale

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
)

// simSeeds is how many seeds a normal run tries; TAKO_SEEDS asks for more, TAKO_SEED replays one.
const simSeeds = 50

// number reads a number from the environment.
func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// world is one workload under a load.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	now    time.Time
	v      View
	made   int
	load   float64 // in fully used instances
	noise  float64
	lost   int // one sample in so many is lost; 0: none
	calm   bool
	blind  bool // no measure arrives at all
	grown  time.Time
	shrunk time.Time
}

func newWorld(t *testing.T, rng *rand.Rand) *world {
	w := &world{t: t, rng: rng, now: start, load: 1 + 30*rng.Float64(), noise: 0.2 * rng.Float64(), lost: rng.IntN(10)}
	w.v = View{Workload: "web", Declared: 1 + rng.IntN(20), Stable: "r1", Zone: time.LoadLocation, Spec: &workload.Scale{
		Min: ptr(int32(rng.IntN(4))), Max: int32(20 + rng.IntN(30)), Targets: []workload.ScaleTarget{{Name: "cpu", CPU: ptr(int32(10 + rng.IntN(90)))}}}}
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	share := func() declare.IntOrPercent { return declare.IntOrPercent(pick("", "1", "4", "10%", "100%")) }
	w.v.Spec.Up = workload.ScaleBound{Stabilization: pick("", "0s", "45s", "3m"), MaxChange: share(), Period: pick("", "1m", "2m")}
	w.v.Spec.Down = workload.ScaleBound{Stabilization: pick("", "0s", "1m", "10m"), MaxChange: share(), Period: pick("", "1m", "2m")}
	if w.oneIn(2) {
		w.v.Spec.Tolerance = ptr(int32(rng.IntN(30)))
	}
	if w.oneIn(3) {
		w.v.Spec.Scheduled = []workload.ScheduledBounds{{Name: "rush", Window: declare.Window{Opens: "*:20", Duration: "15m"}, Min: ptr(int32(5 + rng.IntN(10)))}}
	}
	return w
}

func (w *world) oneIn(n int) bool { return w.rng.IntN(n) == 0 }

// step is what happens in the world until the next decision.
func (w *world) step() {
	w.now = w.now.Add(Period)
	if w.oneIn(40) && !w.calm {
		w.now = w.now.Add(time.Duration(w.rng.IntN(600)) * time.Second) // nobody leads
	}
	w.follow()
	if w.calm {
		w.measure()
		return
	}
	switch w.rng.IntN(60) {
	case 0:
		w.load = 40 * w.rng.Float64()
	case 1:
		w.v.Declared = w.rng.IntN(30)
	case 2:
		w.v.Rollout = Rollout(w.rng.IntN(3))
	case 3:
		w.v.Spec.Max = int32(20 + w.rng.IntN(30))
	case 4:
		w.blind = !w.blind
	case 5, 6:
		w.load *= 1 + 0.3*(w.rng.Float64()-0.5)
	}
	w.measure()
}

// follow brings the instances to the number that was decided, as a rollout does: some start, some end, some are beyond.
func (w *world) follow() {
	want := w.v.Was.Replicas
	if w.v.Rollout == Rolling && !w.calm {
		want += w.rng.IntN(1 + want/4)
	}
	kept := w.v.Instances[:0]
	for i, x := range w.v.Instances {
		if x.Terminating && w.oneIn(2) {
			continue
		}
		x.Terminating = i >= want
		if x.Ready.IsZero() && (w.calm || w.oneIn(3)) && (x.Revision == "r1" || w.v.Rollout != Broken) {
			x.Ready = w.now
		}
		if w.calm && x.Terminating {
			continue
		}
		kept = append(kept, x)
	}
	for len(kept) < want {
		w.made++
		x := Instance{Workload: "web", Revision: "r1", CPU: 1000, Memory: 1 << 30}
		if w.v.Rollout == Broken && w.oneIn(2) {
			x.Revision = "r2"
		}
		kept = append(kept, x)
	}
	w.v.Instances = kept
}

// measure spreads the load over those that are ready. Others use what they can get.
func (w *world) measure() {
	ready := 0
	for i := range w.v.Instances {
		if !w.v.Instances[i].Ready.IsZero() && !w.v.Instances[i].Terminating {
			ready++
		}
	}
	for i := range w.v.Instances {
		x := &w.v.Instances[i]
		if w.blind && !w.calm || w.lost > 0 && w.oneIn(w.lost) && !w.calm {
			continue
		}
		used := 4000.0
		if !x.Ready.IsZero() && !x.Terminating {
			used = w.load / float64(ready) * float64(*w.v.Spec.Targets[0].CPU) * 10
			if !w.calm {
				used *= 1 + w.noise*(w.rng.Float64()-0.5)
			}
		}
		x.Sample = Sample{At: w.now, Over: Period, CPU: int64(used)}
	}
}

// measuredNow counts what Decide may believe, in other words than it does.
func (w *world) measuredNow(was Status) (n int, sum float64) {
	var changed time.Time
	for _, s := range slices.Concat(was.Grown, was.Shrunk) {
		if s.At.After(changed) && was.Declared == w.v.Declared {
			changed = s.At
		}
	}
	for _, x := range w.v.Instances {
		old := w.now.Sub(x.Sample.At) > freshFor || !x.Sample.At.After(changed)
		if x.Ready.IsZero() || x.Terminating || old || x.Sample.At.Add(-x.Sample.Over).Before(x.Ready) || w.v.Rollout == Broken && x.Revision != "r1" {
			continue
		}
		n++
		sum += float64(x.Sample.CPU) / 10 / float64(*w.v.Spec.Targets[0].CPU)
	}
	return n, sum
}

// decide decides, checks, and stores, as another leader or the same one.
func (w *world) decide() {
	was := w.v.Was
	d := Decide(w.v, w.now)
	w.check(was, d)
	text, err := json.Marshal(d.Status) // as it is stored
	if err != nil {
		w.t.Fatal(err)
	}
	var stored Status
	if err := json.Unmarshal(text, &stored); err != nil {
		w.t.Fatal(err)
	}
	if w.oneIn(30) && !w.calm {
		return // the leader is gone before it has stored it
	}
	w.v.Was = stored
	if !w.oneIn(3) {
		w.turned(was, d)
		return
	}
	if again := Decide(w.v, w.now); again.Replicas != d.Replicas || !reflect.DeepEqual(again.Status.Grown, stored.Grown) || !reflect.DeepEqual(again.Status.Shrunk, stored.Shrunk) {
		w.t.Fatalf("on its own result it decides\n%+v\nafter\n%+v", again, d)
	}
	w.turned(was, d)
}

// turned notes when the number has grown, and when it has shrunk.
func (w *world) turned(was Status, d Decision) {
	switch {
	case d.Replicas > was.Replicas:
		w.grown = w.now
	case d.Replicas < was.Replicas:
		w.shrunk = w.now
	}
}

func (w *world) check(was Status, d Decision) {
	w.t.Helper()
	low, high := w.v.Spec.MinOrDefault(), int(w.v.Spec.Max)
	if m := w.now.Minute(); len(w.v.Spec.Scheduled) > 0 && m >= 20 && m < 35 {
		low = int(*w.v.Spec.Scheduled[0].Min)
	}
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("%v: %s\n%+v\nafter %+v", w.now, fmt.Sprintf(format, args...), d, was)
	}
	from := was.Replicas
	if was.Decided.IsZero() || was.Declared != w.v.Declared {
		from = w.v.Declared // a person's
	}
	if (d.Replicas < low || d.Replicas > high) && !(d.Replicas == 0 && from == 0) {
		fail("%d is not from %d to %d", d.Replicas, low, high)
	}
	if len(d.Status.Up.Asked)+len(d.Status.Down.Asked)+len(d.Status.Grown)+len(d.Status.Shrunk) > 4*rememberedMax {
		fail("it remembers without a bound")
	}
	if d.Why == "" || !d.WakeAt.After(w.now) {
		fail("it says nothing, or sleeps for ever")
	}
	if from < low || from > high || from != was.Replicas {
		return // bounds and edits are at once
	}
	n, sum := w.measuredNow(was)
	up, down := w.v.Spec.UpStabilizationOrDefault(), w.v.Spec.DownStabilizationOrDefault()
	switch {
	case d.Replicas < from:
		if w.now.Sub(w.grown) < down {
			fail("it shrinks %v after it has grown", w.now.Sub(w.grown))
		}
		if n == 0 {
			fail("it shrinks though nothing is measured")
		}
		if most := int(math.Ceil(sum - 0.01)); d.Replicas < min(from, most+max(0, from-n)) {
			fail("it shrinks below the %d of %d measured and the missing", most, n)
		}
		period := w.v.Spec.Down.PeriodOrDefault()
		grown, shrunk := changed(d.Status.Grown, period, w.now), changed(d.Status.Shrunk, period, w.now)
		if shrunk > w.v.Spec.DownMaxChangeOrDefault(d.Replicas-grown+shrunk) {
			fail("it shrinks by %d within %v", shrunk, period)
		}
	case d.Replicas > from:
		if w.now.Sub(w.shrunk) < up {
			fail("it grows %v after it has shrunk", w.now.Sub(w.shrunk))
		}
		if d.Replicas > max(low, int(math.Ceil(sum+0.01))) {
			fail("it grows beyond the %.2f that are measured of %d", sum, n)
		}
		period := w.v.Spec.Up.PeriodOrDefault()
		grown, shrunk := changed(d.Status.Grown, period, w.now), changed(d.Status.Shrunk, period, w.now)
		if grown > w.v.Spec.UpMaxChangeOrDefault(max(0, d.Replicas-grown+shrunk)) {
			fail("it grows by %d within %v", grown, period)
		}
	}
}

// changed is by how much the number has changed in a period.
func changed(steps []Step, period time.Duration, now time.Time) int {
	n := 0
	for _, s := range steps {
		if now.Sub(s.At) < period {
			n += s.By
		}
	}
	return n
}

// settle is a steady load that everything is known of: it gets to the number that is needed, and stays there.
func (w *world) settle() {
	w.calm, w.blind, w.v.Rollout, w.v.Spec.Scheduled = true, false, Settled, nil
	if w.v.Declared == 0 {
		w.v.Declared = 1
	}
	for range 4 * 60 * 2 { // the slowest of the scales goes from 50 to 1 in less
		w.step()
		w.decide()
	}
	tolerance := float64(w.v.Spec.ToleranceOrDefault()) / 100
	low, high := float64(max(w.v.Spec.MinOrDefault(), 0)), float64(w.v.Spec.Max)
	n := float64(w.v.Was.Replicas)
	rounded := 0.01 + n/float64(*w.v.Spec.Targets[0].CPU*10) // a sample is in thousandths of a processor
	enough := w.load <= n*(1+tolerance)+rounded || n == high
	few := math.Ceil(w.load) >= n || w.load >= n*(1-tolerance)-rounded || n == low
	if !enough || !few {
		w.t.Fatalf("a load of %.2f ends at %v, of %v to %v with a tolerance of %v: %+v", w.load, n, low, high, tolerance, w.v.Was)
	}
	stays := w.v.Was.Replicas
	for range 40 {
		w.step()
		w.decide()
		if w.v.Was.Replicas != stays {
			w.t.Fatalf("it does not stay at %d: %+v", stays, w.v.Was)
		}
	}
}

func TestSimulation(t *testing.T) {
	first, last := uint64(1), number("TAKO_SEEDS", simSeeds)
	if seed := number("TAKO_SEED", 0); seed > 0 {
		first, last = seed, seed
	}
	for seed := first; seed <= last; seed++ {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 69)))
			for range 250 {
				w.step()
				w.decide()
			}
			w.settle()
		})
		if !ok {
			t.Fatalf("replay with TAKO_SEED=%d", seed)
		}
	}
}
