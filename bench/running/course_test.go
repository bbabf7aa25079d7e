package running

import (
	"math"
	"testing"
	"time"
)

func TestCourse(t *testing.T) {
	// Nothing for a second, then a hundred a second for five, then fifty a second for ten.
	c := course{{time.Second, 0}}
	for i := 1; i <= 5; i++ {
		c = append(c, point{time.Duration(1+i) * time.Second, 100 * i})
	}
	for i := 1; i <= 10; i++ {
		c = append(c, point{time.Duration(6+i) * time.Second, 500 + 50*i})
	}
	if !c.reached(1000) || c.reached(1001) || c.took() != 16*time.Second {
		t.Errorf("%s", c)
	}
	if got := c.at(150); got != 2500*time.Millisecond {
		t.Errorf("150 are there after %v", got)
	}
	for name, r := range map[string]struct{ got, want float64 }{
		"first": {c.first(), 100}, "last": {c.last(), 50},
		"average": {c.average(time.Second), 1000.0 / 16}, "average of two": {c.average(2 * time.Second), 1000.0 / 16},
		"of nothing": {course{}.average(time.Second), 0}, "first of nothing": {course{}.first(), 0},
	} {
		if math.Abs(r.got-r.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, r.got, r.want)
		}
	}
}
