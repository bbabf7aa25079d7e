package running

import (
	"fmt"
	"time"
)

// point is how many there were at a moment, counted from the beginning.
type point struct {
	at    time.Duration
	count int
}

// course is how a number has grown, in the order of the moments.
type course []point

// end is the last point.
func (c course) end() point {
	if len(c) == 0 {
		return point{}
	}
	return c[len(c)-1]
}

func (c course) reached(count int) bool { return c.end().count >= count }

// took is when the last point was reached.
func (c course) took() time.Duration { return c.end().at }

// at is when so many were there, on the line between the two looks around it.
func (c course) at(count float64) time.Duration {
	before := point{}
	for _, p := range c {
		if float64(p.count) >= count {
			share := (count - float64(before.count)) / float64(p.count-before.count)
			return before.at + time.Duration(share*float64(p.at-before.at))
		}
		before = p
	}
	return c.took()
}

// tenths of a course that are compared.
const tenths = 10

// first is the rate of the first tenth, counted from the first that was there, and last that of the last one; both a second.
func (c course) first() float64 {
	began := time.Duration(0)
	for _, p := range c {
		if p.count > 0 {
			break
		}
		began = p.at
	}
	tenth := c.end().count / tenths
	return perSecond(tenth, c.at(float64(tenth))-began)
}

func (c course) last() float64 {
	n := c.end().count
	tenth := n / tenths
	return perSecond(tenth, c.took()-c.at(float64(n-tenth)))
}

// average is that of the rates of samples of so long, a second: from the beginning, with the part of a sample that is left.
func (c course) average(every time.Duration) float64 {
	sum, samples := 0.0, 0
	before, began := 0, time.Duration(0)
	for i, p := range c {
		if p.at-began < every && i < len(c)-1 {
			continue
		}
		sum += perSecond(p.count-before, p.at-began)
		samples++
		before, began = p.count, p.at
	}
	if samples == 0 {
		return 0
	}
	return sum / float64(samples)
}

// String is the last point.
func (c course) String() string { return fmt.Sprintf("%d after %v", c.end().count, c.took()) }

// perSecond is a rate.
func perSecond(count int, in time.Duration) float64 {
	if in <= 0 {
		return 0
	}
	return float64(count) / in.Seconds()
}
