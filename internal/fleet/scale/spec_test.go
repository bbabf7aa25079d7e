package scale

import (
	"os"
	"regexp"
	"testing"
	"time"

	"tako.dev/tako/declare/workload"
)

// TestSpec: the example of the reference does what the reference says of it, in its time zone, whatever is measured.
func TestSpec(t *testing.T) {
	page, err := os.ReadFile("../../../docs/spec/workload.md")
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)\n### Scale\n.*?```yaml\n(.*?)```").FindSubmatch(page)
	if example == nil {
		t.Fatal("the reference has no example of a scale")
	}
	declared, _, faults := workload.Read("workload.md", example[1])
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skipf("needs the zone database: %v", err)
	}
	for _, c := range []struct {
		day, hour, minute int // of July 2030, of which the first is a Monday
		low, high         int // what there is of no load, and of one without bounds
	}{
		{1, 7, 29, 2, 20}, {1, 7, 30, 6, 20}, {1, 18, 29, 6, 20}, {1, 18, 30, 2, 20}, {5, 17, 59, 6, 20}, {5, 18, 0, 1, 1}, {5, 18, 29, 1, 1}, {5, 19, 59, 1, 1}, {5, 20, 0, 2, 20}, {6, 12, 0, 2, 20},
	} {
		now := time.Date(2030, 7, c.day, c.hour, c.minute, 0, 0, berlin)
		for load, want := range map[float64]int{0: c.low, 1e6: c.high} {
			v := View{Spec: declared.Spec.Scale, Workload: "web", Stable: "r1", Zone: time.LoadLocation, Instances: instances(4, 0, now), Declared: 4}
			v.Was = Status{Decided: now.Add(-24 * time.Hour), Replicas: 4, Declared: 4}
			v.Spec.Up.MaxChange, v.Spec.Down = "1000%", workload.ScaleBound{Stabilization: "0s"}
			for i := range v.Instances {
				v.Instances[i].CPU = 500
			}
			v.Answers = map[string]Answer{"queue": {At: now, Value: load}}
			if d := after(v, now, Period); d.Replicas != want {
				t.Errorf("%s, with %g: %d, want %d (%s)", now.Format(time.RFC3339), load, d.Replicas, want, d.Why)
			}
		}
	}
}
